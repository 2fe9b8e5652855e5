package pe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	stdpe "debug/pe"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
)

// testStub is a small image as elf2efi makes systemd-stub: two sections, headers with some room, and a symbol table
// behind it all.
func testStub(sizeOfHeaders uint32) []byte {
	var b bytes.Buffer
	b.WriteString("MZ")
	b.Write(make([]byte, 58))
	put := func(records ...any) {
		for _, r := range records {
			if err := binary.Write(&b, binary.LittleEndian, r); err != nil {
				panic(err)
			}
		}
	}
	put(uint32(0x80))
	b.Write(make([]byte, 0x80-b.Len()))
	b.WriteString("PE\x00\x00")
	put(fileHeader{Machine: AMD64, NumberOfSections: 2, PointerToSymbolTable: sizeOfHeaders + 0x600, NumberOfSymbols: 7,
		SizeOfOptionalHeader: optionalHeaderSize + 16*directorySize, Characteristics: 0x22},
		optionalHeader{Magic: magicPE32P, SizeOfCode: 0x400, AddressOfEntryPoint: 0x1000, SectionAlignment: 0x1000, FileAlignment: 0x200,
			SizeOfImage: 0x3000, SizeOfHeaders: sizeOfHeaders, CheckSum: 0x1234, Subsystem: 10, NumberOfRvaAndSizes: 16},
		make([]byte, 16*directorySize),
		sectionHeader{Name: [8]byte([]byte(".text\x00\x00\x00")), VirtualSize: 0x3f0, VirtualAddress: 0x1000, SizeOfRawData: 0x400,
			PointerToRawData: sizeOfHeaders, Characteristics: Code | Execute | Read},
		sectionHeader{Name: [8]byte([]byte(".sbat\x00\x00\x00")), VirtualSize: 0x50, VirtualAddress: 0x2000, SizeOfRawData: 0x200,
			PointerToRawData: sizeOfHeaders + 0x400, Characteristics: Initialized | Read})
	b.Write(make([]byte, int(sizeOfHeaders)-b.Len()))
	b.Write(bytes.Repeat([]byte{0xCC}, 0x400))
	b.Write(bytes.Repeat([]byte("s"), 0x200))
	b.WriteString("symbols that nobody needs")
	return b.Bytes()
}

func Example() {
	plan, err := Append(testStub(0x400), []Addition{
		{Name: ".cmdline", Flags: Initialized | Read, Content: extent.FromBytes([]byte("quiet"))},
	})
	if err != nil {
		panic(err)
	}
	image, err := Parse(plan.NewReader(nil), plan.Size())
	if err != nil {
		panic(err)
	}
	for _, s := range image.Sections {
		fmt.Printf("%-8s %5d bytes at %#x, loaded at %#x\n", s.Name, s.DataSize(), s.Offset, s.Address)
	}
	// Output:
	// .text     1008 bytes at 0x400, loaded at 0x1000
	// .sbat       80 bytes at 0x800, loaded at 0x2000
	// .cmdline     5 bytes at 0xa00, loaded at 0x3000
}

func additions(m extent.Memory) []Addition {
	return []Addition{
		{".osrel", Initialized | Read, extent.FromBytes([]byte("ID=talos\n"))},
		{".linux", Code | Execute | Read, extent.FromBlob(m.Add(bytes.Repeat([]byte("linux"), 40_000)))},
		{".initrd", Initialized | Read, extent.FromBlob(m.Add(bytes.Repeat([]byte("init"), 99_999)))},
	}
}

// An independent reader finds everything where it should be.
func TestAppend(t *testing.T) {
	m := extent.Memory{}
	plan, err := Append(testStub(0x400), additions(m))
	if err != nil {
		t.Fatal(err)
	}
	f, err := stdpe.NewFile(plan.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	opt := f.OptionalHeader.(*stdpe.OptionalHeader64)
	if f.PointerToSymbolTable != 0 || f.NumberOfSymbols != 0 || opt.CheckSum != 0 {
		t.Error("symbols or checksum are left")
	}
	end, address := opt.SizeOfHeaders, uint32(0)
	var names []string
	for _, s := range f.Sections {
		names = append(names, s.Name)
		if s.Offset != end {
			t.Errorf("%s lies at %#x, want it just behind the section before at %#x", s.Name, s.Offset, end)
		}
		if s.VirtualAddress < address || s.VirtualAddress%4096 != 0 {
			t.Errorf("%s is loaded at %#x", s.Name, s.VirtualAddress)
		}
		end, address = s.Offset+s.Size, s.VirtualAddress+s.VirtualSize
	}
	if int64(end) != plan.Size() || opt.SizeOfImage < address || opt.SizeOfImage%4096 != 0 {
		t.Errorf("file ends at %#x of %#x, image at %#x of %#x", end, plan.Size(), address, opt.SizeOfImage)
	}
	if diff := cmp.Diff([]string{".text", ".sbat", ".osrel", ".linux", ".initrd"}, names); diff != "" {
		t.Error(diff)
	}
	for _, a := range additions(m) {
		s := f.Section(a.Name)
		want, _ := io.ReadAll(a.Content.NewReader(m))
		got := make([]byte, s.VirtualSize)
		if _, err := s.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s has other bytes", a.Name)
		}
		if a.Content.Size() >= Align && s.Offset%Align != 0 {
			t.Errorf("%s lies at %#x", a.Name, s.Offset)
		}
	}
	text, _ := f.Section(".text").Data()
	if !bytes.Equal(text[:0x400], bytes.Repeat([]byte{0xCC}, 0x400)) {
		t.Error("the stub's code changed")
	}

	// Our own reader agrees, and a second plan is the same.
	ours, err := Parse(plan.NewReader(m), plan.Size())
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := ours.Section(".linux"); !ok || s.DataSize() != 200_000 {
		t.Errorf("got %+v", s)
	}
	again, _ := Append(testStub(0x400), additions(extent.Memory{}))
	if diff := cmp.Diff(plan.Extents(), again.Extents()); diff != "" {
		t.Error(diff)
	}
	if n := plan.Literals(); n > 8192 {
		t.Errorf("%d literal bytes", n)
	}
	whole, _ := io.ReadAll(plan.NewReader(m))
	if err := iotest.TestReader(plan.NewReader(m), whole); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	m := extent.Memory{}
	patch := func(off int, b ...byte) []byte {
		stub := testStub(0x400)
		copy(stub[off:], b)
		return stub
	}
	const optional = 0x84 + fileHeaderSize
	for _, c := range []struct {
		want string
		stub []byte
		add  []Addition
	}{
		{"no MZ", []byte("ELF"), nil},
		{"no PE", patch(0x80, 'N', 'E'), nil},
		{"another kind", patch(optional, 0x0b, 0x01), nil},
		{"too early", testStub(0x400)[:0x90], nil},
		{"outside of the file", testStub(0x400)[:0x500], nil},
		{"signed", patch(optional+optionalHeaderSize+certificate*8, 0, 0x10, 0, 0, 1), additions(m)},
		{"have room for", testStub(0x200), additions(m)},
		{"new name", testStub(0x400), []Addition{{".sbat", 0, extent.New(1)}}},
		{"new name", testStub(0x400), []Addition{{".tooooolong", 0, extent.New(1)}}},
		{"cannot place", testStub(0x400), []Addition{{".big", 0, extent.New(3 << 30)}}},
		{"cannot place", testStub(0x400), []Addition{{".empty", 0, extent.New(0)}}},
	} {
		if _, err := Append(c.stub, c.add); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	stub := testStub(0x400)
	f.Add(stub)
	f.Add(stub[:0x180])
	f.Add([]byte("MZ"))
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := Parse(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, s := range i.Sections {
			if s.RawSize > 0 && int64(s.Offset)+s.DataSize() > int64(len(b)) {
				t.Errorf("section %+v of a file of %d bytes", s, len(b))
			}
		}
		if p, err := Append(b, additions(extent.Memory{})); err == nil {
			if _, err := Parse(p.NewReader(extent.Memory{}), min(p.Size(), 1)); err == nil {
				t.Error("parsed one byte")
			}
		}
	})
}
