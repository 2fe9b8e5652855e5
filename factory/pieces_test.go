package factory

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/splice"
)

func testStore(t *testing.T) *build.Store {
	t.Helper()
	store, err := build.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// sparseDisk has a blob twice, literals and zeros; the blob is in the store.
func sparseDisk(t *testing.T, store *build.Store, size int64, literal string) *extent.Plan {
	t.Helper()
	content := make([]byte, 3<<20+12345)
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range content {
		content[i] = byte(rnd.Uint32()) >> (i >> 16 % 4)
	}
	b, err := store.Put(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	blob := extent.Blob{SHA256: b.Digest, Size: b.Size}
	p := extent.New(size)
	p.PutBytes(0, []byte(literal))
	p.PutBlob(1<<20, blob)
	p.PutBlob(size/2, blob)
	p.PutRange(size/4, blob, 1000, 1<<20)
	p.PutBytes(size-3, []byte("end"))
	return p
}

func readHash(t *testing.T, r io.Reader) (digest build.Digest, n int64) {
	t.Helper()
	h := sha256.New()
	n, err := io.Copy(h, r)
	if err != nil {
		t.Fatal(err)
	}
	return build.Digest(h.Sum(nil)), n
}

// storedBlobs are the paths of the store's blobs, without their seals.
func storedBlobs(t *testing.T, store *build.Store) (paths []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(store.Dir(), "blobs", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if !strings.HasSuffix(path, ".seal") {
			paths = append(paths, path)
		}
	}
	return paths
}

// Pieces come from the store the second time, and are made again when one of their blobs is damaged or lost.
func TestPieces(t *testing.T) {
	for name, c := range map[string]struct {
		encode func(splice.Splicer, context.Context, *extent.Plan) (*extent.Plan, error)
		decode func(io.Reader) (io.Reader, error)
	}{
		"zst": {splice.Splicer.Zstd, func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) }},
		"gz":  {splice.Splicer.Gzip, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	} {
		t.Run(name, func(t *testing.T) {
			store := testStore(t)
			s := splice.Splicer{Source: blobSource{store}, Cache: pieces{store}}
			plan := sparseDisk(t, store, 40<<20, "start")
			before := storedBlobs(t, store)
			check := func(plan *extent.Plan) build.Digest {
				t.Helper()
				out, err := c.encode(s, t.Context(), plan)
				if err != nil {
					t.Fatal(err)
				}
				r, err := c.decode(out.NewReader(blobSource{store}))
				if err != nil {
					t.Fatal(err)
				}
				got, _ := readHash(t, r)
				if want, _ := readHash(t, plan.NewReader(blobSource{store})); got != want {
					t.Error("decoded bytes are not the plan's")
				}
				digest, _ := readHash(t, out.NewReader(blobSource{store}))
				return digest
			}
			first := check(plan)
			made := storedBlobs(t, store)[:]

			read := store.BytesRead()
			other := sparseDisk(t, store, 40<<20, "other")
			if _, err := c.encode(s, t.Context(), other); err != nil {
				t.Fatal(err)
			}
			if n := store.BytesRead() - read; n != 0 {
				t.Errorf("planning with a warm cache opened blobs of %d bytes", n)
			}
			check(other)
			if after := storedBlobs(t, store); len(after) != len(made) {
				t.Errorf("a second customization stored %d more blobs", len(after)-len(made))
			}

			for i, path := range made {
				if strings.Contains(strings.Join(before, " "), path) {
					continue
				}
				if i%2 == 0 {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
					continue
				}
				if err := os.Chmod(path, 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("damaged"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if again := check(plan); again != first {
				t.Error("pieces that were made again are others")
			}
		})
	}
}

func TestPiecesError(t *testing.T) {
	store := testStore(t)
	fails := func(io.Writer) ([]byte, error) { return nil, io.ErrNoProgress }
	for range 2 { // nothing is remembered of a failure
		if _, _, err := (pieces{store}).Recall("test 1", extent.Digest{1}, fails); err != io.ErrNoProgress {
			t.Errorf("got %v, want the error of making it", err)
		}
	}
	if n := len(storedBlobs(t, store)); n != 0 {
		t.Errorf("%d blobs were stored", n)
	}
}
