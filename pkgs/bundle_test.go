package pkgs

import (
	"io"
	"log"
	"net/http/httptest"
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
	first, err := PushBundle(t.Context(), ref, blobs, store.Open, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := PushBundle(t.Context(), ref, blobs, store.Open, nil)
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

	server.Close()
	err = FetchInto(t.Context(), openStore(t), lock.Fetches()[0])
	if err == nil || !strings.Contains(err.Error(), ErrStale.Error()) || !strings.Contains(err.Error(), "asking the bundle") {
		t.Errorf("gone from bundle and mirror: got %v", err)
	}
}
