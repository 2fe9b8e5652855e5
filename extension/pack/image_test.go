package pack

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/talos-factory/talos-factory/build"
)

const helloManifest = `version: v1alpha1
metadata:
  name: hello
  version: v1.2.3
  author: Somebody
  compatibility:
    talos:
      version: ">= v1.0.0"
`

// file is a tar entry for tests: a regular file if kind is 0.
type file struct {
	name, text string // text is the target of links
	mode       int64
	kind       byte
	xattr      string
}

func dir(name string) file { return file{name: name, mode: 0o755, kind: tar.TypeDir} }

func layerTar(t testing.TB, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Typeflag: f.kind, Uid: 1000, Gid: 1000, Uname: "me", ModTime: time.Unix(int64(1e9+i), 0)}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if f.xattr != "" {
			h.PAXRecords = map[string]string{"SCHILY.xattr." + f.xattr: "x"}
		}
		switch f.kind {
		case 0:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.text))
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = f.text
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, f.text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// newImage makes an image for the architecture; each list of files is a layer.
func newImage(t testing.TB, arch string, layers ...[]file) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: arch, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range layers {
		text := layerTar(t, files)
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// hello is a good extension with the files in its rootfs.
func hello(files ...file) []file {
	return append([]file{{name: "manifest.yaml", text: helloManifest}, dir("rootfs")}, files...)
}

func newStore(t testing.TB) *build.Store {
	t.Helper()
	store, err := build.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func options(t testing.TB) Options {
	return Options{Store: newStore(t), Arch: "amd64", Version: "v1.12.0", Pause: time.Millisecond}
}

// inLayout writes images of the architectures into a layout.
func inLayout(t testing.TB, images ...v1.Image) Source {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		var opts []layout.Option
		if config.Architecture != "" {
			opts = append(opts, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: config.Architecture}))
		}
		if err := p.AppendImage(img, opts...); err != nil {
			t.Fatal(err)
		}
	}
	return Source{Layout: dir}
}

// listing reads an extension's tar as text.
func listing(t testing.TB, store *build.Store, blob build.Blob) string {
	t.Helper()
	f, err := store.Open(blob.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b strings.Builder
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(time.Unix(0, 0)) || len(h.PAXRecords) > 0 {
			t.Errorf("%s has more than it should: %+v", h.Name, h)
		}
		fmt.Fprintf(&b, "%c %o %s %s%s\n", h.Typeflag, h.Mode, h.Name, h.Linkname, text)
	}
}

func TestLoadMergesLayers(t *testing.T) {
	opts := options(t)
	img := newImage(t, "amd64", hello(
		dir("rootfs/lib"), dir("rootfs/lib/firmware"), file{name: "rootfs/lib/firmware/b.bin", text: "old"},
		file{name: "rootfs/usr/local/gone/x", text: "x"}, file{name: "rootfs/usr/local/opaque/lower", text: "x"},
		file{name: "rootfs/usr/local/single", text: "x"}, file{name: "rootfs/usr/local/was/dir", text: "x"}, file{name: "rootfs/usr/local/empty"},
		file{name: "rootfs/usr/local/bin/tool", text: "program", mode: 0o755},
	), []file{
		{name: "./rootfs/usr/lib/firmware/a.bin", text: "a"}, {name: "rootfs/lib/firmware/b.bin", text: "new"},
		{name: "rootfs/usr/local/.wh.gone"}, {name: "rootfs/usr/local/opaque/upper", text: "u"}, {name: "rootfs/usr/local/opaque/.wh..wh..opq"},
		{name: "rootfs/usr/local/.wh.single"}, {name: "rootfs/usr/local/was", text: "file"}, {name: "/rootfs/usr/local/bin/same", text: "rootfs/usr/local/bin/tool", kind: tar.TypeLink},
		{name: "rootfs/usr/local/bin/link", text: "../lib/x", kind: tar.TypeSymlink}, {name: "rootfs/sbin", text: "usr/sbin", kind: tar.TypeSymlink},
		{name: "rootfs/usr/local/lib/containers/c/etc/mtab", text: "/proc/mounts", kind: tar.TypeSymlink},
		{name: "rootfs/usr", mode: 0o700, kind: tar.TypeDir}, dir("rootfs/var"), {name: "rootfs/usr/local/x", text: "x", xattr: "user.note"},
	})
	ext, err := Load(context.Background(), inLayout(t, img), opts)
	if err != nil {
		t.Fatal(err)
	}
	want := `5 755 usr/ 
5 755 usr/lib/ 
5 755 usr/lib/firmware/ 
0 644 usr/lib/firmware/a.bin a
0 644 usr/lib/firmware/b.bin new
5 755 usr/local/ 
5 755 usr/local/bin/ 
2 777 usr/local/bin/link ../lib/x
0 755 usr/local/bin/same program
1 755 usr/local/bin/tool usr/local/bin/same
0 644 usr/local/empty 
5 755 usr/local/lib/ 
5 755 usr/local/lib/containers/ 
5 755 usr/local/lib/containers/c/ 
5 755 usr/local/lib/containers/c/etc/ 
2 777 usr/local/lib/containers/c/etc/mtab /proc/mounts
5 755 usr/local/opaque/ 
0 644 usr/local/opaque/upper u
0 644 usr/local/was file
0 644 usr/local/x x
`
	if diff := cmp.Diff(want, listing(t, opts.Store, ext.Tree)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if ext.Manifest.Metadata.Name != "hello" {
		t.Errorf("got manifest %+v", ext.Manifest)
	}
}

func TestLoadRefuses(t *testing.T) {
	root := func(f file) []file {
		return hello(dir("rootfs/usr/local"), file{name: "rootfs/usr/local/good", text: "x"}, f)
	}
	manifest := func(old, now string) []file {
		return []file{{name: "manifest.yaml", text: strings.Replace(helloManifest, old, now, 1)}, {name: "rootfs/usr/local/x", text: "x"}}
	}
	for _, test := range []struct {
		summary string
		files   []file
		want    string
	}{
		{"no manifest", []file{{name: "rootfs/usr/local/x", text: "x"}}, "it has no manifest.yaml"},
		{"an ordinary image", []file{{name: "etc/passwd", text: "x"}}, "it has no manifest.yaml"},
		{"no rootfs", []file{{name: "manifest.yaml", text: helloManifest}}, "its rootfs/ brings nothing"},
		{"more than that", append(root(file{name: "install.sh"}), dir("x")), "unexpected /install.sh"},
		{"manifest is a link", []file{{name: "manifest.yaml", text: "/etc/passwd", kind: tar.TypeSymlink}}, "its manifest.yaml is no file"},
		{"root is a link", []file{{name: "manifest.yaml", text: helloManifest}, {name: "rootfs", text: "/", kind: tar.TypeSymlink}}, "its rootfs is no directory"},
		{"unknown field", manifest("author", "auhtor"), "line 5, column 3: unknown field metadata.auhtor (did you mean metadata.author?)"},
		{"too new", manifest(">= v1.0.0", ">= v1.13.0"), "cannot use extension hello with this version: it is for Talos >= v1.13.0, and this is compatible with v1.12.0"},
		{"path not allowed", root(file{name: "rootfs/usr/bin/sh", text: "x"}), "cannot accept /usr/bin/sh: an extension may bring only /etc/cri/conf.d"},
		{"almost allowed", root(file{name: "rootfs/usr/locale/x", text: "x"}), "cannot accept /usr/locale/x"},
		{"etc", root(file{name: "rootfs/etc/passwd", text: "x"}), "cannot accept /etc/passwd"},
		{"the image's own", root(file{name: "rootfs/usr/local/etc/talos/config.yaml", text: "x"}), "/usr/local/etc/talos is the image's own"},
		{"folder as a link", hello(file{name: "rootfs/usr/local", text: "lib/firmware", kind: tar.TypeSymlink}), "cannot accept /usr/local: it must be a directory"},
		{"below a link", root(file{name: "rootfs/usr/local/good/x", text: "x"}), "cannot accept /usr/local/good/x: /usr/local/good is no directory"},
		{"climbs out", root(file{name: "rootfs/../../etc/passwd", text: "x"}), `cannot accept path "rootfs/../../etc/passwd": it leads out of the image`},
		{"climbs out from the top", root(file{name: "/../x", text: "x"}), "leads out of the image"},
		{"climbs out of rootfs", root(file{name: "rootfs/../x", text: "x"}), "unexpected /x"},
		{"link climbs", root(file{name: "rootfs/usr/local/l", text: "../../../../etc", kind: tar.TypeSymlink}), "cannot accept /usr/local/l: its target ../../../../etc leads out of the root"},
		{"link to elsewhere", root(file{name: "rootfs/usr/local/l", text: "/etc/shadow", kind: tar.TypeSymlink}), "its target /etc/shadow is outside"},
		{"relative link to elsewhere", root(file{name: "rootfs/usr/local/l", text: "../bin/machined", kind: tar.TypeSymlink}), "its target ../bin/machined is outside"},
		{"hard link to elsewhere", root(file{name: "rootfs/usr/local/l", text: "/etc/shadow", kind: tar.TypeLink}), "cannot accept hard link /rootfs/usr/local/l: its target /etc/shadow is no file of the image"},
		{"hard link climbs", root(file{name: "rootfs/usr/local/l", text: "../../etc/shadow", kind: tar.TypeLink}), "leads out of the image"},
		{"setuid", root(file{name: "rootfs/usr/local/su", text: "x", mode: 0o4755}), "cannot accept /usr/local/su: it is setuid or setgid (mode 4755)"},
		{"setgid directory", root(file{name: "rootfs/usr/local/d", mode: 0o2755, kind: tar.TypeDir}), "setuid or setgid"},
		{"world-writable", root(file{name: "rootfs/usr/local/w", text: "x", mode: 0o666}), "cannot accept /usr/local/w: everybody may write to it"},
		{"world-writable directory", root(file{name: "rootfs/usr/local/w", mode: 0o1777, kind: tar.TypeDir}), "everybody may write"},
		{"capabilities", root(file{name: "rootfs/usr/local/c", text: "x", xattr: "security.capability"}), "has file capabilities"},
		{"device", root(file{name: "rootfs/usr/local/sda", kind: tar.TypeBlock}), "cannot accept /rootfs/usr/local/sda: it is a device node"},
		{"pipe", root(file{name: "rootfs/usr/local/p", kind: tar.TypeFifo}), "named pipe"},
		{"twice", hello(file{name: "rootfs/lib/firmware/x", text: "1"}, file{name: "rootfs/usr/lib/firmware/x", text: "2"}), "cannot accept /usr/lib/firmware/x: it is there twice"},
		{"modules", hello(file{name: "rootfs/lib/modules/6.12/x.ko", text: "x"}), "it brings /usr/lib/modules/6.12/x.ko, and this system's kernel has no loadable modules"},
	} {
		src := inLayout(t, newImage(t, "amd64", test.files))
		_, err := Load(context.Background(), src, options(t))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that says %q", test.summary, err, test.want)
			continue
		}
		if want := "cannot use " + src.Layout + " as a system extension: "; !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: want one line that begins with %q: %v", test.summary, want, err)
		}
	}
}

// TestLoadTwice: the same files in other layers, from another kind of source, into another store, are the same tar.
func TestLoadTwice(t *testing.T) {
	a := file{name: "rootfs/usr/local/a", text: "a"}
	b := file{name: "rootfs/usr/local/b", text: "b"}
	one, two := options(t), options(t)
	first, err := Load(context.Background(), inLayout(t, newImage(t, "amd64", hello(a, b))), one)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Load(context.Background(), inLayout(t, newImage(t, "", hello(b), []file{a})), two)
	if err != nil {
		t.Fatal(err)
	}
	if first.Tree != second.Tree || first.Digest == second.Digest {
		t.Errorf("trees %v and %v of images %s and %s", first.Tree, second.Tree, first.Digest, second.Digest)
	}
}

func TestModulesMayBeAllowed(t *testing.T) {
	opts := options(t)
	opts.Modules = true
	if _, err := Load(context.Background(), inLayout(t, newImage(t, "amd64", hello(file{name: "rootfs/lib/modules/6.12/x.ko", text: "x"}))), opts); err != nil {
		t.Error(err)
	}
}
