package authvar

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
)

var (
	oidData       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidSignedData = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidSHA256     = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	oidDigest     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4} // messageDigest
	oidRSA        = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}
)

// signedData is SignedData of RFC 2315, 9.1, without revocation lists.
type signedData struct {
	Version          int
	DigestAlgorithms []pkix.AlgorithmIdentifier `asn1:"set"`
	Content          contentType
	Certificates     asn1.RawValue `asn1:"optional,tag:0"`
	Signers          []signerInfo  `asn1:"set"`
}

// contentType is a ContentInfo whose content is elsewhere.
type contentType struct{ Type asn1.ObjectIdentifier }

// signerInfo is SignerInfo of RFC 2315, 9.2. We write no attributes; others do.
type signerInfo struct {
	Version         int
	Signer          issuerAndSerial
	DigestAlgorithm pkix.AlgorithmIdentifier
	Attributes      asn1.RawValue `asn1:"optional,tag:0"`
	KeyAlgorithm    pkix.AlgorithmIdentifier
	Signature       []byte
}

type issuerAndSerial struct {
	Issuer asn1.RawValue
	Serial *big.Int
}

type attribute struct {
	Type   asn1.ObjectIdentifier
	Values []asn1.RawValue `asn1:"set"`
}

// contentInfo wraps SignedData where others write it so.
type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue `asn1:"explicit,tag:0"`
}

// signPKCS7 signs content. The SignedData is not wrapped in a ContentInfo: UEFI 2.10, 8.2.2 asks for it bare, and older
// firmware reads it only so.
func signPKCS7(content []byte, key crypto.Signer, cert *x509.Certificate) ([]byte, error) {
	public, ok := key.Public().(*rsa.PublicKey)
	switch {
	case !ok:
		return nil, fmt.Errorf("cannot sign with a %T: firmware wants RSA", key.Public())
	case cert == nil:
		return nil, errors.New("cannot sign without the key's certificate")
	case !public.Equal(cert.PublicKey):
		return nil, fmt.Errorf("cannot sign with certificate %q: it is another key's", cert.Subject)
	}
	sum := sha256.Sum256(content)
	signature, err := key.Sign(rand.Reader, sum[:], crypto.SHA256) // PKCS#1 v1.5: chance has no part in it
	if err != nil {
		return nil, err
	}
	if err := rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], signature); err != nil {
		return nil, fmt.Errorf("checking what the signer returned: %w", err)
	}
	digest := pkix.AlgorithmIdentifier{Algorithm: oidSHA256, Parameters: asn1.NullRawValue}
	return asn1.Marshal(signedData{
		Version:          1,
		DigestAlgorithms: []pkix.AlgorithmIdentifier{digest},
		Content:          contentType{oidData},
		Certificates:     asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: cert.Raw},
		Signers: []signerInfo{{
			Version:         1,
			Signer:          issuerAndSerial{asn1.RawValue{FullBytes: cert.RawIssuer}, cert.SerialNumber},
			DigestAlgorithm: digest,
			KeyAlgorithm:    pkix.AlgorithmIdentifier{Algorithm: oidRSA, Parameters: asn1.NullRawValue},
			Signature:       signature,
		}},
	})
}

// verifyPKCS7 checks that one of certs signed content.
func verifyPKCS7(der, content []byte, certs []*x509.Certificate) error {
	signed, err := parsePKCS7(der)
	if err != nil {
		return err
	}
	signer := signed.Signers[0]
	if content, err = signer.covers(content); err != nil {
		return err
	}
	for _, cert := range certs {
		public, ok := cert.PublicKey.(*rsa.PublicKey)
		if !ok || signer.Signer.Serial.Cmp(cert.SerialNumber) != 0 || !bytes.Equal(signer.Signer.Issuer.FullBytes, cert.RawIssuer) {
			continue
		}
		sum := sha256.Sum256(content)
		if err := rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], signer.Signature); err != nil {
			return fmt.Errorf("cannot accept the signature of %q: %w", cert.Subject, err)
		}
		return nil
	}
	return errors.New("cannot accept the signature: none of the certificates given made it")
}

// covers is what the signature is made of: the content itself, or attributes that have the content's hash
// (RFC 2315, 9.3: hashed as a SET, whatever their tag).
func (s signerInfo) covers(content []byte) ([]byte, error) {
	if len(s.Attributes.FullBytes) == 0 {
		return content, nil
	}
	set := bytes.Clone(s.Attributes.FullBytes)
	set[0] = asn1.TagSet | 0x20
	var attributes []attribute
	if _, err := asn1.UnmarshalWithParams(set, &attributes, "set"); err != nil {
		return nil, fmt.Errorf("reading signed attributes: %w", err)
	}
	sum := sha256.Sum256(content)
	for _, a := range attributes {
		if a.Type.Equal(oidDigest) && len(a.Values) == 1 && bytes.Equal(a.Values[0].Bytes, sum[:]) {
			return set, nil
		}
	}
	return nil, errors.New("cannot accept a signature over other content")
}

// parsePKCS7 reads SignedData as firmware accepts it: one signer, SHA-256 and RSA wherever algorithms are named.
func parsePKCS7(der []byte) (*signedData, error) {
	var wrapped contentInfo
	if rest, err := asn1.Unmarshal(der, &wrapped); err == nil && len(rest) == 0 && wrapped.Type.Equal(oidSignedData) {
		der = wrapped.Content.Bytes
	}
	var signed signedData
	rest, err := asn1.Unmarshal(der, &signed)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading PKCS#7: %w", err)
	case len(rest) > 0:
		return nil, fmt.Errorf("cannot read PKCS#7 with %d bytes behind it", len(rest))
	case !signed.Content.Type.Equal(oidData):
		return nil, fmt.Errorf("cannot accept a signature over content of type %s", signed.Content.Type)
	case len(signed.Signers) != 1 || len(signed.DigestAlgorithms) != 1:
		return nil, fmt.Errorf("cannot accept %d signers with %d hashes: want one of each", len(signed.Signers), len(signed.DigestAlgorithms))
	}
	signer := signed.Signers[0]
	switch {
	case signed.Version != 1 || signer.Version != 1 || signer.Signer.Serial == nil:
		return nil, fmt.Errorf("cannot read PKCS#7 of version %d, signer of version %d", signed.Version, signer.Version)
	case !is(signed.DigestAlgorithms[0], oidSHA256) || !is(signer.DigestAlgorithm, oidSHA256) || !is(signer.KeyAlgorithm, oidRSA):
		return nil, fmt.Errorf("cannot accept a signature by %s and %s: want SHA-256 and RSA", signer.DigestAlgorithm.Algorithm, signer.KeyAlgorithm.Algorithm)
	}
	return &signed, nil
}

// is: parameters are NULL or absent.
func is(a pkix.AlgorithmIdentifier, want asn1.ObjectIdentifier) bool {
	return a.Algorithm.Equal(want) && (len(a.Parameters.FullBytes) == 0 || bytes.Equal(a.Parameters.FullBytes, asn1.NullBytes))
}
