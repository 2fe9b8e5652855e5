package factory

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
)

func testWriter(t *testing.T) (writer, *extent.Plan) {
	t.Helper()
	store, err := build.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	blob, err := store.Put(strings.NewReader("a stored piece"))
	if err != nil {
		t.Fatal(err)
	}
	plan := extent.New(4 << 20)
	if err := errors.Join(plan.PutBytes(0, []byte("head")), plan.PutBlob(1<<20, extent.Blob{SHA256: blob.Digest, Size: blob.Size})); err != nil {
		t.Fatal(err)
	}
	return writer{store}, plan
}

func TestWriteLeavesAnUnchangedFileAlone(t *testing.T) {
	w, plan := testWriter(t)
	path := filepath.Join(t.TempDir(), "image")
	for i, want := range []bool{false, true} {
		got, err := w.write(context.Background(), path, plan)
		if err != nil {
			t.Fatal(err)
		}
		if got.Unchanged != want {
			t.Errorf("write %d: unchanged = %v, want %v", i, got.Unchanged, want)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.write(context.Background(), path, plan); err != nil || got.SHA256 != build.Sum(text) {
		t.Errorf("checksum %v, error %v; the file hashes to %v", got.SHA256, err, build.Sum(text))
	}
}

func TestWriteReplacesATouchedFile(t *testing.T) {
	w, plan := testWriter(t)
	path := filepath.Join(t.TempDir(), "image")
	if _, err := w.write(context.Background(), path, plan); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("evil"), want[4:]...), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := w.write(context.Background(), path, plan)
	if err != nil || got.Unchanged {
		t.Errorf("unchanged = %v, error %v after somebody wrote to the file", got.Unchanged, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != string(want) {
		t.Errorf("the file was not mended (error %v)", err)
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	w, _ := testWriter(t)
	missing := extent.New(1 << 20)
	if err := missing.PutBlob(0, extent.Blob{SHA256: build.Sum([]byte("nowhere")), Size: 7}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := w.write(context.Background(), filepath.Join(dir, "image"), missing); err == nil {
		t.Error("a plan with a missing blob was written")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (error %v)", left, err)
	}
}

// watchedSource fails the test when something lies in dir while an image is written there.
type watchedSource struct {
	blobSource
	t   *testing.T
	dir string
}

func (s watchedSource) OpenBlob(digest [32]byte) (extent.ReaderAtCloser, error) {
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		s.t.Errorf("a killed process would leave %v (error %v)", left, err)
	}
	return s.blobSource.OpenBlob(digest)
}

func TestKilledWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err != nil {
		t.Skipf("files without a name: %v", err)
	}
	f.Close()
	w, plan := testWriter(t)
	path := filepath.Join(dir, "image")
	if err := writeWhole(t.Context(), path, plan, watchedSource{blobSource(w), t, dir}); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "image" {
		t.Errorf("written: %v (error %v)", left, err)
	}
}
