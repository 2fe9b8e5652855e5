package authenticode

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
	oidSignedData  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidContentType = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3}
	oidDigest      = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4} // messageDigest
	oidRSA         = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}
	oidSHA256      = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	oidRSASHA256   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}
	oidIndirect    = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 2, 1, 4}  // SPC_INDIRECT_DATA
	oidPEImage     = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 2, 1, 15} // SPC_PE_IMAGE_DATA
)

// contentInfo is ContentInfo of RFC 2315, 7.
type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue `asn1:"explicit,tag:0"`
}

// signedData is SignedData of RFC 2315, 9.1, without revocation lists.
type signedData struct {
	Version          int
	DigestAlgorithms []pkix.AlgorithmIdentifier `asn1:"set"`
	Content          contentInfo
	Certificates     asn1.RawValue `asn1:"optional,tag:0"`
	Signers          []signerInfo  `asn1:"set"`
}

// signerInfo is SignerInfo of RFC 2315, 9.2.
type signerInfo struct {
	Version         int
	Signer          issuerAndSerial
	DigestAlgorithm pkix.AlgorithmIdentifier
	Attributes      asn1.RawValue `asn1:"optional,tag:0"`
	KeyAlgorithm    pkix.AlgorithmIdentifier
	Signature       []byte
	Unsigned        asn1.RawValue `asn1:"optional,tag:1"` // countersignatures of a time, say
}

type issuerAndSerial struct {
	Issuer asn1.RawValue
	Serial *big.Int
}

type attribute struct {
	Type   asn1.ObjectIdentifier
	Values []asn1.RawValue `asn1:"set"`
}

// indirectData is SpcIndirectDataContent (Authenticode, "SpcIndirectDataContent").
type indirectData struct {
	Data   peImage
	Digest digestInfo
}

// peImage is SpcAttributeTypeAndOptionalValue; its value says nothing that anybody reads.
type peImage struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue `asn1:"optional"`
}

type digestInfo struct {
	Algorithm pkix.AlgorithmIdentifier
	Digest    []byte
}

// peImageValue is SpcPeImageData: no flags, and an SpcLink to a file without a name.
func peImageValue() asn1.RawValue {
	return asn1.RawValue{FullBytes: []byte{0x30, 0x09, 0x03, 0x01, 0x00, 0xa0, 0x04, 0xa2, 0x02, 0x80, 0x00}}
}

func sha256Algorithm() pkix.AlgorithmIdentifier {
	return pkix.AlgorithmIdentifier{Algorithm: oidSHA256, Parameters: asn1.NullRawValue}
}

// signPKCS7 makes the signature of a program with that digest.
func signPKCS7(digest [sha256.Size]byte, key crypto.Signer, cert *x509.Certificate) ([]byte, error) {
	public, ok := key.Public().(*rsa.PublicKey)
	switch {
	case !ok:
		return nil, fmt.Errorf("cannot sign with a %T: firmware wants RSA", key.Public())
	case cert == nil:
		return nil, errors.New("cannot sign without the key's certificate")
	case !public.Equal(cert.PublicKey):
		return nil, fmt.Errorf("cannot sign with certificate %q: it is another key's", cert.Subject)
	}
	content, err := asn1.Marshal(indirectData{peImage{oidPEImage, peImageValue()}, digestInfo{sha256Algorithm(), digest[:]}})
	if err != nil {
		return nil, err
	}
	attributes, err := signedAttributes(content)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(attributes)
	signature, err := key.Sign(rand.Reader, sum[:], crypto.SHA256) // PKCS#1 v1.5: chance has no part in it
	if err != nil {
		return nil, fmt.Errorf("asking the key to sign: %w", err)
	}
	if err := rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], signature); err != nil {
		return nil, fmt.Errorf("checking what the key returned: %w", err)
	}
	attributes[0] = 0xa0 // [0] IMPLICIT
	signed, err := asn1.Marshal(signedData{
		Version:          1,
		DigestAlgorithms: []pkix.AlgorithmIdentifier{sha256Algorithm()},
		Content:          contentInfo{oidIndirect, explicit(content)},
		Certificates:     explicit(cert.Raw),
		Signers: []signerInfo{{
			Version:         1,
			Signer:          issuerAndSerial{asn1.RawValue{FullBytes: cert.RawIssuer}, cert.SerialNumber},
			DigestAlgorithm: sha256Algorithm(),
			Attributes:      asn1.RawValue{FullBytes: attributes},
			KeyAlgorithm:    pkix.AlgorithmIdentifier{Algorithm: oidRSA, Parameters: asn1.NullRawValue},
			Signature:       signature,
		}},
	})
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(contentInfo{oidSignedData, explicit(signed)})
}

// explicit wraps in [0].
func explicit(der []byte) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: der}
}

// signedAttributes is the SET of the attributes that are signed: what the content is and its hash. A signing time is not among them,
// so that the same program has the same signature.
func signedAttributes(content []byte) ([]byte, error) {
	kind, err := asn1.Marshal(oidIndirect)
	if err != nil {
		return nil, err
	}
	sum, err := contentDigest(content)
	if err != nil {
		return nil, err
	}
	hash, err := asn1.Marshal(sum[:])
	if err != nil {
		return nil, err
	}
	return asn1.MarshalWithParams([]attribute{
		{oidContentType, []asn1.RawValue{{FullBytes: kind}}},
		{oidDigest, []asn1.RawValue{{FullBytes: hash}}},
	}, "set")
}

// contentDigest hashes the content without its outer tag and length (RFC 2315, 9.3).
func contentDigest(der []byte) (sum [sha256.Size]byte, err error) {
	var content asn1.RawValue
	rest, err := asn1.Unmarshal(der, &content)
	if err != nil || len(rest) > 0 {
		return sum, errors.Join(errors.New("cannot read what the signature is about"), err)
	}
	return sha256.Sum256(content.Bytes), nil
}

// is: parameters are NULL or absent.
func is(a pkix.AlgorithmIdentifier, want ...asn1.ObjectIdentifier) bool {
	if len(a.Parameters.FullBytes) > 0 && !bytes.Equal(a.Parameters.FullBytes, asn1.NullBytes) {
		return false
	}
	for _, oid := range want {
		if a.Algorithm.Equal(oid) {
			return true
		}
	}
	return false
}
