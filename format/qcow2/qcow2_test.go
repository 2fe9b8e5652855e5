package qcow2_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/qcow2"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

func Example() {
	raw := extent.New(1 << 30)
	raw.PutBytes(510, []byte{0x55, 0xAA})
	raw.PutBlob(1<<20, extent.Blob{SHA256: extent.Digest{0xAB}, Size: 300_000}) // nobody opens it

	image, err := qcow2.Plan(raw, qcow2.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Print(image)
	// Output:
	//            0        104 literal
	//        65536          8 literal
	//       131072         22 literal
	//       196608          8 literal
	//       262144          8 literal
	//       262272         40 literal
	//       328190          2 literal
	//       393216     300000 ab000000+0
	//       720896 end
}

func must(t testing.TB, raw *extent.Plan, cluster int64) *extent.Plan {
	t.Helper()
	p, err := qcow2.Plan(raw, qcow2.Options{ClusterSize: cluster})
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
	for _, size := range []int64{512, 1 * kib, 64*kib - 512, 64 * kib, 64*kib + 512, 3*mib + 512, 4 * mib} {
		for name, puts := range map[string][]put{
			"nothing":         nil,
			"first byte":      {{0, 1}},
			"last byte":       {{size - 1, 1}},
			"first and last":  {{0, 1}, {size - 1, 1}},
			"everything":      {{0, int(size)}},
			"ends of sectors": {{511, 1}, {size / 2, 1}, {size - 512, 1}},
			"two in turn":     {{0, int(size / 2)}, {size / 2, int(size / 2)}},
		} {
			if size <= kib && name == "ends of sectors" {
				continue
			}
			m := extent.Memory{}
			raw := extent.New(size)
			for i, p := range puts {
				if i%2 == 0 {
					raw.PutBlob(p.off, m.Add(noise(p.n)))
				} else {
					raw.PutBytes(p.off, noise(p.n))
				}
			}
			for _, cluster := range []int64{512, 8 * kib, 64 * kib, 2 * mib} {
				same(t, fmt.Sprintf("%d bytes, %s, clusters of %d", size, name, cluster), raw, cluster, m)
			}
		}
	}
}

func TestReadBackRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 60 {
		m := extent.Memory{}
		raw := extent.New(rnd.Int64N(8*mib)/512*512 + 512)
		for off := rnd.Int64N(raw.Size()); off < raw.Size(); off += rnd.Int64N(1 << rnd.IntN(22)) {
			n := min(1+rnd.Int64N(1<<rnd.IntN(18)), raw.Size()-off)
			if rnd.IntN(3) == 0 {
				raw.PutBytes(off, noise(int(n)))
			} else {
				raw.PutRange(off, m.Add(noise(int(n)+100)), 77, n)
			}
			off += n
		}
		same(t, fmt.Sprintf("round %d", round), raw, 512<<rnd.IntN(9), m)
	}
}

// same fails the test unless the image's content is the disk's, with no more clusters than needed and extents whole.
func same(t *testing.T, name string, raw *extent.Plan, cluster int64, m extent.Memory) {
	t.Helper()
	p := must(t, raw, cluster)
	want, err := io.ReadAll(raw.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	img := read(t, p)
	if !bytes.Equal(img.content(t, p, m), want) {
		t.Errorf("%s: other content", name)
	}
	need := map[int64]bool{}
	for _, e := range raw.Extents() {
		for c := e.Off / cluster; c <= (e.Off+e.Len-1)/cluster; c++ {
			need[c] = true
		}
	}
	if got := len(img.mapped); got != len(need) {
		t.Errorf("%s: %d clusters are allocated, want %d", name, got, len(need))
	}
	if diff := cmp.Diff(blobs(raw), blobs(p)); diff != "" {
		t.Errorf("%s: blob ranges (-raw +image):\n%s", name, diff)
	}
	if !reflect.DeepEqual(p.Extents(), must(t, raw, cluster).Extents()) {
		t.Errorf("%s: planned twice, and not the same", name)
	}
}

// blobs lists the blob ranges, with where they are modulo the smallest alignment that constant blobs have.
func blobs(p *extent.Plan) []string {
	var list []string
	for _, e := range p.Extents() {
		if e.Literal == nil {
			list = append(list, fmt.Sprintf("%x+%d %d at ...%d", e.Blob.SHA256[:4], e.BlobOff, e.Len, e.Off%(64*kib)))
		}
	}
	return list
}

// disk is like a disk of the product: a table at both ends, and two volumes of size bytes in two files each.
func disk(size, content int64) *extent.Plan {
	p := extent.New(size)
	p.PutBytes(0, noise(17*kib))
	p.PutBytes(size-17*kib, noise(17*kib))
	for i, start := range []int64{mib, size / 2} {
		p.PutBytes(start, noise(30*kib)) // allocation tables and folders
		p.PutBlob(start+mib, extent.Blob{SHA256: extent.Digest{byte(i), 1}, Size: content / 8})
		p.PutBlob(start+mib+content/8+64*kib, extent.Blob{SHA256: extent.Digest{byte(i), 2}, Size: content * 3 / 8})
	}
	return p
}

// TestLiterals has the figures of the tables: what an image holds in literals beyond what its disk holds.
func TestLiterals(t *testing.T) {
	for _, tt := range []struct {
		name                   string
		size, content, cluster int64
		want                   int64 // in KiB, rounded up
		width                  int64 // of the reference counts
	}{
		{"metal", 4247 * mib, 200e6, 64 * kib, 31, 16},
		{"exoscale", 10 * gib, 80e6, 8 * kib, 96, 16},
		{"exoscale, 200 MB", 10 * gib, 200e6, 8 * kib, 240, 16},
		{"exoscale, 700 MB", 10 * gib, 700e6, 8 * kib, 836, 16},
		{"exoscale, 900 MB", 10 * gib, 900e6, 8 * kib, 873, 1}, // 16 bits would not do
		{"a terabyte", 1 << 40, 200e6, 8 * kib, 240, 16},
	} {
		raw := disk(tt.size, tt.content)
		p := must(t, raw, tt.cluster)
		if got := (p.Literals() - raw.Literals() + kib - 1) / kib; got != tt.want {
			t.Errorf("%s: tables of %d KiB, want %d", tt.name, got, tt.want)
		}
		if p.Literals() > mib {
			t.Errorf("%s: %d literal bytes, want at most 1 MiB", tt.name, p.Literals())
		}
		if got := int64(1) << u32(bytesAt(t, p.NewReader(nil), 96, 4)); got != tt.width {
			t.Errorf("%s: counts of %d bits, want %d", tt.name, got, tt.width)
		}
		read(t, p)
		if diff := cmp.Diff(blobs(raw), blobs(p)); diff != "" {
			t.Errorf("%s: blob ranges (-raw +image):\n%s", tt.name, diff)
		}
		if !reflect.DeepEqual(p.Extents(), must(t, disk(tt.size, tt.content), tt.cluster).Extents()) {
			t.Errorf("%s: planned twice, and not the same", tt.name)
		}
	}
	// The tables of 1 GB alone keep to the rule too: 8 bytes and a bit for each cluster of 8 KiB.
	raw := extent.New(10 * gib)
	raw.PutBlob(mib, extent.Blob{Size: 1e9})
	if p := must(t, raw, 8*kib); p.Literals() > mib {
		t.Errorf("1 GB in 10 GiB: %d literal bytes, want at most 1 MiB", p.Literals())
	} else {
		read(t, p)
	}
}

func TestRefusals(t *testing.T) {
	broken := extent.New(512)
	broken.PutBytes(512, []byte("a"))
	for want, tt := range map[string]struct {
		raw     *extent.Plan
		cluster int64
	}{
		"planning a qcow2 image of a broken disk plan: cannot put": {broken, 0},
		"disk of 0 bytes":                           {extent.New(0), 0},
		"disk of 513 bytes: not whole sectors":      {extent.New(513), 0},
		"clusters of 256 bytes: want a power":       {extent.New(512), 256},
		"clusters of 4194304 bytes: want a power":   {extent.New(512), 4 * mib},
		"clusters of 10000 bytes: want a power":     {extent.New(512), 10000},
		"clusters of -8192 bytes: want a power":     {extent.New(512), -8192},
		"with clusters of 512 it may have 13743895": {extent.New(128*gib + 512), 512},
	} {
		if _, err := qcow2.Plan(tt.raw, qcow2.Options{ClusterSize: tt.cluster}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := qcow2.Plan(extent.New(128*gib), qcow2.Options{ClusterSize: 512}); err != nil {
		t.Error(err)
	}
	raw := extent.FromBytes(make([]byte, 512))
	cause := raw.PutBytes(0, []byte("x"))
	if _, err := qcow2.Plan(raw, qcow2.Options{}); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

func BenchmarkPlan(b *testing.B) {
	raw := disk(8*gib, 200e6)
	for _, cluster := range []int64{64 * kib, 8 * kib} {
		b.Run(fmt.Sprintf("cluster=%d", cluster), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(b, raw, cluster)
			}
		})
	}
}
