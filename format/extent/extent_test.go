package extent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
)

func Example() {
	store := extent.Memory{}
	kernel := store.Add([]byte("kernel"))

	file := extent.New(20)
	file.PutBytes(0, []byte("head"))
	file.PutBlob(8, kernel)
	if file.Err() != nil {
		panic(file.Err())
	}
	b, _ := io.ReadAll(file.NewReader(store))
	fmt.Printf("%q\n", b)
	fmt.Print(file)
	// Output:
	// "head\x00\x00\x00\x00kernel\x00\x00\x00\x00\x00\x00"
	//            0          4 literal
	//            8          6 6923dd1b+0
	//           20 end
}

func TestReaderIsAReader(t *testing.T) {
	m := extent.Memory{}
	p := extent.New(100)
	p.PutBytes(50, []byte("literal"))
	p.PutRange(3, m.Add([]byte("0123456789")), 2, 5)
	inner := extent.New(10)
	inner.PutBytes(9, []byte("x"))
	p.Nest(80, inner)
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 100)
	copy(want[50:], "literal")
	copy(want[3:], "23456")
	want[89] = 'x'
	if err := iotest.TestReader(p.NewReader(m), want); err != nil {
		t.Error(err)
	}
	if got := p.Literals(); got != 8 {
		t.Errorf("literals: got %d, want 8", got)
	}
}

func TestRefusals(t *testing.T) {
	for name, put := range map[string]func(p *extent.Plan) error{
		"before the start": func(p *extent.Plan) error { return p.PutBytes(-1, []byte("a")) },
		"behind the end":   func(p *extent.Plan) error { return p.PutBytes(9, []byte("ab")) },
		"huge offset":      func(p *extent.Plan) error { return p.PutBytes(1<<63-1, []byte("ab")) },
		"overlap":          func(p *extent.Plan) error { return p.PutBytes(3, []byte("abc")) },
		"overlap inside":   func(p *extent.Plan) error { return p.PutBytes(5, []byte("a")) },
		"range":            func(p *extent.Plan) error { return p.PutRange(0, extent.Blob{Size: 3}, 2, 2) },
		"negative range":   func(p *extent.Plan) error { return p.PutRange(0, extent.Blob{Size: 3}, -1, 2) },
		"nest too big":     func(p *extent.Plan) error { return p.Nest(0, extent.New(11)) },
		"nest a broken one": func(p *extent.Plan) error {
			q := extent.New(1)
			q.PutBytes(1, []byte("a"))
			return p.Nest(0, q)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := extent.New(10)
			if err := p.PutBytes(5, []byte("yy")); err != nil {
				t.Fatal(err)
			}
			if err := put(p); err == nil || p.Err() == nil {
				t.Errorf("got %v and then %v, want an error twice", err, p.Err())
			}
			if _, err := io.ReadAll(p.NewReader(nil)); err == nil {
				t.Error("a broken plan was read")
			}
		})
	}
	p := extent.FromBytes([]byte("a"))
	if err := p.PutBytes(0, []byte("b")); !errors.Is(err, extent.ErrOverlap) {
		t.Errorf("got %v, want ErrOverlap", err)
	}
}

func TestMissingAndShortBlobs(t *testing.T) {
	m := extent.Memory{}
	b := m.Add([]byte("four"))
	b.Size = 5 // the store has less than the plan was told
	if _, err := io.ReadAll(extent.FromBlob(b).NewReader(m)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("short blob: got %v, want unexpected EOF", err)
	}
	_, err := io.ReadAll(extent.FromBlob(extent.Blob{Size: 1}).NewReader(m))
	if err == nil || !strings.Contains(err.Error(), "opening blob 0000") {
		t.Errorf("missing blob: got %v", err)
	}
}

// The sparse file must equal what the reader says, whatever the alignment, and must have holes.
func TestWriteSparse(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	big := make([]byte, 3<<20+77)
	for i := range big[:1<<20] { // then zeros inside the blob
		big[i] = byte(rnd.Uint32())
	}
	big[len(big)-1] = 1
	m := extent.Memory{}
	p := extent.New(64 << 20)
	p.PutBytes(10, []byte("start"))
	p.PutBlob(5<<20+4095, m.Add(big))
	p.PutBytes(64<<20-3, []byte("end"))

	name := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.WriteSparse(context.Background(), f, m); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	want, err := io.ReadAll(p.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the sparse file differs from the plan")
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if used := st.Blocks * 512; used > 3<<20 {
		t.Errorf("file uses %d bytes of the disk, want holes", used)
	}
	if err := p.WriteSparse(context.Background(), f, m); err == nil {
		t.Error("wrote sparsely over a file with content")
	}
}

func TestWriteSparseStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := extent.FromBytes([]byte("x")).WriteSparse(ctx, f, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}

// Puts in any order give the same list.
func TestOrderDoesNotMatter(t *testing.T) {
	planned := func(order []int) string {
		p := extent.New(100)
		for _, i := range order {
			p.PutBytes(int64(i)*10, []byte{byte(i)})
		}
		return p.String()
	}
	if diff := cmp.Diff(planned([]int{0, 1, 2, 3}), planned([]int{3, 1, 0, 2})); diff != "" {
		t.Error(diff)
	}
}

// folder is a Source of files.
type folder string

func (d folder) OpenBlob(digest extent.Digest) (extent.ReaderAtCloser, error) {
	return os.Open(filepath.Join(string(d), fmt.Sprintf("%x", digest)))
}

// Blobs that are files are copied by the kernel: ranges of them land where they shall, and a short one is noticed.
func TestWriteSparseCopiesFiles(t *testing.T) {
	dir := t.TempDir()
	content := make([]byte, 5<<20)
	rand.NewChaCha8([32]byte{}).Read(content)
	m := extent.Memory{}
	blob := m.Add(content)
	stored := filepath.Join(dir, fmt.Sprintf("%x", blob.SHA256))
	if err := os.WriteFile(stored, content, 0o600); err != nil {
		t.Fatal(err)
	}
	p := extent.New(32 << 20)
	p.PutBytes(3, []byte("head"))
	p.PutRange(1<<20+5, blob, 77, 3<<20)
	p.PutBlob(16<<20, blob)
	write := func() (string, error) {
		f, err := os.CreateTemp(dir, "disk")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return f.Name(), p.WriteSparse(context.Background(), f, folder(dir))
	}
	name, err := write()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	want, err := io.ReadAll(p.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the file differs from the plan")
	}
	if err := os.Truncate(stored, 4<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := write(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a blob cut short: error %v", err)
	}
}
