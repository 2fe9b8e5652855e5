package splice_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/splice"
)

// goXZ is a Tool in Go. The factory's runs the pinned xz.
type goXZ struct {
	source extent.Source
	blobs  extent.Memory
	made   int
}

func (g *goXZ) Compress(_ context.Context, contents []*extent.Plan) ([]splice.Piece, error) {
	var out []splice.Piece
	for _, content := range contents {
		g.made++
		var b bytes.Buffer
		w, err := xz.WriterConfig{DictCap: 64 << 10}.NewWriter(&b)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(w, content.NewReader(g.source))
		if err := errors.Join(err, w.Close()); err != nil {
			return nil, err
		}
		blob := g.blobs.Add(b.Bytes())
		out = append(out, splice.Piece{Raw: content.Size(), Size: blob.Size, Blob: blob})
	}
	return out, nil
}

// codec is one of the formats, and a foreign decoder of it.
type codec struct {
	name   string
	encode func(context.Context, splice.Splicer, *extent.Plan) (*extent.Plan, error)
	decode func(io.Reader) (io.Reader, error)
}

func codecs() []codec {
	return []codec{
		{"zst", func(ctx context.Context, s splice.Splicer, p *extent.Plan) (*extent.Plan, error) {
			return s.Zstd(ctx, p)
		},
			func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) }},
		{"gz", func(ctx context.Context, s splice.Splicer, p *extent.Plan) (*extent.Plan, error) {
			return s.Gzip(ctx, p)
		},
			func(r io.Reader) (io.Reader, error) {
				g, err := gzip.NewReader(r)
				if err == nil {
					g.Multistream(false) // so that a second member would be missed
				}
				return g, err
			}},
		{"xz", func(ctx context.Context, s splice.Splicer, p *extent.Plan) (*extent.Plan, error) {
			tool := &goXZ{source: s.Source, blobs: extent.Memory{}}
			out, err := splice.XZ(ctx, p, tool)
			if err != nil {
				return nil, err
			}
			b, err := io.ReadAll(out.NewReader(tool.blobs)) // the test's caller knows only the cache
			return extent.FromBytes(b), err
		}, func(r io.Reader) (io.Reader, error) { return xz.NewReader(r) }},
	}
}

func random(seed uint64, n int) []byte {
	rnd, b := rand.New(rand.NewPCG(seed, 1)), make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32()) >> (i >> 16 % 4) // parts of it compress
	}
	return b
}

// disk has every kind of extent: a blob twice, in whole and in parts that touch or do not, literals alone
// and in clusters, short and long runs of zeros.
func disk(m extent.Memory, literal string) *extent.Plan {
	big, small := m.Add(random(1, 3<<20+777)), m.Add([]byte("a small blob"))
	p := extent.New(36<<20 + 5)
	p.PutBytes(0, []byte(literal))
	p.PutBytes(1000, []byte("after a short run of zeros"))
	p.PutBlob(64<<10, big)
	p.PutBlob(64<<10+big.Size, small)
	p.PutRange(8<<20, big, 100, 2<<20)
	p.PutRange(8<<20+2<<20, big, 100+2<<20, 300)
	p.PutBlob(20<<20+1, big)
	p.PutBytes(36<<20, []byte("end"))
	return p
}

func splicer(m extent.Memory) (splice.Splicer, *splice.Memory) {
	cache := splice.NewMemory()
	return splice.Splicer{Source: m, Cache: cache}, cache
}

func sum(t testing.TB, r io.Reader) (digest [32]byte, n int64) {
	t.Helper()
	h := sha256.New()
	n, err := io.Copy(h, r)
	if err != nil {
		t.Fatal(err)
	}
	return [32]byte(h.Sum(nil)), n
}

func TestRoundTrip(t *testing.T) {
	for _, c := range codecs() {
		t.Run(c.name, func(t *testing.T) {
			m := extent.Memory{}
			p := disk(m, "start")
			s, cache := splicer(m)
			out, err := c.encode(t.Context(), s, p)
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.decode(out.NewReader(cache))
			if err != nil {
				t.Fatal(err)
			}
			got, n := sum(t, r)
			want, size := sum(t, p.NewReader(m))
			if got != want {
				t.Errorf("decoded %d bytes are not the %d of the plan", n, size)
			}
			if out.Size() > 12<<20 {
				t.Errorf("%d bytes compressed to %d", p.Size(), out.Size())
			}
			t.Logf("%d bytes in %d extents, %d literal", out.Size(), len(out.Extents()), out.Literals())
		})
	}
}

func TestEmpty(t *testing.T) {
	for _, c := range codecs() {
		s, cache := splicer(nil)
		out, err := c.encode(t.Context(), s, extent.New(0))
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.decode(out.NewReader(cache))
		if err != nil {
			t.Fatal(err)
		}
		if _, n := sum(t, r); n != 0 || out.Size() == 0 {
			t.Errorf("%s: nothing became %d bytes and then %d", c.name, out.Size(), n)
		}
	}
}

// Neither the number of CPUs nor what the cache had before changes a byte.
func TestTwice(t *testing.T) {
	for _, c := range codecs() {
		m := extent.Memory{}
		var sums [][32]byte
		warm := splice.NewMemory()
		splicers := []splice.Splicer{
			{Source: m, Cache: splice.NewMemory(), Workers: 1},
			{Source: m, Cache: splice.NewMemory(), Workers: 8},
			{Source: m, Cache: warm},
			{Source: m, Cache: warm},
		}
		if c.name == "xz" { // which knows neither caches nor workers
			splicers = splicers[2:]
		}
		for _, s := range splicers {
			out, err := c.encode(t.Context(), s, disk(m, "start"))
			if err != nil {
				t.Fatal(err)
			}
			digest, _ := sum(t, out.NewReader(s.Cache.(*splice.Memory)))
			sums = append(sums, digest)
		}
		for i, digest := range sums {
			if digest != sums[0] {
				t.Errorf("%s: run %d gave other bytes", c.name, i)
			}
		}
	}
}

// counting counts what a cache has to make.
type counting struct {
	splice.Cache
	made []string
}

func (c *counting) Recall(transform string, in extent.Digest, make func(io.Writer) ([]byte, error)) (extent.Blob, []byte, error) {
	return c.Cache.Recall(transform, in, func(w io.Writer) ([]byte, error) {
		c.made = append(c.made, transform)
		return make(w)
	})
}

// Another literal costs a few literal bytes: no blob is opened.
func TestWarm(t *testing.T) {
	for _, c := range codecs()[:2] {
		m := extent.Memory{}
		s, cache := splicer(m)
		if _, err := c.encode(t.Context(), s, disk(m, "start")); err != nil {
			t.Fatal(err)
		}
		var reported []string
		made := &counting{Cache: cache}
		s = splice.Splicer{Source: extent.Memory{}, Cache: made, Progress: func(done, total int64) {
			reported = append(reported, fmt.Sprint(done == total))
		}}
		p := disk(m, "other")
		p.PutBytes(30<<20, []byte("new")) // other zeros, too
		out, err := c.encode(t.Context(), s, p)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.decode(out.NewReader(cache))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := sum(t, r)
		if want, _ := sum(t, p.NewReader(m)); got != want {
			t.Error("decoded bytes are not the plan's")
		}
		if len(made.made) > 6 {
			t.Errorf("%s: made anew: %v", c.name, made.made)
		}
		if out.Literals() > 40<<10 {
			t.Errorf("%s: %d literals", c.name, out.Literals())
		}
		if n := len(reported); n == 0 || reported[n-1] != "true" || reported[0] != "false" {
			t.Errorf("%s: progress: %v", c.name, reported)
		}
	}
}

// What is compressed of a plan at the limit of literals is below it.
func TestLiterals(t *testing.T) {
	for _, c := range codecs()[:2] {
		s, _ := splicer(nil)
		p := extent.New(5 << 30)
		noise := rand.New(rand.NewPCG(7, 7))
		for i := range int64(256) {
			b := make([]byte, 4096)
			for j := range b {
				b[j] = byte(noise.Uint32())
			}
			p.PutBytes(i*(17<<20)+i*513, b)
		}
		out, err := c.encode(t.Context(), s, p)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d literals of %d, %d bytes in %d extents", c.name, out.Literals(), p.Literals(), out.Size(), len(out.Extents()))
		if out.Literals() > p.Literals() {
			t.Errorf("%s: %d literals, want at most %d", c.name, out.Literals(), p.Literals())
		}
	}
}

func TestErrors(t *testing.T) {
	broken := extent.New(1)
	broken.PutBytes(1, []byte("x"))
	missing := extent.FromBlob(extent.Blob{Size: 3 << 20})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := extent.Memory{}
	for _, c := range codecs()[:2] {
		s, _ := splicer(m)
		if _, err := c.encode(t.Context(), s, broken); err == nil {
			t.Errorf("%s: compressed a broken plan", c.name)
		}
		if _, err := c.encode(t.Context(), s, missing); err == nil {
			t.Errorf("%s: compressed a missing blob", c.name)
		}
		if _, err := c.encode(ctx, s, disk(m, "")); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want canceled", c.name, err)
		}
	}
}

// XZ asks the tool once for equal contents.
func TestXZAsksOnce(t *testing.T) {
	m := extent.Memory{}
	blob := m.Add(random(3, 1<<20))
	p := extent.New(10 << 20)
	p.PutBlob(0, blob)
	p.PutBlob(2<<20, blob)
	p.PutBlob(4<<20, blob)
	tool := &goXZ{source: m, blobs: extent.Memory{}}
	out, err := splice.XZ(t.Context(), p, tool)
	if err != nil {
		t.Fatal(err)
	}
	if tool.made > 3 { // the blob, 1 MiB and 4 MiB of zeros
		t.Errorf("the tool ran %d times", tool.made)
	}
	if out.Literals() != 0 {
		t.Errorf("%d literals", out.Literals())
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte{1, 0, 10, 2, 0, 200, 3, 9, 9, 4, 0, 0})
	f.Add([]byte{0, 255, 255, 1, 128, 0, 2, 1, 0, 4, 1, 1, 3, 255, 255})
	m, blob := extent.Memory{}, random(9, 1<<20+4097)
	s, cache := splicer(m) // one for all, so that what was made for one plan is used for others
	f.Fuzz(func(t *testing.T, program []byte) {
		p, want := planned(m, blob, program)
		for _, c := range codecs()[:2] {
			out, err := c.encode(t.Context(), s, p)
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.decode(out.NewReader(cache))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: %s", c.name, cmp.Diff(len(want), len(got)))
			}
		}
	})
}

// planned makes a plan of three bytes an extent - its kind and its length - and the file that it is.
func planned(m extent.Memory, blob, program []byte) (*extent.Plan, []byte) {
	stored := m.Add(blob)
	p, want := extent.New(16<<20), []byte(nil)
	for i := 0; len(program) >= 3 && i < 8; i++ {
		off, n := int64(len(want)), (int(program[1])<<8|int(program[2]))*3
		part := blob[:n]
		switch program[0] % 5 {
		case 0:
			part = make([]byte, n)
		case 1:
			p.PutBytes(off, part)
		case 2:
			p.PutRange(off, stored, 0, int64(n))
		case 3:
			part = blob[len(blob)-n:]
			p.PutRange(off, stored, int64(len(blob)-n), int64(n))
		case 4:
			part = blob
			p.PutBlob(off, stored)
		}
		want, program = append(want, part...), program[3:]
	}
	exact := extent.New(int64(len(want)))
	for _, e := range p.Extents() {
		if e.Literal != nil {
			exact.PutBytes(e.Off, e.Literal)
		} else {
			exact.PutRange(e.Off, e.Blob, e.BlobOff, e.Len)
		}
	}
	return exact, want
}

func BenchmarkWarm(b *testing.B) {
	for _, c := range codecs()[:2] {
		b.Run(c.name, func(b *testing.B) {
			m := extent.Memory{}
			s, _ := splicer(m)
			p := extent.New(4 << 30)
			blob := m.Add(random(1, 40<<20))
			for i := range int64(2) {
				p.PutBlob(1<<20+i<<30, blob)
				for j := range int64(64) {
					p.PutBytes(2<<30+i<<29+j*100000, random(uint64(j), 4096))
				}
			}
			if _, err := c.encode(b.Context(), s, p); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				out, err := c.encode(b.Context(), s, p)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(out.Size()), "bytes")
			}
		})
	}
}

func Example() {
	source := extent.Memory{}
	plan := extent.New(1 << 30)
	plan.PutBlob(64<<10, source.Add(bytes.Repeat([]byte("kernel"), 1e6)))

	cache := splice.NewMemory()
	compressed, err := splice.Splicer{Source: source, Cache: cache}.Gzip(context.Background(), plan)
	if err != nil {
		panic(err)
	}
	r, err := gzip.NewReader(compressed.NewReader(cache))
	if err != nil {
		panic(err)
	}
	n, err := io.Copy(io.Discard, r)
	fmt.Println(n, err)
	// Output: 1073741824 <nil>
}
