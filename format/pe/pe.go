// Package pe reads the headers of PE/COFF images (Microsoft "PE Format" specification) and plans images with sections
// added at the end, which is how a unified kernel image is made of a stub.
//
// It verifies and makes no signatures, reads neither imports nor symbols nor relocations, and moves no section
// that exists. Only PE32+ (64-bit) images are read.
package pe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Section characteristics (specification, "Section Flags").
const (
	Code        uint32 = 0x00000020
	Initialized uint32 = 0x00000040
	Execute     uint32 = 0x20000000
	Read        uint32 = 0x40000000
)

// Machines (specification, "Machine Types").
const (
	AMD64 uint16 = 0x8664
	ARM64 uint16 = 0xaa64
)

const (
	maxHeaders  = 64 << 10 // what is read of a file at most; real ones have 1 to 4 KiB
	magicPE32P  = 0x20b
	certificate = 4 // index of the attribute certificate table in the data directories
)

// fileHeader is "COFF File Header".
type fileHeader struct {
	Machine              uint16
	NumberOfSections     uint16
	TimeDateStamp        uint32
	PointerToSymbolTable uint32
	NumberOfSymbols      uint32
	SizeOfOptionalHeader uint16
	Characteristics      uint16
}

// optionalHeader is "Optional Header" of PE32+, without the data directories.
type optionalHeader struct {
	Magic                       uint16
	MajorLinkerVersion          uint8
	MinorLinkerVersion          uint8
	SizeOfCode                  uint32
	SizeOfInitializedData       uint32
	SizeOfUninitializedData     uint32
	AddressOfEntryPoint         uint32
	BaseOfCode                  uint32
	ImageBase                   uint64
	SectionAlignment            uint32
	FileAlignment               uint32
	MajorOperatingSystemVersion uint16
	MinorOperatingSystemVersion uint16
	MajorImageVersion           uint16
	MinorImageVersion           uint16
	MajorSubsystemVersion       uint16
	MinorSubsystemVersion       uint16
	Win32VersionValue           uint32
	SizeOfImage                 uint32
	SizeOfHeaders               uint32
	CheckSum                    uint32
	Subsystem                   uint16
	DllCharacteristics          uint16
	SizeOfStackReserve          uint64
	SizeOfStackCommit           uint64
	SizeOfHeapReserve           uint64
	SizeOfHeapCommit            uint64
	LoaderFlags                 uint32
	NumberOfRvaAndSizes         uint32
}

// sectionHeader is "Section Table".
type sectionHeader struct {
	Name                 [8]byte
	VirtualSize          uint32
	VirtualAddress       uint32
	SizeOfRawData        uint32
	PointerToRawData     uint32
	PointerToRelocations uint32
	PointerToLinenumbers uint32
	NumberOfRelocations  uint16
	NumberOfLinenumbers  uint16
	Characteristics      uint32
}

const (
	fileHeaderSize     = 20
	optionalHeaderSize = 112
	directorySize      = 8
	sectionHeaderSize  = 40
)

// Section is a part of an image.
type Section struct {
	Name    string
	Address uint32 // where it is loaded, relative to the image
	Size    uint32 // when loaded: of what it really holds
	Offset  uint32 // in the file
	RawSize uint32 // in the file: with padding
	Flags   uint32
}

// DataSize is how many bytes of the file are the section's content, without padding.
func (s Section) DataSize() int64 { return int64(min(s.Size, s.RawSize)) }

// Image is what the headers say.
type Image struct {
	Machine  uint16
	Signed   bool // has an attribute certificate table
	Sections []Section

	file         fileHeader
	opt          optionalHeader
	coff         int64           // offset of the file header
	sections     []sectionHeader // as they are
	certificates [2]uint32       // offset and size of the attribute certificate table
}

// Section returns the first section of that name.
func (i *Image) Section(name string) (Section, bool) {
	for _, s := range i.Sections {
		if s.Name == name {
			return s, true
		}
	}
	return Section{}, false
}

// offsets of the headers in the file
func (i *Image) optional() int64 { return i.coff + fileHeaderSize }
func (i *Image) table() int64    { return i.optional() + int64(i.file.SizeOfOptionalHeader) }

// Parse reads the headers of an image of size bytes. Sections are within the file, or an error says they are not.
func Parse(r io.ReaderAt, size int64) (*Image, error) {
	b := make([]byte, min(size, maxHeaders))
	if n, err := r.ReadAt(b, 0); n < len(b) {
		return nil, fmt.Errorf("reading the headers: %w", err)
	}
	i := &Image{}
	if err := i.parseHeaders(b); err != nil {
		return nil, err
	}
	for n := range int(i.file.NumberOfSections) {
		if err := i.parseSection(b, n, size); err != nil {
			return nil, fmt.Errorf("section %d: %w", n, err)
		}
	}
	return i, nil
}

func (i *Image) parseHeaders(b []byte) error {
	if len(b) < 64 || b[0] != 'M' || b[1] != 'Z' {
		return errors.New("cannot read this as PE: no MZ signature")
	}
	at := int64(binary.LittleEndian.Uint32(b[60:])) // e_lfanew
	if at > int64(len(b))-4 || !bytes.Equal(b[at:at+4], []byte("PE\x00\x00")) {
		return errors.New("cannot read this as PE: no PE signature")
	}
	i.coff = at + 4
	if err := decode(b, i.coff, &i.file); err != nil {
		return err
	}
	if err := decode(b, i.optional(), &i.opt); err != nil {
		return err
	}
	directories := int64(i.opt.NumberOfRvaAndSizes)
	if i.opt.Magic != magicPE32P || int64(i.file.SizeOfOptionalHeader) < optionalHeaderSize+directories*directorySize {
		return errors.New("cannot read this as PE32+: its optional header is of another kind or too short")
	}
	if f, s := i.opt.FileAlignment, i.opt.SectionAlignment; f == 0 || f&(f-1) != 0 || f > maxHeaders || s == 0 || s&(s-1) != 0 {
		return fmt.Errorf("cannot read alignments of %d and %d bytes", f, s)
	}
	if directories > certificate {
		if err := decode(b, i.optional()+optionalHeaderSize+certificate*directorySize, &i.certificates); err != nil {
			return err
		}
		i.Signed = i.certificates[1] != 0
	}
	i.Machine = i.file.Machine
	return nil
}

func (i *Image) parseSection(b []byte, n int, size int64) error {
	var h sectionHeader
	if err := decode(b, i.table()+int64(n)*sectionHeaderSize, &h); err != nil {
		return err
	}
	if h.SizeOfRawData > 0 && int64(h.PointerToRawData)+int64(h.SizeOfRawData) > size {
		return errors.New("lies outside of the file")
	}
	if int64(h.VirtualAddress)+int64(h.VirtualSize) > 1<<32-1 {
		return errors.New("is loaded outside of the address space")
	}
	name, _, _ := bytes.Cut(h.Name[:], []byte{0})
	i.sections = append(i.sections, h)
	i.Sections = append(i.Sections, Section{Name: string(name), Address: h.VirtualAddress, Size: h.VirtualSize,
		Offset: h.PointerToRawData, RawSize: h.SizeOfRawData, Flags: h.Characteristics})
	return nil
}

// decode reads a record at an offset of b.
func decode(b []byte, off int64, record any) error {
	if off < 0 || off > int64(len(b)) {
		return io.ErrUnexpectedEOF
	}
	if _, err := binary.Decode(b[off:], binary.LittleEndian, record); err != nil {
		return fmt.Errorf("cannot read this as PE: headers end too early")
	}
	return nil
}
