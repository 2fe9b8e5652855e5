package authvar

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// A GUID as it lies in memory and on disk: the first three fields are little-endian (UEFI 2.10, appendix A).
type GUID [16]byte

// What the specification calls them, and where it does.
var (
	globalVariable   = mustGUID("8be4df61-93ca-11d2-aa0d-00e098032b8c") // EFI_GLOBAL_VARIABLE, 3.3
	securityDatabase = mustGUID("d719b2cb-3d3a-4596-a3bc-dad00e67656f") // EFI_IMAGE_SECURITY_DATABASE_GUID, 32.6.1
	certTypePKCS7    = mustGUID("4aafd29d-68df-49ee-8aa9-347d375665a7") // EFI_CERT_TYPE_PKCS7_GUID, 32.2.4

	X509   = mustGUID("a5c059a1-94e4-4aa7-87b5-ab155c2bf072") // EFI_CERT_X509_GUID, 32.4.1: a certificate in DER
	SHA256 = mustGUID("c1c41626-504c-4092-aca9-41f936934328") // EFI_CERT_SHA256_GUID, 32.4.1: the hash of an image
)

// ParseGUID reads the usual text form.
func ParseGUID(text string) (GUID, error) {
	var g GUID
	digits := strings.ReplaceAll(text, "-", "")
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != len(g) || len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return g, fmt.Errorf("cannot read GUID %q", text)
	}
	binary.LittleEndian.PutUint32(g[0:], binary.BigEndian.Uint32(raw[0:]))
	binary.LittleEndian.PutUint16(g[4:], binary.BigEndian.Uint16(raw[4:]))
	binary.LittleEndian.PutUint16(g[6:], binary.BigEndian.Uint16(raw[6:]))
	copy(g[8:], raw[8:])
	return g, nil
}

func (g GUID) String() string {
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(g[0:]), binary.LittleEndian.Uint16(g[4:]),
		binary.LittleEndian.Uint16(g[6:]), g[8:10], g[10:])
}

// mustGUID is for the constants above.
func mustGUID(text string) GUID {
	g, err := ParseGUID(text)
	if err != nil {
		panic(err)
	}
	return g
}
