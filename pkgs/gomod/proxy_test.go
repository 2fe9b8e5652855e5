package gomod

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/build"
)

const depMod = "module example.com/dep\n\ngo 1.21\n"

// depFiles are the files of example.com/dep v1.0.0 by their names in the module's zip.
var depFiles = map[string]string{
	"example.com/dep@v1.0.0/dep.go": "package dep\n", "example.com/dep@v1.0.0/go.mod": depMod,
}

// h1 is the hash of go.sum: of the list of files and their sums (golang.org/x/mod/sumdb/dirhash, Hash1).
func h1(files map[string]string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%x  %s\n", sha256.Sum256([]byte(files[name])), name)
	}
	return "h1:" + base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// proxyDir is a folder with example.com/dep in the layout of a GOPROXY.
func proxyDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	at := filepath.Join(dir, "example.com/dep/@v")
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	for _, name := range slices.Sorted(maps.Keys(depFiles)) {
		f, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte(depFiles[name]))
	}
	err := errors.Join(z.Close(), os.MkdirAll(at, 0o755),
		os.WriteFile(filepath.Join(at, "v1.0.0.info"), []byte(`{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`), 0o644),
		os.WriteFile(filepath.Join(at, "v1.0.0.mod"), []byte(depMod), 0o644),
		os.WriteFile(filepath.Join(at, "v1.0.0.zip"), packed.Bytes(), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// user is a program that imports example.com/dep, pinned by sum.
func user(t *testing.T, sum string) *Modules {
	t.Helper()
	m, err := Read("user", repository(t, "-- go.mod --\nmodule example.com/user\n\ngo 1.21\n\nrequire example.com/dep v1.0.0\n-- go.sum --\n"+
		"example.com/dep v1.0.0 "+sum+"\nexample.com/dep v1.0.0/go.mod "+h1(map[string]string{"go.mod": depMod})+"\n"), []string{"example.com/dep"})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// emptyHost gives the host's go command no cache and the proxy.
func emptyHost(t *testing.T, proxy string) {
	t.Helper()
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-overlay=/nowhere") // must not matter
	t.Setenv("GOPROXY", proxy)
	t.Cleanup(func() { // module caches are read-only
		_, _ = goCommand(context.Background(), "", nil, "clean", "-modcache")
	})
}

// TestPack packs from one host and makes a tree on another that has neither cache nor proxy.
func TestPack(t *testing.T) {
	dir := proxyDir(t)
	modules := user(t, h1(depFiles))
	var first, again bytes.Buffer
	emptyHost(t, "file://"+dir)
	if err := errors.Join(Pack(t.Context(), &first, []*Modules{modules}), Pack(t.Context(), &again, []*Modules{modules})); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), again.Bytes()) {
		t.Error("packed twice: the bytes differ")
	}

	proxy := func(context.Context) (string, func(), error) {
		to := t.TempDir()
		return to, func() {}, Unpack(bytes.NewReader(first.Bytes()), to)
	}
	emptyHost(t, "off")
	if err := makeTree(t, modules, nil); err == nil {
		t.Error("a tree was made out of nothing")
	}
	if err := makeTree(t, modules, proxy); err != nil {
		t.Error(err)
	}
	emptyHost(t, "off")
	wrong := user(t, h1(map[string]string{"example.com/dep@v1.0.0/dep.go": "evil"}))
	if err := makeTree(t, wrong, proxy); err == nil || !strings.Contains(err.Error(), "checksum mismatch") {
		t.Errorf("a module that go.sum does not know: got %v", err)
	}
}

func makeTree(t *testing.T, m *Modules, proxy Proxy) error {
	t.Helper()
	tree, err := m.Tree(proxy)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := tree.Make(t.Context(), dir, func(build.Digest) (*os.File, error) { return nil, os.ErrNotExist }); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "vendor/example.com/dep/dep.go"))
	if err == nil && string(text) != "package dep\n" {
		t.Errorf("vendored %q", text)
	}
	return err
}

func TestUnpackRefuses(t *testing.T) {
	for _, h := range []tar.Header{
		{Name: "../x.mod", Typeflag: tar.TypeReg}, {Name: "/x.mod", Typeflag: tar.TypeReg}, {Name: "x.sh", Typeflag: tar.TypeReg},
		{Name: "x.mod", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := errors.Join(w.WriteHeader(&h), w.Close()); err != nil {
			t.Fatal(err)
		}
		if err := Unpack(&b, t.TempDir()); err == nil {
			t.Errorf("%s (type %c) was unpacked", h.Name, h.Typeflag)
		}
	}
}
