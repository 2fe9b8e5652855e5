package vhd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/vhd"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

var release = time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)

func Example() {
	raw := extent.New(1 << 30)
	raw.PutBytes(510, []byte{0x55, 0xAA})
	raw.PutBlob(1<<20, extent.Blob{SHA256: extent.Digest{0xAB}, Size: 3_000_000}) // nobody opens it

	for _, kind := range []vhd.Kind{vhd.Fixed, vhd.Dynamic} {
		image, err := vhd.Plan(raw, vhd.Options{Kind: kind, Time: time.Unix(1_700_000_000, 0)})
		if err != nil {
			panic(err)
		}
		fmt.Print(image)
	}
	// Output:
	//          510          2 literal
	//      1048576    3000000 ab000000+0
	//   1073741824        512 literal
	//   1073742336 end
	//            0        512 literal
	//          512       1024 literal
	//         1536       2048 literal
	//         3584        512 literal
	//         4606          2 literal
	//      1052672    1048576 ab000000+0
	//      2104832        512 literal
	//      2105344    1951424 ab000000+1048576
	//      4202496        512 literal
	//      4203008 end
}

func must(t testing.TB, raw *extent.Plan, kind vhd.Kind) *extent.Plan {
	t.Helper()
	p, err := vhd.Plan(raw, vhd.Options{Kind: kind, Time: release})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(b)
	return b
}

// All content must be found again, whatever the sizes.
func TestReadBack(t *testing.T) {
	type put struct {
		off int64
		n   int
	}
	for _, size := range []int64{512, 1 * mib, 2*mib - 512, 2 * mib, 2*mib + 512, 9*mib + 512, 10 * mib} {
		for name, puts := range map[string][]put{
			"nothing":        nil,
			"first byte":     {{0, 1}},
			"last byte":      {{size - 1, 1}},
			"first and last": {{0, 1}, {size - 1, 1}},
			"everything":     {{0, int(size)}},
			"two in turn":    {{0, int(size / 2)}, {size / 2, int(size / 2)}},
		} {
			m := extent.Memory{}
			raw := extent.New(size)
			for i, p := range puts {
				if i%2 == 0 {
					raw.PutRange(p.off, m.Add(noise(p.n+9)), 9, int64(p.n))
				} else {
					raw.PutBytes(p.off, noise(p.n))
				}
			}
			same(t, fmt.Sprintf("%d bytes, %s", size, name), raw, m)
		}
	}
}

func TestReadBackRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 30 {
		m := extent.Memory{}
		raw := extent.New(rnd.Int64N(20*mib)/512*512 + 512)
		for off := rnd.Int64N(raw.Size()); off < raw.Size(); off += rnd.Int64N(1 << rnd.IntN(24)) {
			n := min(1+rnd.Int64N(1<<rnd.IntN(22)), raw.Size()-off)
			if rnd.IntN(3) == 0 {
				raw.PutBytes(off, noise(int(n)))
			} else {
				raw.PutRange(off, m.Add(noise(int(n)+100)), 77, n)
			}
			off += n
		}
		same(t, fmt.Sprintf("round %d", round), raw, m)
	}
}

// same fails the test unless both kinds have the disk's content, with no more blocks than needed.
func same(t *testing.T, name string, raw *extent.Plan, m extent.Memory) {
	t.Helper()
	want, err := io.ReadAll(raw.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	fixed := must(t, raw, vhd.Fixed)
	got, err := io.ReadAll(fixed.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	n := len(got) - 512
	if n%mib != 0 || n-len(want) >= mib || n < len(want) {
		t.Fatalf("%s: a fixed disk of %d bytes", name, n)
	}
	if !bytes.Equal(got[:n], append(want, make([]byte, n-len(want))...)) {
		t.Errorf("%s: the fixed disk has other content", name)
	}
	want = want[:raw.Size()]

	dynamic := must(t, raw, vhd.Dynamic)
	img := read(t, dynamic)
	if !bytes.Equal(img.content(t, dynamic, m), want) {
		t.Errorf("%s: the dynamic disk has other content", name)
	}
	need := map[int64]bool{}
	for _, e := range raw.Extents() {
		for b := e.Off / block; b <= (e.Off+e.Len-1)/block; b++ {
			need[b] = true
		}
	}
	if len(img.blocks) != len(need) {
		t.Errorf("%s: %d blocks are allocated, want %d", name, len(img.blocks), len(need))
	}
	for kind, p := range map[vhd.Kind]*extent.Plan{vhd.Fixed: fixed, vhd.Dynamic: dynamic} {
		if !reflect.DeepEqual(p.Extents(), must(t, raw, kind).Extents()) {
			t.Errorf("%s: planned twice, and not the same", name)
		}
	}
}

func TestFooter(t *testing.T) {
	for _, tt := range []struct{ size, current, cylinders, heads, sectors int64 }{
		{512, mib, 30, 4, 17},
		{mib, mib, 30, 4, 17},
		{mib + 512, 2 * mib, 60, 4, 17},
		{40 * mib, 40 * mib, 963, 5, 17},
		{200 * mib, 200 * mib, 825, 16, 31},
		{300 * mib, 300 * mib, 609, 16, 63},
		{4247 * mib, 4247 * mib, 8628, 16, 63},
		{8 * gib, 8 * gib, 16644, 16, 63},
		{100 * gib, 100 * gib, 51400, 16, 255},
		{500 * gib, 500 * gib, 65535, 16, 255},
		{2040 * gib, 2040 * gib, 65535, 16, 255},
	} {
		p := must(t, extent.New(tt.size), vhd.Fixed)
		f := bytesAt(t, p.NewReader(nil), p.Size()-512, 512)
		summed(t, f, 64)
		if p.Size() != tt.current+512 || u64(f[40:]) != tt.current || u64(f[48:]) != tt.current {
			t.Errorf("%d: a file of %d bytes, original size %d, current size %d", tt.size, p.Size(), u64(f[40:]), u64(f[48:]))
		}
		if got, want := u32(f[56:]), tt.cylinders<<16|tt.heads<<8|tt.sectors; got != want {
			t.Errorf("%d: geometry %d/%d/%d, want %d/%d/%d", tt.size, got>>16, got>>8&0xff, got&0xff, tt.cylinders, tt.heads, tt.sectors)
		}
		want := "conectix\x00\x00\x00\x02\x00\x01\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\x32\x94\x44\x40qem2\x00\x05\x00\x03Wi2k"
		if got := string(f[:40]); got != want {
			t.Errorf("%d: footer %q, want %q", tt.size, got, want)
		}
		if u32(f[60:]) != 2 || !bytes.Equal(f[84:], make([]byte, 428)) {
			t.Errorf("%d: footer goes on % x", tt.size, f[60:])
		}
	}
}

func footer(t *testing.T, raw *extent.Plan, opts vhd.Options) []byte {
	t.Helper()
	p, err := vhd.Plan(raw, opts)
	if err != nil {
		t.Fatal(err)
	}
	return bytesAt(t, p.NewReader(nil), p.Size()-512, 512)
}

func TestTime(t *testing.T) {
	for stamp, at := range map[int64]time.Time{
		0:          {},
		1:          time.Date(2000, time.January, 1, 1, 0, 1, 0, time.FixedZone("", 3600)),
		0x32944440: release,
		1<<32 - 1:  time.Date(2136, time.February, 7, 6, 28, 15, 0, time.UTC),
	} {
		if got := u32(footer(t, extent.New(512), vhd.Options{Kind: vhd.Fixed, Time: at})[24:]); got != stamp {
			t.Errorf("%s: got %d, want %d", at, got, stamp)
		}
	}
}

// Disks that differ in anything have IDs that differ.
func TestUniqueID(t *testing.T) {
	id := func(raw *extent.Plan, opts vhd.Options) [16]byte { return [16]byte(footer(t, raw, opts)[68:84]) }
	put := func(size, off int64, b extent.Blob, blobOff int64) *extent.Plan {
		p := extent.New(size)
		p.PutRange(off, b, blobOff, 100)
		return p
	}
	blob := extent.Blob{SHA256: extent.Digest{1}, Size: 1000}
	literal := extent.New(mib)
	literal.PutBytes(0, []byte("a"))
	other := extent.New(mib)
	other.PutBytes(0, []byte("b"))
	seen := map[[16]byte]string{}
	for name, id := range map[string][16]byte{
		"disk":    id(put(mib, 0, blob, 0), vhd.Options{Kind: vhd.Fixed}),
		"dynamic": id(put(mib, 0, blob, 0), vhd.Options{Kind: vhd.Dynamic}),
		"size":    id(put(2*mib, 0, blob, 0), vhd.Options{Kind: vhd.Fixed}),
		"place":   id(put(mib, 1, blob, 0), vhd.Options{Kind: vhd.Fixed}),
		"part":    id(put(mib, 0, blob, 1), vhd.Options{Kind: vhd.Fixed}),
		"blob":    id(put(mib, 0, extent.Blob{SHA256: extent.Digest{2}, Size: 1000}, 0), vhd.Options{Kind: vhd.Fixed}),
		"literal": id(literal, vhd.Options{Kind: vhd.Fixed}),
		"other":   id(other, vhd.Options{Kind: vhd.Fixed}),
	} {
		if id[6]>>4 != 8 || id[8]>>6 != 2 {
			t.Errorf("%s: %x is no UUID of version 8", name, id)
		}
		if seen[id] != "" {
			t.Errorf("%s and %s have the same ID", name, seen[id])
		}
		seen[id] = name
	}
	given := [16]byte{1, 2, 3}
	if got := id(literal, vhd.Options{Kind: vhd.Dynamic, UniqueID: given}); got != given {
		t.Errorf("got %x, want %x", got, given)
	}
}

// disk is a disk with content bytes in it, in two files.
func disk(size, content int64) *extent.Plan {
	p := extent.New(size)
	p.PutBytes(0, noise(17*kib))
	p.PutBytes(size-17*kib, noise(17*kib))
	p.PutBlob(mib, extent.Blob{SHA256: extent.Digest{1}, Size: content / 2})
	p.PutBlob(size/2, extent.Blob{SHA256: extent.Digest{2}, Size: content / 2})
	return p
}

// TestLiterals has the figures: what an image holds in literals beyond what its disk holds.
func TestLiterals(t *testing.T) {
	for _, tt := range []struct {
		size, content int64
		want          int64 // of a dynamic one, in KiB, rounded up
	}{
		{8 * gib, 80e6, 39},
		{8 * gib, 200e6, 67},
		{8 * gib, 1e9, 258},
		{400 * gib, 200e6, 851},
	} {
		raw := disk(tt.size, tt.content)
		fixed, dynamic := must(t, raw, vhd.Fixed), must(t, raw, vhd.Dynamic)
		if got := fixed.Literals() - raw.Literals(); got != 512 {
			t.Errorf("a fixed disk adds %d bytes to the literals, want the footer", got)
		}
		if got := (dynamic.Literals() - raw.Literals() + kib - 1) / kib; got != tt.want {
			t.Errorf("%d bytes, %d of them used: tables of %d KiB, want %d", tt.size, tt.content, got, tt.want)
		}
		if dynamic.Literals() > mib {
			t.Errorf("%d literal bytes, want at most 1 MiB", dynamic.Literals())
		}
		read(t, dynamic)
		if diff := cmp.Diff(raw.Extents(), fixed.Extents()[:len(raw.Extents())]); diff != "" {
			t.Errorf("extents of the fixed disk (-raw +image):\n%s", diff)
		}
	}
}

func TestRefusals(t *testing.T) {
	broken := extent.New(512)
	cause := broken.PutBytes(512, []byte("a"))
	good := extent.New(512)
	for want, tt := range map[string]struct {
		raw  *extent.Plan
		opts vhd.Options
	}{
		"planning a VHD of a broken disk plan: cannot put": {broken, vhd.Options{Kind: vhd.Fixed}},
		"disk of 0 bytes":                            {extent.New(0), vhd.Options{Kind: vhd.Fixed}},
		"disk of 513 bytes: not whole sectors":       {extent.New(513), vhd.Options{Kind: vhd.Fixed}},
		"at most 2190433320960":                      {extent.New(2040*gib + 512), vhd.Options{Kind: vhd.Dynamic}},
		"disk type 0: want fixed (2) or dynamic (3)": {good, vhd.Options{}},
		"cannot make a VHD of 2136-02-07":            {good, vhd.Options{Kind: vhd.Fixed, Time: time.Date(2136, time.February, 7, 6, 28, 16, 0, time.UTC)}},
	} {
		_, err := vhd.Plan(tt.raw, tt.opts)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if tt.raw == broken && !errors.Is(err, cause) {
			t.Errorf("got %v, want %v", err, cause)
		}
	}
	if _, err := vhd.Plan(extent.New(2040*gib), vhd.Options{Kind: vhd.Dynamic}); err != nil {
		t.Error(err)
	}
}

func BenchmarkPlan(b *testing.B) {
	raw := disk(8*gib, 200e6)
	for name, kind := range map[string]vhd.Kind{"fixed": vhd.Fixed, "dynamic": vhd.Dynamic} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(b, raw, kind)
			}
		})
	}
}
