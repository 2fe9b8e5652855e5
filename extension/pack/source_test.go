package pack

import (
	"archive/tar"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

var good = file{name: "rootfs/usr/local/good", text: "good"}

// archive puts a folder into a tar file.
func archive(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "archive.tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

func saved(t *testing.T, ref string, files []file) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "saved.tar")
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(file, tag, newImage(t, "amd64", files)); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSourcesAgree(t *testing.T) {
	opts := options(t)
	src := inLayout(t, newImage(t, "arm64", hello(file{name: "rootfs/usr/local/arm", text: "x"})), newImage(t, "amd64", hello(good)))
	want, err := Load(context.Background(), src, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, tarball := range []string{archive(t, src.Layout), saved(t, "example.org/hello:v1", hello(good))} {
		src, err := ParseSource(tarball)
		if err != nil || src.Tarball != tarball {
			t.Fatalf("%s is source %+v (%v)", tarball, src, err)
		}
		got, err := Load(context.Background(), src, opts)
		if err != nil {
			t.Fatal(err)
		}
		if got.Tree != want.Tree {
			t.Errorf("%s has tree %v, want %v", tarball, got.Tree, want.Tree)
		}
	}
}

func TestParseSource(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		text string
		want Source
	}{
		{dir, Source{Layout: dir}},
		{"ghcr.io/siderolabs/gvisor:v1", Source{Image: "ghcr.io/siderolabs/gvisor:v1"}},
	} {
		if got, err := ParseSource(test.text); err != nil || got != test.want {
			t.Errorf("%q is %+v (%v), want %+v", test.text, got, err, test.want)
		}
	}
	for _, text := range []string{"", "/nowhere/x.tar", "./x", "Not A Reference"} {
		if got, err := ParseSource(text); err == nil {
			t.Errorf("%q is %+v, want an error", text, got)
		}
	}
}

func TestBrokenSources(t *testing.T) {
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := newImage(t, "amd64", hello(good))
	arm := newImage(t, "arm64", hello(good))
	for _, test := range []struct {
		summary string
		src     Source
		want    string
	}{
		{"no folder", Source{Layout: "/nowhere"}, "no such file"},
		{"empty folder", Source{Layout: t.TempDir()}, "it is no OCI layout"},
		{"no JSON", Source{Layout: filepath.Dir(write("index.json", `{"manifests"`))}, "reading its index"},
		{"another architecture", inLayout(t, arm), "it has no image for linux/amd64 (there is: linux/arm64)"},
		{"two for one", inLayout(t, one, newImage(t, "amd64", hello(file{name: "rootfs/usr/local/b", text: "b"}))), "it has 2 images that could be meant"},
		{"no tar", Source{Tarball: write("x.tar", strings.Repeat("no tar at all", 100))}, "it is no tar"},
		{"an empty tar", Source{Tarball: archive(t, t.TempDir())}, "it holds no image"},
		{"a configuration of another architecture", Source{Layout: withoutPlatform(t, inLayout(t, arm).Layout)}, "it is for linux/arm64, not linux/amd64"},
		{"a link out of the layout", linkedIndex(t), "escapes"},
	} {
		_, err := Load(context.Background(), test.src, options(t))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line that says %q", test.summary, err, test.want)
		}
	}
}

func withoutPlatform(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "index.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), `"platform"`)
	_, after, ok2 := strings.Cut(rest, "}")
	if !ok || !ok2 {
		t.Fatalf("no platform in %s", text)
	}
	if err := os.WriteFile(file, []byte(strings.TrimRight(before, ", \n")+after), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func linkedIndex(t *testing.T) Source {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "index.json")); err != nil {
		t.Fatal(err)
	}
	return Source{Layout: dir}
}

// TestDamagedLayout changes one byte of each blob of a layout: manifest, configuration and layer are all held to their digests.
func TestDamagedLayout(t *testing.T) {
	img := newImage(t, "amd64", hello(good))
	blobs, err := filepath.Glob(filepath.Join(inLayout(t, img).Layout, "blobs/sha256/*"))
	if err != nil || len(blobs) != 3 {
		t.Fatalf("the layout has blobs %q (%v)", blobs, err)
	}
	for _, blob := range blobs {
		src := inLayout(t, img)
		damage(t, filepath.Join(src.Layout, "blobs/sha256", filepath.Base(blob)))
		if ext, err := Load(context.Background(), src, options(t)); err == nil {
			t.Errorf("with a damaged %s it was loaded: %+v", blob, ext)
		}
	}
}

func damage(t *testing.T, file string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil && os.IsPermission(err) {
		if err := os.Chmod(file, fs.FileMode(0o600)); err != nil {
			t.Fatal(err)
		}
		f, err = os.OpenFile(file, os.O_RDWR, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, info.Size()/2); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	b[0] ^= 0x20
	if _, err := f.WriteAt(b, info.Size()/2); err != nil {
		t.Fatal(err)
	}
}
