package pkgs

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/talos-factory/talos-factory/build"
)

// TestBundle pushes a lock's packages, then fetches them when no mirror has them any more.
func TestBundle(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := strings.TrimPrefix(server.URL, "http://") + "/factory/inputs:v1"
	repo := smallArchive(t)
	lock := relock(t, repo)
	lock.Go = nil
	store := openStore(t)
	var blobs []build.Blob
	for _, f := range lock.Fetches() {
		if err := FetchInto(t.Context(), store, f); err != nil {
			t.Fatal(err)
		}
		blobs = append(blobs, f.Blob)
	}
	modules, err := store.Put(strings.NewReader(moduleTar(t)))
	if err != nil {
		t.Fatal(err)
	}
	first, err := PushBundle(t.Context(), ref, blobs, modules, store.Open, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := PushBundle(t.Context(), ref, blobs, modules, store.Open, nil)
	if err != nil || again != first {
		t.Errorf("pushed again: got %s %v, want %s", again, err, first)
	}

	clear(repo.Files)
	before := len(repo.Requests())
	lock.Fetcher.Bundle = ref
	other := openStore(t)
	for _, f := range lock.Fetches() {
		if err := FetchInto(t.Context(), other, f); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(repo.Requests()); n != before {
		t.Errorf("the mirror was asked %d times", n-before)
	}

	dir, release, err := lock.Fetcher.moduleProxy()(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "example.com/dep/@v/v1.0.0.mod")); string(text) != "module example.com/dep\n" {
		t.Errorf("go.mod out of the bundle: %q, %v", text, err)
	}
	release()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the modules were left behind: %v", err)
	}

	server.Close()
	err = FetchInto(t.Context(), openStore(t), lock.Fetches()[0])
	if err == nil || !strings.Contains(err.Error(), ErrStale.Error()) || !strings.Contains(err.Error(), "asking the bundle") {
		t.Errorf("gone from bundle and mirror: got %v", err)
	}
}

// moduleTar is what PackModules could have written.
func moduleTar(t *testing.T) string {
	t.Helper()
	const text = "module example.com/dep\n"
	var b strings.Builder
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: "example.com/dep/@v/v1.0.0.mod", Mode: 0o644, Size: int64(len(text))})
	if _, werr := io.WriteString(w, text); errors.Join(err, werr, w.Close()) != nil {
		t.Fatal(err, werr)
	}
	return b.String()
}
