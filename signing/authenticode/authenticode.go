// Package authenticode signs EFI programs and verifies their signatures ("Windows Authenticode Portable Executable Signature
// Format" 1.0; UEFI 2.10, section 32.2): RSA with PKCS#1 v1.5 over SHA-256, which is what all firmware takes.
//
// Signing the same program with the same key twice gives the same bytes: a signature has no time in it. The program is a plan,
// of which only the headers become literal bytes; its content is read once, to be hashed. There is one signature a program; a second is
// refused. It knows nothing of revocation, and, as firmware does, takes no notice of when a certificate expires.
package authenticode

import (
	"crypto"
	"crypto/x509"
	"encoding/binary"
	"fmt"

	"github.com/talos-factory/talos-factory/format/extent"
)

// WIN_CERTIFICATE (UEFI 2.10, 32.2.4): a length, a revision, a type, and the content, up to a multiple of 8 bytes.
const (
	entryHeader = 8
	entryAlign  = 8
	revision2   = 0x0200
	typePKCS7   = 0x0002
)

// Sign plans the signed program. Its checksum, which firmware ignores, is zero.
func Sign(program *extent.Plan, src extent.Source, key crypto.Signer, cert *x509.Certificate) (*extent.Plan, error) {
	r := program.NewReader(src)
	defer r.Close()
	i, err := parse(r, program.Size())
	if err != nil {
		return nil, err
	}
	if i.Size != 0 {
		return nil, fmt.Errorf("cannot sign a program that is signed already")
	}
	digest, err := i.digest(r)
	if err != nil {
		return nil, err
	}
	signature, err := signPKCS7(digest, key, cert)
	if err != nil {
		return nil, err
	}
	headers := make([]byte, i.headers)
	if _, err := r.ReadAt(headers, 0); err != nil && int64(len(headers)) < program.Size() {
		return nil, fmt.Errorf("reading headers: %w", err)
	}
	table := certificateTable(signature)
	at := roundUp(program.Size())
	binary.LittleEndian.PutUint32(headers[i.Checksum:], 0)
	binary.LittleEndian.PutUint32(headers[i.Directory:], uint32(at))
	binary.LittleEndian.PutUint32(headers[i.Directory+4:], uint32(len(table)))

	signed := extent.New(at + int64(len(table)))
	signed.PutBytes(0, headers)
	putBehind(signed, program, i.headers)
	signed.PutBytes(at, table)
	return signed, signed.Err()
}

// putBehind places what a plan has from an offset on.
func putBehind(into, from *extent.Plan, off int64) {
	for _, e := range from.Extents() {
		skip := min(max(off-e.Off, 0), e.Len)
		if e.Literal != nil {
			into.PutBytes(e.Off+skip, e.Literal[skip:])
		} else {
			into.PutRange(e.Off+skip, e.Blob, e.BlobOff+skip, e.Len-skip)
		}
	}
}

// certificateTable is a table of one signature.
func certificateTable(signature []byte) []byte {
	table := make([]byte, roundUp(int64(entryHeader+len(signature))))
	binary.LittleEndian.PutUint32(table, uint32(len(table)))
	binary.LittleEndian.PutUint16(table[4:], revision2)
	binary.LittleEndian.PutUint16(table[6:], typePKCS7)
	copy(table[entryHeader:], signature)
	return table
}

func roundUp(n int64) int64 { return (n + entryAlign - 1) / entryAlign * entryAlign }
