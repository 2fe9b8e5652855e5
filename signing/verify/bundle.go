package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// BundleType is the media type that bundles are written with (github.com/sigstore/protobuf-specs, sigstore_bundle.proto).
const BundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// digestAlgorithm is SHA-256 in the enumeration HashAlgorithm of sigstore_common.proto.
const digestAlgorithm = "SHA2_256"

// maxBundle is far more than a signed statement about any image.
const maxBundle = 8 << 20

// Bundle is a Sigstore bundle made with a key that the verifier knows: a signature over a file, or a signed statement. Exactly one
// of Message and Envelope is set.
type Bundle struct {
	Hint     string // says which key it was; nothing is trusted for it
	Message  *Message
	Envelope *Envelope
}

// Message is the signature over a file, and the file's digest.
type Message struct {
	Digest    [sha256.Size]byte
	Signature []byte
}

// bundleJSON is the JSON mapping of the protobuf message Bundle, as far as keys need it.
type bundleJSON struct {
	MediaType string       `json:"mediaType"`
	Material  materialJSON `json:"verificationMaterial"`
	Message   *messageJSON `json:"messageSignature,omitempty"`
	Envelope  *Envelope    `json:"dsseEnvelope,omitempty"`
}

type materialJSON struct {
	PublicKey   *publicKeyJSON  `json:"publicKey,omitempty"`
	Certificate json.RawMessage `json:"certificate,omitempty"`
	Chain       json.RawMessage `json:"x509CertificateChain,omitempty"`
	// What proves when something was signed is for keyless signatures; here it is neither needed nor looked at.
	Log        json.RawMessage `json:"tlogEntries,omitempty"`
	Timestamps json.RawMessage `json:"timestampVerificationData,omitempty"`
}

type publicKeyJSON struct {
	Hint string `json:"hint,omitempty"`
}

type messageJSON struct {
	Digest    digestJSON `json:"messageDigest"`
	Signature []byte     `json:"signature"`
}

type digestJSON struct {
	Algorithm string `json:"algorithm"`
	Digest    []byte `json:"digest"`
}

// ParseBundle reads a bundle that was signed with a key. Fields it does not know are refused.
func ParseBundle(text []byte) (*Bundle, error) {
	var in bundleJSON
	if err := unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("reading Sigstore bundle: %w", err)
	}
	if !isBundleType(in.MediaType) {
		return nil, fmt.Errorf("cannot read a Sigstore bundle of type %q", in.MediaType)
	}
	if in.Material.Certificate != nil || in.Material.Chain != nil {
		return nil, errors.New("cannot verify a keyless Sigstore bundle: it was signed by a certificate, not by a key")
	}
	if in.Material.PublicKey == nil {
		return nil, errors.New("cannot read Sigstore bundle: it names no public key")
	}
	if (in.Message == nil) == (in.Envelope == nil) {
		return nil, errors.New("cannot read Sigstore bundle: want a message signature or a DSSE envelope")
	}
	b := &Bundle{Hint: in.Material.PublicKey.Hint, Envelope: in.Envelope}
	if in.Envelope != nil {
		return b, in.Envelope.check()
	}
	if in.Message.Digest.Algorithm != digestAlgorithm || len(in.Message.Digest.Digest) != sha256.Size || len(in.Message.Signature) == 0 {
		return nil, errors.New("cannot read Sigstore bundle: want a SHA-256 digest and a signature")
	}
	b.Message = &Message{[sha256.Size]byte(in.Message.Digest.Digest), in.Message.Signature}
	return b, nil
}

// isBundleType knows the media types of the versions whose form is read here: 0.3 has two spellings.
func isBundleType(mediaType string) bool {
	return mediaType == BundleType || strings.HasPrefix(mediaType, "application/vnd.dev.sigstore.bundle+json;version=0.")
}

// unmarshal reads exactly one JSON value, without fields that into does not have.
func unmarshal(text []byte, into any) error {
	if len(text) > maxBundle {
		return fmt.Errorf("cannot read %d bytes: the limit is %d", len(text), maxBundle)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("cannot read more than one JSON value")
	}
	return nil
}

// Marshal writes the bundle. The same bundle gives the same bytes.
func (b *Bundle) Marshal() ([]byte, error) {
	out := bundleJSON{MediaType: BundleType, Material: materialJSON{PublicKey: &publicKeyJSON{b.Hint}}, Envelope: b.Envelope}
	if b.Message != nil {
		out.Message = &messageJSON{digestJSON{digestAlgorithm, b.Message.Digest[:]}, b.Message.Signature}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("writing Sigstore bundle: %w", err)
	}
	return append(text, '\n'), nil
}

// VerifyFile checks that the key signed the file of this digest.
func (b *Bundle) VerifyFile(digest [sha256.Size]byte, key *Key) error {
	if b.Message == nil {
		return errors.New("cannot verify a file by this bundle: it signs a statement")
	}
	if b.Message.Digest != digest {
		return fmt.Errorf("the signature is for a file of sha256 %x, this one has %x", b.Message.Digest, digest)
	}
	return key.Verify(digest, b.Message.Signature)
}

// VerifyStatement checks that the key signed the statement in the bundle, and returns it.
func (b *Bundle) VerifyStatement(key *Key) (*Statement, error) {
	if b.Envelope == nil {
		return nil, errors.New("cannot find a statement in this bundle: it signs a file")
	}
	payload, err := b.Envelope.Verify(key)
	if err != nil {
		return nil, err
	}
	if b.Envelope.PayloadType != StatementType {
		return nil, fmt.Errorf("cannot read a signed payload of type %q: want %q", b.Envelope.PayloadType, StatementType)
	}
	return ParseStatement(payload)
}
