package attest

import (
	"crypto"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/talos-factory/talos-factory/signing/verify"
)

// File is the bundle of a signature over the file of the digest.
func File(key crypto.Signer, digest [sha256.Size]byte) ([]byte, error) {
	public, err := verify.NewKey(key.Public())
	if err != nil {
		return nil, err
	}
	signature, err := sign(key, public, digest)
	if err != nil {
		return nil, err
	}
	b := verify.Bundle{Hint: public.Hint(), Message: &verify.Message{Digest: digest, Signature: signature}}
	return b.Marshal()
}

// Statement is the bundle of a signed in-toto statement, in a DSSE envelope.
func Statement(key crypto.Signer, statement verify.Statement) ([]byte, error) {
	public, err := verify.NewKey(key.Public())
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(statement)
	if err != nil {
		return nil, err
	}
	signature, err := sign(key, public, sha256.Sum256(verify.PAE(verify.StatementType, payload)))
	if err != nil {
		return nil, err
	}
	b := verify.Bundle{Hint: public.Hint(), Envelope: &verify.Envelope{
		Payload: payload, PayloadType: verify.StatementType, Signatures: []verify.EnvelopeSignature{{Signature: signature}},
	}}
	return b.Marshal()
}

// sign gives no source of chance: package ecdsa signs deterministically then (RFC 6979), PKCS #1 v1.5 needs none, and keys
// elsewhere bring their own. What somebody else signed is verified before it is published.
func sign(key crypto.Signer, public *verify.Key, digest [sha256.Size]byte) ([]byte, error) {
	signature, err := key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	if err := public.Verify(digest, signature); err != nil {
		return nil, fmt.Errorf("cannot use what the key signed: %w", err)
	}
	return signature, nil
}
