package authenticode

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrUnsigned is wrapped when a program has no signature at all.
var ErrUnsigned = errors.New("cannot find a signature")

// Verify returns the certificate that signed a program of size bytes, if it is one of certs or was issued by one of them. One
// signature that holds is enough.
func Verify(r io.ReaderAt, size int64, certs []*x509.Certificate) (*x509.Certificate, error) {
	p, err := parse(r, size)
	if err != nil {
		return nil, err
	}
	signatures, err := p.signatures(r)
	if err != nil {
		return nil, err
	}
	digest, err := p.digest(r)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range signatures {
		signer, err := s.verify(digest, certs)
		if err == nil {
			return signer, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// Signer is the certificate that a program's first signature says it was made with. The signature is right for the program and that
// certificate; whether to trust it is the caller's to decide.
func Signer(r io.ReaderAt, size int64) (*x509.Certificate, error) {
	p, err := parse(r, size)
	if err != nil {
		return nil, err
	}
	signatures, err := p.signatures(r)
	if err != nil {
		return nil, err
	}
	digest, err := p.digest(r)
	if err != nil {
		return nil, err
	}
	return signatures[0].check(digest, nil)
}

// signatures reads the table; there is at least one, or an error.
func (p *program) signatures(r io.ReaderAt) ([]*signature, error) {
	if p.Size == 0 {
		return nil, fmt.Errorf("%w: the program is not signed", ErrUnsigned)
	}
	table := make([]byte, p.Size)
	if n, err := r.ReadAt(table, p.Table); n < len(table) {
		return nil, fmt.Errorf("reading signatures: %w", err)
	}
	var signatures []*signature
	for len(table) > 0 {
		if len(table) < entryHeader {
			return nil, errors.New("cannot read signatures: the table ends too early")
		}
		size := int64(binary.LittleEndian.Uint32(table))
		if size < entryHeader || size > int64(len(table)) {
			return nil, fmt.Errorf("cannot read signatures: one has %d bytes", size)
		}
		if binary.LittleEndian.Uint16(table[4:]) != revision2 || binary.LittleEndian.Uint16(table[6:]) != typePKCS7 {
			return nil, errors.New("cannot read signatures: one is no PKCS#7")
		}
		s, err := parseSignature(table[entryHeader:size])
		if err != nil {
			return nil, fmt.Errorf("reading signatures: %w", err)
		}
		signatures = append(signatures, s)
		table = table[min(roundUp(size), int64(len(table))):]
	}
	return signatures, nil
}

// signature is one that was read.
type signature struct {
	signedData
	indirect indirectData
	certs    []*x509.Certificate
}

func parseSignature(der []byte) (*signature, error) {
	var outer contentInfo
	rest, err := asn1.Unmarshal(der, &outer)
	if err != nil {
		return nil, err
	}
	if !outer.Type.Equal(oidSignedData) || len(bytes.Trim(rest, "\x00")) > 0 || len(rest) >= entryAlign {
		return nil, errors.New("cannot read this as PKCS#7 signed data")
	}
	s := &signature{}
	if err := unmarshal(outer.Content.Bytes, &s.signedData); err != nil {
		return nil, err
	}
	if !s.Content.Type.Equal(oidIndirect) || len(s.Signers) != 1 {
		return nil, fmt.Errorf("cannot read a signature of content %s by %d signers", s.Content.Type, len(s.Signers))
	}
	if err := unmarshal(s.Content.Content.Bytes, &s.indirect); err != nil {
		return nil, err
	}
	s.certs, err = x509.ParseCertificates(s.Certificates.Bytes)
	return s, err
}

// unmarshal reads all of der.
func unmarshal(der []byte, into any) error {
	rest, err := asn1.Unmarshal(der, into)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("cannot read %d bytes too many", len(rest))
	}
	return err
}

// verify checks the signature, and that one of certs stands for its maker.
func (s *signature) verify(digest [sha256.Size]byte, certs []*x509.Certificate) (*x509.Certificate, error) {
	signer, err := s.check(digest, certs)
	if err != nil {
		return nil, err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range certs {
		if c.Equal(signer) {
			return signer, nil
		}
		roots.AddCert(c)
	}
	for _, c := range s.certs {
		between.AddCert(c)
	}
	_, err = signer.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: signer.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot trust the signature of %q: %w", signer.Subject, err)
	}
	return signer, nil
}

// check finds the signer's certificate, in the signature or among certs, and checks what it signed against the program's digest.
func (s *signature) check(digest [sha256.Size]byte, certs []*x509.Certificate) (*x509.Certificate, error) {
	info := s.Signers[0]
	if !is(info.DigestAlgorithm, oidSHA256) || !is(info.KeyAlgorithm, oidRSA, oidRSASHA256) || !is(s.indirect.Digest.Algorithm, oidSHA256) {
		return nil, fmt.Errorf("cannot check a signature by %s and %s: want SHA-256 and RSA", info.DigestAlgorithm.Algorithm, info.KeyAlgorithm.Algorithm)
	}
	if !s.indirect.Data.Type.Equal(oidPEImage) || !bytes.Equal(s.indirect.Digest.Digest, digest[:]) {
		return nil, fmt.Errorf("cannot accept the signature: it is about a program with digest %x, and this one's is %x", s.indirect.Digest.Digest, digest)
	}
	attributes, err := s.attributes()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(attributes)
	for _, c := range append(s.certs[:len(s.certs):len(s.certs)], certs...) {
		if info.Signer.Serial == nil || info.Signer.Serial.Cmp(c.SerialNumber) != 0 || !bytes.Equal(info.Signer.Issuer.FullBytes, c.RawIssuer) {
			continue
		}
		public, ok := c.PublicKey.(*rsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("cannot check a signature of %q, which has a %T", c.Subject, c.PublicKey)
		}
		if err := rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], info.Signature); err != nil {
			return nil, fmt.Errorf("cannot accept the signature of %q: %w", c.Subject, err)
		}
		return c, nil
	}
	return nil, errors.New("cannot find the certificate of whoever signed the program")
}

// attributes returns the attributes as they were signed: as a SET, whatever their tag (RFC 2315, 9.3). They must be about the content.
func (s *signature) attributes() ([]byte, error) {
	set := bytes.Clone(s.Signers[0].Attributes.FullBytes)
	if len(set) == 0 {
		return nil, errors.New("cannot accept a signature without attributes")
	}
	set[0] = asn1.TagSet | 0x20
	var attributes []attribute
	if rest, err := asn1.UnmarshalWithParams(set, &attributes, "set"); err != nil || len(rest) > 0 {
		return nil, errors.Join(errors.New("cannot read what was signed"), err)
	}
	sum, err := contentDigest(s.Content.Content.Bytes)
	if err != nil {
		return nil, err
	}
	kinds, digests := 0, 0
	for _, a := range attributes {
		switch {
		case a.Type.Equal(oidContentType):
			var kind asn1.ObjectIdentifier
			if len(a.Values) != 1 || unmarshal(a.Values[0].FullBytes, &kind) != nil || !kind.Equal(oidIndirect) {
				return nil, errors.New("cannot accept a signature of other content than a program")
			}
			kinds++
		case a.Type.Equal(oidDigest):
			if len(a.Values) != 1 || !bytes.Equal(a.Values[0].Bytes, sum[:]) {
				return nil, errors.New("cannot accept a signature of another program's digest")
			}
			digests++
		}
	}
	if kinds != 1 || digests != 1 {
		return nil, errors.New("cannot accept a signature that does not say what it is about")
	}
	return set, nil
}
