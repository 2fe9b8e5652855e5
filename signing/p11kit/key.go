// Package p11kit signs with a key in a PKCS #11 token: an HSM, a smart card, SoftHSM. The token's module is a library, which
// a static program cannot load; so "p11-kit server --provider MODULE TOKEN" loads it, and this package speaks p11-kit's remote
// protocol (version 0, p11-kit 0.23 and later) with it over a unix socket.
//
// It finds a key and signs digests by RSA PKCS#1 v1.5 or ECDSA. It makes, imports and lists no keys, and believes nothing: each
// signature is checked by whoever asked for it.
package p11kit

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// A Token is where keys are.
type Token struct {
	Socket  string
	Label   string
	PIN     []byte // nil for keys that need none
	Timeout time.Duration
}

// String leaves the PIN out.
func (t Token) String() string { return fmt.Sprintf("token %q at %s", t.Label, t.Socket) }

// GoString leaves it out too.
func (t Token) GoString() string { return t.String() }

// A Key is named by its label, or by its identifier if that is not nil.
type Key struct {
	token       Token
	label       string
	id          []byte
	Public      crypto.PublicKey
	Certificate *x509.Certificate // that in the token beside the key, or nil
}

// String names token and label.
func (k *Key) String() string { return fmt.Sprintf("key %q in %s", k.label, k.token) }

// GoString leaves the PIN out too.
func (k *Key) GoString() string { return k.String() }

// Numbers of mechanisms, pkcs11t.h.
const (
	rsaPKCS = 0x0001 // CKM_RSA_PKCS: adds the padding of PKCS#1 v1.5 to what it is given
	ecdsaP  = 0x1041 // CKM_ECDSA
)

// Find looks the key up in the token, with its public key and certificate.
func (t Token) Find(ctx context.Context, name string, id []byte) (*Key, error) {
	k := &Key{token: t, label: name, id: id}
	err := t.with(ctx, func(s *session) error {
		private, err := k.private(s)
		if err != nil {
			return err
		}
		by, name, err := k.siblings(s, private)
		if err != nil {
			return err
		}
		if err := k.readCertificate(s, by, name); err != nil {
			return err
		}
		return k.readPublic(s, by, name)
	})
	if err != nil {
		return nil, fmt.Errorf("looking for %v: %w", k, err)
	}
	return k, nil
}

func (k *Key) private(s *session) (uint64, error) {
	attribute, want := uint32(label), []byte(k.label)
	if k.id != nil {
		attribute, want = identifier, k.id
	}
	object, err := s.find(privateKey, attribute, want)
	if err == nil && object == 0 {
		err = errors.New("cannot find the private key: it is not there, or hidden without the token's PIN")
	}
	return object, err
}

// siblings is how public key and certificate are found: they have the private key's identifier, or in tokens that keep none, its
// label.
func (k *Key) siblings(s *session, private uint64) (uint32, []byte, error) {
	got, err := s.attributes(private, identifier)
	var refused moduleError
	switch {
	case err == nil && len(got[0]) > 0:
		return identifier, got[0], nil
	case err == nil, errors.As(err, &refused) && refused.code == noSuchAttribute:
		return label, []byte(k.label), nil
	}
	return 0, nil, err
}

func (k *Key) readPublic(s *session, by uint32, name []byte) error {
	object, err := s.find(publicKey, by, name)
	switch {
	case err != nil:
		return err
	case object == 0 && k.Certificate != nil:
		k.Public = k.Certificate.PublicKey
		return nil
	case object == 0:
		return errors.New("cannot find a public key or a certificate beside the private key")
	}
	if got, err := s.attributes(object, modulus, exponent); err == nil && len(got[0]) > 0 {
		e := new(big.Int).SetBytes(got[1])
		if !e.IsInt64() || e.Int64() > 1<<31-1 || e.Int64() < 3 {
			return errors.New("cannot use an RSA key of such an exponent")
		}
		k.Public = &rsa.PublicKey{N: new(big.Int).SetBytes(got[0]), E: int(e.Int64())}
		return nil
	}
	got, err := s.attributes(object, ecParams, ecPoint)
	if err != nil {
		return errors.New("cannot use the key: it is neither RSA nor EC")
	}
	k.Public, err = parseEC(got[0], got[1])
	return err
}

func parseEC(params, point []byte) (*ecdsa.PublicKey, error) {
	var name asn1.ObjectIdentifier
	var raw []byte
	if _, err := asn1.Unmarshal(params, &name); err != nil {
		return nil, fmt.Errorf("reading curve: %w", err)
	}
	var curve elliptic.Curve
	switch name.String() {
	case "1.2.840.10045.3.1.7":
		curve = elliptic.P256()
	case "1.3.132.0.34":
		curve = elliptic.P384()
	case "1.3.132.0.35":
		curve = elliptic.P521()
	default:
		return nil, fmt.Errorf("cannot use curve %s: want P-256, P-384 or P-521", name)
	}
	if len(point) == 1+2*((curve.Params().BitSize+7)/8) {
		raw = point // some modules leave out the OCTET STRING around it
	} else if rest, err := asn1.Unmarshal(point, &raw); err != nil || len(rest) > 0 {
		return nil, errors.New("cannot read the point of an EC key")
	}
	return ecdsa.ParseUncompressedPublicKey(curve, raw)
}

func (k *Key) readCertificate(s *session, by uint32, name []byte) error {
	object, err := s.find(certificate, by, name)
	if err != nil || object == 0 {
		return err
	}
	got, err := s.attributes(object, value)
	if err != nil {
		return err
	}
	k.Certificate, err = x509.ParseCertificate(got[0])
	if err != nil {
		return fmt.Errorf("reading the token's certificate: %w", err)
	}
	return nil
}

// digestInfo is what stands before a digest in PKCS#1 v1.5 (RFC 8017, 9.2, note 1).
var digestInfo = map[crypto.Hash]string{
	crypto.SHA256: "\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20",
	crypto.SHA384: "\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30",
	crypto.SHA512: "\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40",
}

// Sign signs a digest.
func (k *Key) Sign(ctx context.Context, digest []byte, hash crypto.Hash) ([]byte, error) {
	mechanism, data := uint32(ecdsaP), digest
	if _, ok := k.Public.(*rsa.PublicKey); ok {
		prefix, ok := digestInfo[hash]
		if !ok {
			return nil, fmt.Errorf("cannot sign a digest of %v: want SHA-256, SHA-384 or SHA-512", hash)
		}
		mechanism, data = rsaPKCS, append([]byte(prefix), digest...)
	}
	var signature []byte
	err := k.token.with(ctx, func(s *session) error {
		object, err := k.private(s)
		if err != nil {
			return err
		}
		if _, err := s.call(callSignInit, body(nil).ulong(s.id).u32(mechanism).noParameters().ulong(object)); err != nil {
			return err
		}
		v, err := s.call(callSign, body(nil).ulong(s.id).bytes(data).u32(4<<10))
		if err != nil {
			return err
		}
		signature = v.bytes()
		return v.err
	})
	if err == nil && mechanism == ecdsaP {
		signature, err = encodeECDSA(signature)
	}
	if err != nil {
		return nil, fmt.Errorf("signing with %v: %w", k, err)
	}
	return signature, nil
}

// encodeECDSA makes of the two halves what X.509 has.
func encodeECDSA(halves []byte) ([]byte, error) {
	n := len(halves) / 2
	if n == 0 || len(halves)%2 != 0 {
		return nil, fmt.Errorf("cannot read an ECDSA signature of %d bytes", len(halves))
	}
	return asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(halves[:n]), new(big.Int).SetBytes(halves[n:])})
}
