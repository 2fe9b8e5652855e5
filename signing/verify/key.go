// Package verify checks what a factory published: signatures of files and statements, checksums, and the policy that says whose
// signature counts for which image.
//
// It is a leaf that machines may use, made of the standard library and config/strict alone. It signs nothing, goes to no network, trusts no
// transparency log, and verifies with public keys that the caller brings: a signature by a short-lived certificate (keyless) is
// refused here, since that takes Sigstore's roots of trust.
package verify

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
)

// ErrSignature is returned, wrapped, for a signature that is not the key's over the bytes in question.
var ErrSignature = errors.New("the signature is not this key's")

// minRSA is the least number of bits of an RSA key that is accepted (NIST SP 800-131A).
const minRSA = 2048

// Key is a public key, ECDSA or RSA, that signs SHA-256 digests.
type Key struct {
	public crypto.PublicKey
	hint   string
}

// ParseKey reads a public key or a certificate in PEM.
func ParseKey(text []byte) (*Key, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("cannot read public key: it is no PEM")
	}
	switch block.Type {
	case "PUBLIC KEY":
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading public key: %w", err)
		}
		return NewKey(public)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading certificate: %w", err)
		}
		return NewKey(cert.PublicKey)
	}
	return nil, fmt.Errorf("cannot verify with a PEM block %q: want a public key or a certificate", block.Type)
}

// NewKey takes a public key. Ed25519 is refused: it signs whole messages, so that verifying a disk image would hold it in memory.
func NewKey(public crypto.PublicKey) (*Key, error) {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSA {
			return nil, fmt.Errorf("cannot trust an RSA key of %d bits: want %d", bits, minRSA)
		}
	default:
		return nil, fmt.Errorf("cannot verify with a key of type %T: want ECDSA or RSA", public)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("reading public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return &Key{public, base64.StdEncoding.EncodeToString(sum[:])}, nil
}

// Hint names the key in a bundle: the base64 of the SHA-256 of its PKIX form, as cosign has it.
func (k *Key) Hint() string { return k.hint }

// Verify checks a signature over a SHA-256 digest: ECDSA in ASN.1, or RSA with PKCS #1 v1.5.
func (k *Key) Verify(digest [sha256.Size]byte, signature []byte) error {
	switch public := k.public.(type) {
	case *ecdsa.PublicKey:
		if ecdsa.VerifyASN1(public, digest[:], signature) {
			return nil
		}
	case *rsa.PublicKey:
		if rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], signature) == nil {
			return nil
		}
	}
	return ErrSignature
}
