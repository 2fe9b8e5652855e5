//go:build linux

package disk

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/installer"
	"github.com/talos-factory/talos-factory/installer/image"
	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

// TestFromContainer goes the whole way: pack, push, pull, unpack, install; and compares with the factory's image.
func TestFromContainer(t *testing.T) {
	r := newRelease(t)
	img, err := image.New(image.Content{
		Parts: r.parts, Boot: r.boot, UKI: r.uki(t, r.boot), BuildID: "0123", Platform: "metal", BIOS: true,
		Program: extent.FromBytes([]byte("\x7fELF")), Created: time.Unix(1, 0),
	}, image.Tools{
		Source: r,
		Sum: func(p *extent.Plan) ([32]byte, error) {
			hash := sha256.New()
			_, err := io.Copy(hash, p.NewReader(r))
			return [32]byte(hash.Sum(nil)), err
		},
		Gzip: func(p *extent.Plan) (*extent.Plan, error) { return p, nil }, // a registry does not look
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	pushed, err := image.Push(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/installer:v1.2.3", img, image.PushOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(pushed)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	const size = 3 << 30
	i := Install{Source: filepath.Join(unpack(t, pulled), installer.Dir), Arch: "amd64", Target: filepath.Join(t.TempDir(), "disk"), Size: size}
	if err := i.Run(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
	equal(t, i.Target, r.image(t, layout.Metal(), size, r.boot, nil), r, false)
}

func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	files := mutate.Extract(img)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		file := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(f, r)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
