package verify

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// Envelope is a DSSE envelope (github.com/secure-systems-lab/dsse, envelope.md).
type Envelope struct {
	Payload     []byte              `json:"payload"`
	PayloadType string              `json:"payloadType"`
	Signatures  []EnvelopeSignature `json:"signatures"`
}

// EnvelopeSignature is one of an envelope's signatures. KeyID is a hint that nothing is trusted for.
type EnvelopeSignature struct {
	Signature []byte `json:"sig"`
	KeyID     string `json:"keyid,omitempty"`
}

// maxSignatures keeps a hostile envelope from costing time.
const maxSignatures = 16

// ParseEnvelope reads an envelope that stands alone.
func ParseEnvelope(text []byte) (*Envelope, error) {
	var e Envelope
	if err := unmarshal(text, &e); err != nil {
		return nil, fmt.Errorf("reading DSSE envelope: %w", err)
	}
	return &e, e.check()
}

func (e *Envelope) check() error {
	switch n := len(e.Signatures); {
	case n == 0:
		return errors.New("cannot use a DSSE envelope without a signature")
	case n > maxSignatures:
		return fmt.Errorf("cannot use a DSSE envelope of %d signatures: the limit is %d", n, maxSignatures)
	case e.PayloadType == "" || len(e.Payload) == 0:
		return errors.New("cannot use a DSSE envelope without a payload")
	}
	return nil
}

// PAE is what a DSSE signature is over (protocol.md, "pre-authentication encoding").
func PAE(payloadType string, payload []byte) []byte {
	return append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload)), payload...)
}

// Verify returns the payload if one of the signatures is the key's.
func (e *Envelope) Verify(key *Key) ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	digest := sha256.Sum256(PAE(e.PayloadType, e.Payload))
	for _, s := range e.Signatures {
		if key.Verify(digest, s.Signature) == nil {
			return e.Payload, nil
		}
	}
	return nil, ErrSignature
}
