package pe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/talos-factory/talos-factory/format/extent"
)

// Align is where contents of at least that size start in the file: at multiples of it, so that formats with larger
// units (qcow2 clusters, VMDK grains) can share them. A page is what addresses are rounded to at least,
// as some stubs (Debian 12) say less.
const (
	Align = 64 << 10
	page  = 4 << 10
)

// Addition is a section to be added.
type Addition struct {
	Name    string // at most 8 bytes
	Flags   uint32
	Content *extent.Plan
}

// Append plans the image of stub with sections added behind those it has, in order. Padding before a section belongs to
// the section before it, since tools that sign images disagree on the hash of bytes in no section. What lies behind
// the stub's last section, a symbol table at most, is dropped, and the checksum, which firmware ignores, is zero.
func Append(stub []byte, additions []Addition) (*extent.Plan, error) {
	i, err := Parse(bytes.NewReader(stub), int64(len(stub)))
	if err != nil {
		return nil, fmt.Errorf("reading the stub: %w", err)
	}
	if int64(i.opt.SizeOfHeaders) > int64(len(stub)) {
		return nil, errors.New("cannot add sections to an image that is shorter than its headers")
	}
	if err := i.check(additions); err != nil {
		return nil, err
	}
	end, address := i.ends()
	sections := i.sections
	for _, a := range additions {
		h, err := i.next(a, end, address)
		if err != nil {
			return nil, fmt.Errorf("adding section %s: %w", a.Name, err)
		}
		sections[len(sections)-1].stretch(h.PointerToRawData)
		sections = append(sections, h)
		end = int64(h.PointerToRawData) + int64(h.SizeOfRawData)
		address = int64(h.VirtualAddress) + int64(h.VirtualSize)
	}
	old := len(i.sections)
	i.sections = sections
	return i.plan(stub, old, additions, end, address)
}

// check refuses stubs and additions that cannot be joined.
func (i *Image) check(additions []Addition) error {
	if i.Signed {
		return errors.New("cannot add sections to a signed image: its signature would be void")
	}
	if len(i.sections) == 0 {
		return errors.New("cannot add sections to an image that has none")
	}
	last := i.sections[0]
	for _, h := range i.sections {
		if h.PointerToRawData > last.PointerToRawData {
			last = h
		}
	}
	if last != i.sections[len(i.sections)-1] {
		return errors.New("cannot add sections to an image whose last section is not last in its file")
	}
	if last.SizeOfRawData == 0 || last.VirtualSize == 0 {
		return errors.New("cannot add sections to an image whose last section is empty")
	}
	room := (int64(i.opt.SizeOfHeaders) - i.table()) / sectionHeaderSize
	if need := int64(len(i.sections) + len(additions)); need > room {
		return fmt.Errorf("cannot add %d sections: the stub's headers have room for %d in all, and it has %d",
			len(additions), room, len(i.sections))
	}
	for _, h := range i.sections {
		if h.SizeOfRawData > 0 && h.PointerToRawData < i.opt.SizeOfHeaders {
			return errors.New("cannot add sections to an image with a section inside its headers")
		}
	}
	seen := map[string]bool{}
	for _, s := range i.Sections {
		seen[s.Name] = true
	}
	for _, a := range additions {
		if a.Name == "" || len(a.Name) > 8 || seen[a.Name] {
			return fmt.Errorf("cannot add section %q: want a new name of at most 8 bytes", a.Name)
		}
		seen[a.Name] = true
	}
	return nil
}

// ends says where the image ends in the file and in memory.
func (i *Image) ends() (file, address int64) {
	for _, h := range i.sections {
		if h.SizeOfRawData > 0 {
			file = max(file, int64(h.PointerToRawData)+int64(h.SizeOfRawData))
		}
		address = max(address, int64(h.VirtualAddress)+int64(max(h.VirtualSize, h.SizeOfRawData)))
	}
	return file, address
}

// next is the header of a section behind the given ends.
func (i *Image) next(a Addition, end, address int64) (sectionHeader, error) {
	size := a.Content.Size()
	align := int64(i.opt.FileAlignment)
	h := sectionHeader{Characteristics: a.Flags}
	copy(h.Name[:], a.Name)
	raw := roundUp(size, align)
	if size >= Align {
		align = max(align, Align)
	}
	at := roundUp(end, align)
	address = roundUp(address, max(page, int64(i.opt.SectionAlignment)))
	if size == 0 || at+raw > 1<<32-1 || address+size > 1<<31 { // firmware has signed sizes in places
		return h, fmt.Errorf("cannot place %d bytes at %d", size, at)
	}
	h.VirtualSize, h.VirtualAddress = uint32(size), uint32(address)
	h.SizeOfRawData, h.PointerToRawData = uint32(raw), uint32(at)
	return h, nil
}

// stretch lets a section's padding reach to where the next begins.
func (h *sectionHeader) stretch(to uint32) {
	if h.SizeOfRawData > 0 {
		h.SizeOfRawData = to - h.PointerToRawData
	}
}

// plan puts the new headers, the stub's old sections and the additions together.
func (i *Image) plan(stub []byte, old int, additions []Addition, end, address int64) (*extent.Plan, error) {
	i.file.NumberOfSections = uint16(len(i.sections))
	i.file.PointerToSymbolTable, i.file.NumberOfSymbols = 0, 0
	i.opt.CheckSum = 0
	i.opt.SizeOfImage = uint32(roundUp(address, max(page, int64(i.opt.SectionAlignment))))
	i.opt.SizeOfCode, i.opt.SizeOfInitializedData = 0, 0
	for _, h := range i.sections {
		if h.Characteristics&Code != 0 {
			i.opt.SizeOfCode += h.SizeOfRawData
		}
		if h.Characteristics&Initialized != 0 {
			i.opt.SizeOfInitializedData += h.SizeOfRawData
		}
	}
	headers := bytes.Clone(stub[:i.opt.SizeOfHeaders])
	clear(headers[i.table():])
	var errs []error
	put := func(off int64, record any) {
		_, err := binary.Encode(headers[off:], binary.LittleEndian, record)
		errs = append(errs, err)
	}
	put(i.coff, i.file)
	put(i.optional(), i.opt)
	put(i.table(), i.sections)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("writing headers: %w", err)
	}

	p := extent.New(end)
	p.PutBytes(0, headers)
	for n, h := range i.sections[:old] {
		if size := i.Sections[n].RawSize; size > 0 { // as it was before padding was added
			p.PutBytes(int64(h.PointerToRawData), stub[h.PointerToRawData:][:size])
		}
	}
	for n, h := range i.sections[old:] {
		p.Nest(int64(h.PointerToRawData), additions[n].Content)
	}
	return p, p.Err()
}

func roundUp(n, align int64) int64 { return (n + align - 1) / align * align }
