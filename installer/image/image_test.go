package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/splice"
	"github.com/talos-factory/talos-factory/installer"
	"github.com/talos-factory/talos-factory/profiles/assembly"
)

// newContent is a small release with a customization.
func newContent(t testing.TB, m extent.Memory, version string, args ...string) Content {
	t.Helper()
	stub, err := os.ReadFile("../../format/uki/testdata/stub.efi")
	if err != nil {
		t.Fatal(err)
	}
	c := Content{
		Parts: assembly.Parts{
			Arch: "amd64", Version: version, OSRelease: "ID=talos\nVERSION_ID=" + version + "\n",
			Kernel:      extent.FromBlob(m.Add(bytes.Repeat([]byte("MZkernel"), 100_000))),
			Initramfs:   extent.FromBlob(m.Add(bytes.Repeat([]byte(version+"070701"), 100_001))),
			SystemdBoot: []byte("systemd-boot"), SystemdStub: stub,
			GRUBBoot: make([]byte, 512), GRUBCore: make([]byte, 10_000),
		},
		Boot:    assembly.Boot{Cmdline: append([]string{"talos.platform=metal"}, args...)},
		BuildID: "0123", Platform: "metal", BIOS: true,
		Program:   extent.FromBlob(m.Add([]byte("\x7fELF installer"))),
		Created:   time.Date(2026, 3, 4, 5, 6, 7, 8, time.FixedZone("", 3600)),
		SourceURL: "https://example.org/source",
	}
	if c.UKI, err = assembly.UKI(c.Parts, c.Boot); err != nil {
		t.Fatal(err)
	}
	return c
}

// tools remember nothing but pieces.
func tools(m extent.Memory) Tools {
	pieces := splice.NewMemory()
	source := both{m, pieces}
	return Tools{
		Source: source,
		Sum: func(p *extent.Plan) ([32]byte, error) {
			hash := sha256.New()
			_, err := io.Copy(hash, p.NewReader(source))
			return [32]byte(hash.Sum(nil)), err
		},
		Gzip: func(p *extent.Plan) (*extent.Plan, error) {
			return splice.Splicer{Source: source, Cache: pieces}.Gzip(context.Background(), p)
		},
	}
}

// both looks for blobs in two places.
type both struct{ first, second extent.Source }

func (b both) OpenBlob(d extent.Digest) (extent.ReaderAtCloser, error) {
	if r, err := b.first.OpenBlob(d); err == nil {
		return r, nil
	}
	return b.second.OpenBlob(d)
}

func newImage(t testing.TB, m extent.Memory, c Content) *Image {
	t.Helper()
	img, err := New(c, tools(m))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestImage(t *testing.T) {
	m := extent.Memory{}
	c := newContent(t, m, "v1.2.3", "debug")
	c.Boot.Extra = extent.FromBlob(m.Add([]byte("070701extra")))
	c.UKI, _ = assembly.UKI(c.Parts, c.Boot)
	img := newImage(t, m, c)
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{
		Entrypoint: []string{"/bin/installer"},
		Env:        []string{"PATH=/usr/bin", "TARGETARCH=amd64", "VERSION=v1.2.3"},
		Labels:     map[string]string{"alpha.talos.dev/version": "v1.2.3", "org.opencontainers.image.source": "https://example.org/source"},
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if got := config.Created.Format(time.RFC3339Nano); got != "2026-03-04T04:06:07Z" {
		t.Errorf("created: got %s", got)
	}

	files := mutate.Extract(img)
	defer files.Close()
	var list strings.Builder
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&list, "%s %o %s\n", h.Name, h.Mode, h.Linkname)
		if strings.HasSuffix(h.Name, installer.RecordFile) {
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			record, err := installer.ParseRecord(text)
			if err != nil || record.Version != config.Config.Labels[installer.VersionLabel] || record.BuildID != "0123" || !record.Extra {
				t.Errorf("record: got %+v, %v", record, err)
			}
		}
	}
	for _, want := range []string{
		"usr/bin/installer 755", "bin 777 usr/bin", "usr/install/amd64/vmlinuz.efi 644",
		"usr/install/amd64/systemd-boot.efi", "usr/install/amd64/systemd-stub.efi", "usr/install/amd64/vmlinuz 644",
		"usr/install/amd64/initramfs.img", "usr/install/amd64/extra.img", "usr/install/amd64/grub/boot.img", "usr/install/amd64/grub/core.img",
	} {
		if !strings.Contains(list.String(), want) {
			t.Errorf("the image has no %s:\n%s", want, list.String())
		}
	}
}

func digests(t *testing.T, img *Image) []string {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, l := range layers {
		d, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d.String())
	}
	return all
}

// TestSharing: the same content is the same image; another customization is one layer, another release two.
func TestSharing(t *testing.T) {
	m := extent.Memory{}
	first := newImage(t, m, newContent(t, m, "v1.2.3"))
	second := newImage(t, m, newContent(t, m, "v1.2.3"))
	a, err := first.Digest()
	if err != nil {
		t.Fatal(err)
	}
	b, err := second.Digest()
	if err != nil || a != b {
		t.Errorf("two of the same content: %s and %s, %v", a, b, err)
	}
	base := digests(t, first)
	for name, tt := range map[string]struct {
		img  *Image
		same []bool
	}{
		"customization": {newImage(t, m, newContent(t, m, "v1.2.3", "debug")), []bool{true, true, true, false}},
		"release":       {newImage(t, m, newContent(t, m, "v1.2.4")), []bool{true, true, false, false}},
	} {
		for i, d := range digests(t, tt.img) {
			if (d == base[i]) != tt.same[i] {
				t.Errorf("another %s: layer %d is shared: %v, want %v", name, i+1, d == base[i], tt.same[i])
			}
		}
	}
}

// TestPlansAreSmall: packing reads nothing but what sum reads, and holds little.
func TestPlansAreSmall(t *testing.T) {
	m := extent.Memory{}
	img := newImage(t, m, newContent(t, m, "v1.2.3"))
	archive, err := img.Archive()
	if err != nil {
		t.Fatal(err)
	}
	if n := archive.Literals(); n > 256<<10 {
		t.Errorf("the archive's plan has %d literal bytes", n)
	}
	nothing := Tools{
		Source: extent.Memory{},
		Sum:    func(*extent.Plan) ([32]byte, error) { return [32]byte{}, nil },
		Gzip:   func(p *extent.Plan) (*extent.Plan, error) { return p, nil },
	}
	if _, err := New(newContent(t, m, "v1.2.3"), nothing); err != nil {
		t.Errorf("without any blob to read: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	m := extent.Memory{}
	for want, change := range map[string]func(*Content){
		`its UKI is of version "v1.2.3"`:     func(c *Content) { c.Parts.Version = "v1.2.4" },
		`the OS inside says "v1.2.5"`:        func(c *Content) { c.Parts.OSRelease = "VERSION_ID=v1.2.5\n" },
		"cannot record the kernel arguments": func(c *Content) { c.Boot.Cmdline = []string{"debug"} },
		"reading UKI":                        func(c *Content) { c.UKI = extent.FromBytes([]byte("no PE image")) },
	} {
		c := newContent(t, m, "v1.2.3")
		change(&c)
		if _, err := New(c, tools(m)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	failing := tools(m)
	failing.Sum = func(*extent.Plan) ([32]byte, error) { return [32]byte{}, io.ErrUnexpectedEOF }
	if _, err := New(newContent(t, m, "v1.2.3"), failing); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want the error of sum", err)
	}
}

// TestArchive: the same file is a Docker archive and an OCI layout.
func TestArchive(t *testing.T) {
	m := extent.Memory{}
	img := newImage(t, m, newContent(t, m, "v1.2.3+dirty"))
	plan, err := img.Archive()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(plan.NewReader(img.core.layers[0].source))
	if err != nil {
		t.Fatal(err)
	}
	want, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}

	tag := name.MustParseReference("installer:v1.2.3-dirty").(name.Tag)
	docker, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := docker.ConfigName(); err != nil || got != want {
		t.Errorf("as a Docker archive: got %s, %v; want %s", got, err, want)
	}
	if err := validate.Image(docker); err != nil {
		t.Errorf("as a Docker archive: %v", err)
	}

	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(file, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("as an OCI layout: %v", err)
	}
}
