// Package signing opens the keys that artifacts are signed with, and makes sets of them for development.
//
// A key is a crypto.Signer, and for Secure Boot the certificate that firmware knows it by. Where it lies is said by a URI:
//
//	keys/pcr-signing-key.pem, file:...   PKCS#8 in PEM, encrypted or not; the certificate beside it
//	unix:/run/signer.sock                a program that signs over gRPC (api/signer): an HSM, a token, a vault
//	pkcs11:token=T;object=K?server=S     a PKCS #11 token that "p11-kit server" serves on the unix socket S
//
// Signatures depend on the key and the digest only (RSA PKCS#1 v1.5, or ECDSA by RFC 6979), except RSA-PSS and those of an
// external signer or token with ECDSA. A key prints as what it is, never as its secret.
//
// It does not decide what is signed, checks no artifact (see signing/verify), and knows no cloud's KMS by itself:
// those go through an external signer.
package signing

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Key signs digests.
type Key interface {
	crypto.Signer
	// Certificate is nil if the key has none.
	Certificate() *x509.Certificate
}

// Errors that callers may answer with a hint.
var (
	ErrPassphrase = errors.New("cannot open an encrypted key without its passphrase")
	ErrScheme     = errors.New("cannot use keys of this kind")
)

// Options are what a URI does not say.
type Options struct {
	Passphrase Secret        // of encrypted PEM files; nil if there is none
	Timeout    time.Duration // an external signer has for one answer; 0 for two minutes, enough to touch a token
}

// A Secret does not print.
type Secret []byte

func (Secret) String() string               { return "(secret)" }
func (Secret) GoString() string             { return "(secret)" }
func (Secret) Format(f fmt.State, _ rune)   { fmt.Fprint(f, "(secret)") }
func (Secret) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// Open finds the key that uri names. ctx also ends the signatures of an external signer.
func Open(ctx context.Context, uri string, opts Options) (Key, error) {
	scheme, rest, found := strings.Cut(uri, ":")
	if !found || strings.Contains(scheme, "/") {
		return openFile(uri, opts)
	}
	switch scheme {
	case "file":
		return openFile(strings.TrimPrefix(rest, "//"), opts)
	case "unix":
		return openExternal(ctx, strings.TrimPrefix(rest, "//"), opts)
	case "pkcs11":
		return openPKCS11(ctx, rest, opts)
	case "awskms", "gcpkms", "azurekms", "hashivault", "openbao":
		return nil, fmt.Errorf("%w: %s has no client in this program", ErrScheme, scheme)
	}
	return nil, fmt.Errorf("%w: unknown scheme %q (there is: file, unix, pkcs11)", ErrScheme, scheme)
}

// Fingerprint is the SHA-256 of a public key's SubjectPublicKeyInfo.
func Fingerprint(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("encoding public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

// Algorithm names a public key's kind and size.
func Algorithm(public crypto.PublicKey) string {
	switch p := public.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", p.N.BitLen())
	case *ecdsa.PublicKey:
		return "ECDSA " + p.Curve.Params().Name
	}
	return fmt.Sprintf("%T", public)
}

// usable refuses keys too weak to sign anything, and kinds that nothing here signs with.
func usable(public crypto.PublicKey) error {
	switch p := public.(type) {
	case *rsa.PublicKey:
		if p.N.BitLen() < 2048 {
			return fmt.Errorf("cannot use a key of RSA %d: at least 2048 bits", p.N.BitLen())
		}
	case *ecdsa.PublicKey:
	default:
		return fmt.Errorf("cannot use a key of kind %T: want RSA or ECDSA", public)
	}
	return nil
}

// same says whether cert is the certificate of public.
func same(public crypto.PublicKey, cert *x509.Certificate) bool {
	comparable, ok := public.(interface{ Equal(crypto.PublicKey) bool })
	return ok && comparable.Equal(cert.PublicKey)
}
