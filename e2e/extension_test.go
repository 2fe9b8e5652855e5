//go:build long

package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/talos-factory/talos-factory/factory/vm"
	"github.com/talos-factory/talos-factory/profiles"
)

// TestExtensions boots a disk with two extensions and a machine configuration in it: the machine needs nobody to configure it, lists
// the extensions, and has their files, of one that both bring the later one's.
func TestExtensions(t *testing.T) {
	cluster := filepath.Join(t.TempDir(), "cluster")
	if out, err := (&machine{t: t}).talosctl("gen", "config", "extended", "https://127.0.0.1:6443", "--output", cluster); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config, err := os.ReadFile(filepath.Join(cluster, "controlplane.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const greeting = "usr/local/share/hello/greeting"
	image := extended(t, profiles.Customization{EmbeddedConfig: string(config), SystemExtensions: []profiles.Extension{
		{OCI: extensionImage(t, "hello", map[string]string{greeting: "hello\n", "usr/local/share/hello/only": "first\n", "lib/firmware/hello.bin": "firmware\n"})},
		{OCI: extensionImage(t, "world", map[string]string{greeting: "hello, world\n"})},
	}})
	for _, firmware := range []vm.Firmware{vm.UEFI, vm.BIOS} {
		t.Run(string(firmware), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "disk")
			if err := vm.NewDisk(file, image, diskSize); err != nil {
				t.Fatal(err)
			}
			m := boot(t, vm.Machine{Firmware: firmware, Drives: []vm.Drive{{File: file}}})
			m.config = cluster
			m.eventually(bootLimit, "the API", m.secure("version"), func(out string) bool { return strings.Contains(out, release.BuildID) })
			m.servicesRun(3)
			m.hasExtensions(map[string]string{"/" + greeting: "hello, world\n", "/usr/local/share/hello/only": "first\n", "/usr/lib/firmware/hello.bin": "firmware\n"})
			m.runsContainer() // with its root, and the overlays over /etc and /opt, on top of the stack
			m.must(m.secure("shutdown"))
			m.waitOff(serviceLimit)
		})
	}
}

func (m *machine) hasExtensions(files map[string]string) {
	m.t.Helper()
	out := m.must(m.secure("get", "extensions"))
	m.t.Logf("talosctl get extensions:\n%s", out)
	for _, want := range [][]string{{"ExtensionStatus", "00-hello", "hello", "v1.0.0"}, {"ExtensionStatus", "01-world", "world", "v1.0.0"}} {
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			fields := strings.Fields(line)
			return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(fields, w) })
		}) {
			m.t.Errorf("no line of the list has %q", want)
		}
	}
	for path, want := range files {
		if got := m.must(m.secure("read", path)); got != want {
			m.t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
	if out := m.must(m.secure("mounts")); !strings.Contains(out, "/etc/kubernetes") {
		m.t.Errorf("no overlay over /etc/kubernetes:\n%s", out)
	}
}

// extensionImage writes an extension as an OCI layout.
func extensionImage(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name, text string) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	add("manifest.yaml", fmt.Sprintf("version: v1alpha1\nmetadata:\n  name: %s\n  version: v1.0.0\n  compatibility: {talos: {version: \">= v1.0.0\"}}\n", name))
	for path, text := range files {
		add("rootfs/"+path, text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), name)
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: release.Arch})); err != nil {
		t.Fatal(err)
	}
	return dir
}

// extended builds the metal image with a customization, as factory build does.
func extended(t *testing.T, c profiles.Customization) string {
	t.Helper()
	profile, err := profiles.Load("metal")
	if err != nil {
		t.Fatal(err)
	}
	profile.Customization = c
	artifacts, err := release.Build(t.Context(), engine, profile, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return artifacts[0].Path
}
