package authvar

import (
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
)

// maxVariable is more than any firmware keeps in one variable.
const maxVariable = 1 << 20

// listHeader is the size of EFI_SIGNATURE_LIST before its SignatureHeader (UEFI 2.10, 32.4.1): type, three sizes.
const listHeader = 16 + 3*4

// A List is an EFI_SIGNATURE_LIST: signatures of one type and one size.
type List struct {
	Type       GUID
	Header     []byte // SignatureHeader, which no type in use has
	Signatures []Signature
}

// A Signature is an EFI_SIGNATURE_DATA: what is trusted, and who said so.
type Signature struct {
	Owner GUID
	Data  []byte
}

// CertificateList trusts cert. Certificates differ in size, so each is in a list of its own.
func CertificateList(owner GUID, cert *x509.Certificate) List {
	return List{Type: X509, Signatures: []Signature{{owner, cert.Raw}}}
}

// Certificates are those in lists, as far as lists have any.
func Certificates(lists []List) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for _, l := range lists {
		if l.Type != X509 {
			continue
		}
		for _, s := range l.Signatures {
			cert, err := x509.ParseCertificate(s.Data)
			if err != nil {
				return nil, fmt.Errorf("reading certificate of a signature list: %w", err)
			}
			certs = append(certs, cert)
		}
	}
	return certs, nil
}

// EncodeLists is the value of a variable such as db. The signatures of a list must be of one size.
func EncodeLists(lists []List) ([]byte, error) {
	var b []byte
	for _, l := range lists {
		if len(l.Signatures) == 0 {
			return nil, errors.New("cannot write a signature list without signatures")
		}
		size := len(GUID{}) + len(l.Signatures[0].Data)
		b = append(b, l.Type[:]...)
		b = binary.LittleEndian.AppendUint32(b, uint32(listHeader+len(l.Header)+size*len(l.Signatures)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(l.Header)))
		b = binary.LittleEndian.AppendUint32(b, uint32(size))
		b = append(b, l.Header...)
		for _, s := range l.Signatures {
			if len(GUID{})+len(s.Data) != size {
				return nil, errors.New("cannot write signatures of different sizes into one list")
			}
			b = append(append(b, s.Owner[:]...), s.Data...)
		}
	}
	if len(b) > maxVariable {
		return nil, fmt.Errorf("cannot write signature lists of %d bytes: at most %d", len(b), maxVariable)
	}
	return b, nil
}

// ParseLists reads the value of a variable such as db.
func ParseLists(b []byte) ([]List, error) {
	if len(b) > maxVariable {
		return nil, fmt.Errorf("cannot read signature lists of %d bytes: at most %d", len(b), maxVariable)
	}
	var lists []List
	for len(b) > 0 {
		l, size, err := parseList(b)
		if err != nil {
			return nil, fmt.Errorf("reading signature list %d: %w", len(lists)+1, err)
		}
		lists, b = append(lists, l), b[size:]
	}
	return lists, nil
}

func parseList(b []byte) (List, int, error) {
	if len(b) < listHeader {
		return List{}, 0, fmt.Errorf("cannot read a header of %d bytes: want %d", len(b), listHeader)
	}
	var l List
	copy(l.Type[:], b)
	size, header, each := uint64(binary.LittleEndian.Uint32(b[16:])), uint64(binary.LittleEndian.Uint32(b[20:])), uint64(binary.LittleEndian.Uint32(b[24:]))
	switch {
	case size > uint64(len(b)):
		return List{}, 0, fmt.Errorf("cannot read a list of %d bytes from %d", size, len(b))
	case size < listHeader+header:
		return List{}, 0, fmt.Errorf("cannot read a list of %d bytes with a header of %d", size, header)
	case each < uint64(len(GUID{})):
		return List{}, 0, fmt.Errorf("cannot read signatures of %d bytes: they begin with an owner of %d", each, len(GUID{}))
	}
	body := b[listHeader+header : size]
	if len(body) == 0 || uint64(len(body))%each != 0 {
		return List{}, 0, fmt.Errorf("cannot divide %d bytes into signatures of %d", len(body), each)
	}
	if header > 0 {
		l.Header = b[listHeader : listHeader+header]
	}
	for ; len(body) > 0; body = body[each:] {
		s := Signature{Data: body[len(GUID{}):each]}
		copy(s.Owner[:], body)
		l.Signatures = append(l.Signatures, s)
	}
	return l, int(size), nil
}
