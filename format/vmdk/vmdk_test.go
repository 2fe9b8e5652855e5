package vmdk_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/splice"
	"github.com/talos-factory/talos-factory/format/vmdk"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

func noise(seed uint64, n int) []byte {
	rnd, b := rand.New(rand.NewPCG(seed, 2)), make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32()) >> (i >> 16 % 4)
	}
	return b
}

// disk has grains of all kinds: of a blob, of its unaligned ranges, of several things, of literals, and none.
func disk(size int64, m extent.Memory, literal string) *extent.Plan {
	p := extent.New(size)
	blob := m.Add(noise(1, 3*mib+12345))
	p.PutBytes(0, []byte(literal))
	p.PutBytes(7*kib, make([]byte, 100))
	p.PutBytes(2*mib, make([]byte, 300*kib)) // literal zeros
	p.PutBlob(4*mib, blob)
	p.PutBytes(4*mib+blob.Size, []byte("right behind"))
	p.PutBlob(10*mib+100*kib, blob)
	p.PutRange(33*mib+512, blob, 1000, 200*kib)
	p.PutRange(36*mib, blob, 1*mib, 130*kib)
	p.PutRange(36*mib+130*kib, blob, 1*mib+130*kib, 30*kib)
	p.PutBlob(size/2/mib*mib, blob)
	p.PutBytes(size-512, []byte("end"))
	return p
}

func splicer(m extent.Memory) (splice.Splicer, *splice.Memory) {
	cache := splice.NewMemory()
	return splice.Splicer{Source: m, Cache: cache}, cache
}

func plan(t testing.TB, raw *extent.Plan, s splice.Splicer) *extent.Plan {
	t.Helper()
	p, err := vmdk.Plan(t.Context(), raw, "disk.vmdk", s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// read is the disk that a VMDK holds, read twice: by its tables, and from its start to its end by its markers.
func read(t *testing.T, image []byte) []byte {
	t.Helper()
	le := binary.LittleEndian
	header, footer := image[:512], image[len(image)-1024:]
	if got := le.Uint64(header[56:]); got != 1<<64-1 {
		t.Errorf("the header has a directory at %d", got)
	}
	size := le.Uint64(footer[12:]) * 512
	tables, stream := make([]byte, size), make([]byte, size)
	grain := func(disk []byte, at uint64) uint64 {
		lba, n := le.Uint64(image[at:]), uint64(le.Uint32(image[at+8:]))
		r, err := zlib.NewReader(bytes.NewReader(image[at+12 : at+12+n]))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil || len(b) != 64*kib {
			t.Fatalf("grain of sector %d: %d bytes, %v", lba, len(b), err)
		}
		copy(disk[lba*512:], b)
		return at + (12+n+511)/512*512
	}
	gd := le.Uint64(footer[56:]) * 512
	for i := range (size + 32*mib - 1) / (32 * mib) {
		gt := uint64(le.Uint32(image[gd+4*i:])) * 512
		if gt == 0 {
			continue
		}
		for j := range uint64(512) {
			if at := uint64(le.Uint32(image[gt+4*j:])) * 512; at != 0 {
				if lba := le.Uint64(image[at:]); lba != (i*512+j)*128 {
					t.Errorf("entry %d of table %d is sector %d", j, i, lba)
				}
				grain(tables, at)
			}
		}
	}
	var kinds []uint32
	for at := le.Uint64(header[64:]) * 512; ; {
		if le.Uint32(image[at+8:]) != 0 {
			at = grain(stream, at)
			continue
		}
		kind := le.Uint32(image[at+12:])
		kinds = append(kinds, kind)
		if at += 512 + 512*le.Uint64(image[at:]); kind == 0 {
			if at != uint64(len(image)) {
				t.Errorf("the stream ends at %d of %d", at, len(image))
			}
			break
		}
	}
	if text := fmt.Sprint(kinds); !strings.HasSuffix(text, "1 2 3 0]") {
		t.Errorf("markers are %s", text)
	}
	if !bytes.Equal(tables, stream) {
		t.Error("the tables and the markers describe different disks")
	}
	return tables
}

func TestRoundTrip(t *testing.T) {
	for _, size := range []int64{48 * mib, 80*mib + 64*kib, 130 * mib} {
		m := extent.Memory{}
		raw := disk(size, m, "start")
		s, cache := splicer(m)
		image, err := io.ReadAll(plan(t, raw, s).NewReader(cache))
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(raw.NewReader(m))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(read(t, image), want) {
			t.Errorf("%d: the disk inside is another", size)
		}
		if text := string(image[512:1024]); !strings.Contains(text, fmt.Sprintf("RW %d SPARSE \"disk.vmdk\"\n", size/512)) {
			t.Errorf("descriptor: %s", text)
		}
	}
}

func TestEmptyDisk(t *testing.T) {
	s, cache := splicer(nil)
	p := plan(t, extent.New(gib), s)
	image, err := io.ReadAll(p.NewReader(cache))
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(64*kib + 1024 + 3*512); p.Size() != want {
		t.Errorf("got %d bytes, want %d", p.Size(), want)
	}
	if le := binary.LittleEndian; le.Uint32(image[64*kib+12:]) != 2 {
		t.Error("the first marker is not the directory's")
	}
}

func TestTwice(t *testing.T) {
	m := extent.Memory{}
	var sums [][32]byte
	warm := splice.NewMemory()
	for _, s := range []splice.Splicer{
		{Source: m, Cache: splice.NewMemory(), Workers: 1},
		{Source: m, Cache: splice.NewMemory(), Workers: 8},
		{Source: m, Cache: warm},
		{Source: m, Cache: warm},
	} {
		b, err := io.ReadAll(plan(t, disk(100*mib, m, "start"), s).NewReader(s.Cache.(*splice.Memory)))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sha256.Sum256(b))
	}
	for i := range sums {
		if sums[i] != sums[0] {
			t.Errorf("run %d gave other bytes", i)
		}
	}
}

// A second customization opens no blob and costs its literals.
func TestWarm(t *testing.T) {
	m := extent.Memory{}
	s, cache := splicer(m)
	first := plan(t, disk(8*gib, m, "start"), s)
	s.Source = extent.Memory{}
	p := plan(t, disk(8*gib, m, "other"), s)
	if p.Literals() > 200*kib {
		t.Errorf("%d literals", p.Literals())
	}
	if first.Size() != p.Size() {
		t.Errorf("sizes %d and %d", first.Size(), p.Size())
	}
	head := func(p *extent.Plan) string {
		b := make([]byte, 1024)
		if _, err := p.NewReader(cache).ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if head(first) == head(p) {
		t.Error("two disks have one CID")
	}
}

// A disk with a GiB of data keeps the rule of a MiB of literals.
func TestLiterals(t *testing.T) {
	m := extent.Memory{}
	raw := extent.New(4 * gib)
	blob := m.Add(make([]byte, 8*mib))
	for off := int64(0); off < gib; off += blob.Size {
		raw.PutBlob(off*3, blob)
	}
	s, _ := splicer(m)
	if p := plan(t, raw, s); p.Literals() > mib {
		t.Errorf("%d literals", p.Literals())
	}
}

func TestRefusals(t *testing.T) {
	broken := extent.New(mib)
	broken.PutBytes(mib, []byte("x"))
	s, _ := splicer(extent.Memory{})
	for name, raw := range map[string]*extent.Plan{
		"broken": broken, "empty": extent.New(0), "part of a grain": extent.New(mib + 512),
		"missing blob": func() *extent.Plan {
			p := extent.New(mib)
			p.PutBlob(0, extent.Blob{Size: 128 * kib})
			return p
		}(),
	} {
		if _, err := vmdk.Plan(t.Context(), raw, "disk.vmdk", s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, name := range []string{"", "a\"b", "a/b"} {
		if _, err := vmdk.Plan(t.Context(), extent.New(mib), name, s); err == nil {
			t.Errorf("name %q: no error", name)
		}
	}
}

func BenchmarkWarm(b *testing.B) {
	m := extent.Memory{}
	s, _ := splicer(m)
	raw := extent.New(8 * gib)
	blob := m.Add(noise(1, 40*mib))
	raw.PutBlob(mib, blob)
	raw.PutBlob(4*gib, blob)
	plan(b, raw, s)
	for b.Loop() {
		plan(b, raw, s)
	}
}

func Example() {
	source := extent.Memory{}
	disk := extent.New(8 * gib)
	disk.PutBlob(mib, source.Add([]byte("boot loader")))

	cache := splice.NewMemory()
	image, err := vmdk.Plan(context.Background(), disk, "disk.vmdk", splice.Splicer{Source: source, Cache: cache})
	if err != nil {
		panic(err)
	}
	fmt.Println(disk.Size(), "bytes are", image.Size())
	// Output: 8589934592 bytes are 71680
}
