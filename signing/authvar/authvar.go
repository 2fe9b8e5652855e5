// Package authvar writes, reads and checks updates of UEFI's time-based authenticated variables: the PK.auth, KEK.auth
// and db.auth that firmware or systemd-boot enrolls for Secure Boot.
//
// An update is an EFI_VARIABLE_AUTHENTICATION_2 descriptor (UEFI 2.10, 8.2.2) followed by the variable's new value, which for these
// variables is a row of EFI_SIGNATURE_LIST (32.4.1). Its signature is a PKCS#7 SignedData of SHA-256 and RSA without attributes.
// Bytes depend on the arguments only.
//
// It does not write to firmware, builds no certificate chains (an update is good if a given certificate itself signed it), and
// refuses what it does not know: other hashes, several signers.
package authvar

import (
	"crypto"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf16"
)

// Attributes of a variable (UEFI 2.10, 8.2).
const (
	nonVolatile   = 0x01
	bootService   = 0x02
	runtimeAccess = 0x04
	timeBasedAuth = 0x20
	AppendWrite   = 0x40 // the value is added to what is there

	attributes = nonVolatile | bootService | runtimeAccess | timeBasedAuth
)

// A Variable is what an update is for; the signature covers all of it.
type Variable struct {
	Name       string
	Vendor     GUID
	Attributes uint32
}

// The variables of Secure Boot (UEFI 2.10, 3.3 and 32.6.1).
var (
	PK  = Variable{"PK", globalVariable, attributes}    // who may change KEK
	KEK = Variable{"KEK", globalVariable, attributes}   // who may change db and dbx
	DB  = Variable{"db", securityDatabase, attributes}  // what may run
	DBX = Variable{"dbx", securityDatabase, attributes} // what must not
)

// ByName finds one of the variables of Secure Boot.
func ByName(name string) (Variable, bool) {
	for _, v := range []Variable{PK, KEK, DB, DBX} {
		if v.Name == name {
			return v, true
		}
	}
	return Variable{}, false
}

// An Update is the content of a .auth file.
type Update struct {
	Time      time.Time // in whole seconds of UTC; firmware takes no update that is not later than the last
	Signature []byte    // PKCS#7 SignedData in DER
	Value     []byte    // what the variable is set to
}

// WIN_CERTIFICATE_UEFI_GUID (UEFI 2.10, 32.2.4): length, revision, type, GUID.
const (
	timeSize        = 16
	certHeader      = 4 + 2 + 2 + 16
	certRevision    = 0x0200
	certTypeEFIGUID = 0x0ef1
)

// Sign makes the update that sets v to value, as said by the owner of key at that time.
func Sign(v Variable, at time.Time, value []byte, key crypto.Signer, cert *x509.Certificate) (*Update, error) {
	at = at.UTC().Truncate(time.Second)
	if at.Year() < 1900 || at.Year() > 9999 {
		return nil, fmt.Errorf("cannot sign variable %s at %s: EFI_TIME has the years 1900 to 9999", v.Name, at.Format(time.DateOnly))
	}
	signature, err := signPKCS7(v.signed(at, value), key, cert)
	if err != nil {
		return nil, fmt.Errorf("signing variable %s: %w", v.Name, err)
	}
	return &Update{at, signature, value}, nil
}

// Verify checks that one of certs itself signed the update, and that it is for v.
func (u *Update) Verify(v Variable, certs ...*x509.Certificate) error {
	if err := verifyPKCS7(u.Signature, v.signed(u.Time, u.Value), certs); err != nil {
		return fmt.Errorf("checking update of variable %s: %w", v.Name, err)
	}
	return nil
}

// signed is what the signature covers: name (UTF-16 without a final zero), vendor, attributes, time, value.
func (v Variable) signed(at time.Time, value []byte) []byte {
	var b []byte
	for _, c := range utf16.Encode([]rune(v.Name)) {
		b = binary.LittleEndian.AppendUint16(b, c)
	}
	b = append(b, v.Vendor[:]...)
	b = binary.LittleEndian.AppendUint32(b, v.Attributes)
	b = appendTime(b, at)
	return append(b, value...)
}

// Encode is the file's bytes.
func (u *Update) Encode() []byte {
	b := appendTime(nil, u.Time)
	b = binary.LittleEndian.AppendUint32(b, uint32(certHeader+len(u.Signature)))
	b = binary.LittleEndian.AppendUint16(b, certRevision)
	b = binary.LittleEndian.AppendUint16(b, certTypeEFIGUID)
	b = append(b, certTypePKCS7[:]...)
	b = append(b, u.Signature...)
	return append(b, u.Value...)
}

// Parse reads an update. It checks no signature: see Verify.
func Parse(b []byte) (*Update, error) {
	if len(b) > maxVariable {
		return nil, fmt.Errorf("cannot read a variable update of %d bytes: at most %d", len(b), maxVariable)
	}
	if len(b) < timeSize+certHeader {
		return nil, fmt.Errorf("cannot read a variable update of %d bytes: its header has %d", len(b), timeSize+certHeader)
	}
	at, err := parseTime(b)
	if err != nil {
		return nil, err
	}
	b = b[timeSize:]
	size := uint64(binary.LittleEndian.Uint32(b))
	revision, kind := binary.LittleEndian.Uint16(b[4:]), binary.LittleEndian.Uint16(b[6:])
	if revision != certRevision || kind != certTypeEFIGUID || GUID(b[8:certHeader]) != certTypePKCS7 {
		return nil, fmt.Errorf("cannot read a variable update with a signature of type %#x, revision %#x: want PKCS#7", kind, revision)
	}
	if size < certHeader || size > uint64(len(b)) {
		return nil, fmt.Errorf("cannot read a signature of %d bytes from %d", size, len(b))
	}
	return &Update{at, b[certHeader:size], b[size:]}, nil
}

// Lists are the signature lists that the update sets the variable to.
func (u *Update) Lists() ([]List, error) { return ParseLists(u.Value) }

// appendTime appends an EFI_TIME (UEFI 2.10, 8.3). In these variables all after the second is zero.
func appendTime(b []byte, t time.Time) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(t.Year()))
	b = append(b, byte(t.Month()), byte(t.Day()), byte(t.Hour()), byte(t.Minute()), byte(t.Second()))
	return append(b, make([]byte, timeSize-7)...)
}

func parseTime(b []byte) (time.Time, error) {
	t := time.Date(int(binary.LittleEndian.Uint16(b)), time.Month(b[2]), int(b[3]), int(b[4]), int(b[5]), int(b[6]), 0, time.UTC)
	if [timeSize]byte(appendTime(nil, t)) != [timeSize]byte(b) || t.Year() < 1900 || t.Year() > 9999 {
		return time.Time{}, errors.New("cannot read the time of a variable update: it is no time, or has fields that must be zero")
	}
	return t, nil
}
