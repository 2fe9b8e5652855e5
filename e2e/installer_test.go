//go:build long

package e2e

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/talos-factory/talos-factory/factory/vm"
	"github.com/talos-factory/talos-factory/installer/image"
	"github.com/talos-factory/talos-factory/profiles"
)

// serveInstaller packs the installer's image, as factory build installer does, and serves it from a registry on this
// host. It returns its name, by digest, as a machine sees it.
func serveInstaller(t *testing.T) string {
	t.Helper()
	profile, err := profiles.Load("installer")
	if err != nil {
		t.Fatal(err)
	}
	content, err := release.Installer(t.Context(), engine, profile)
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.Of(content)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(registry.NewDiskBlobHandler(t.TempDir()))))
	t.Cleanup(server.Close)
	pushed, err := image.Push(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/installer:"+release.Version, img, image.PushOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(pushed, "127.0.0.1", hostSeenFromMachine, 1)
}

// emptyDisk is a disk without anything on it.
func emptyDisk(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, diskSize); err != nil {
		t.Fatal(err)
	}
	return file
}

// installerConfig writes a configuration that has the machine install itself.
func (m *machine) installerConfig(image string) string {
	m.t.Helper()
	m.must([]string{"gen", "config", "installed", "https://127.0.0.1:6443", "--install-disk", "/dev/vda", "--install-image", image, "--output", m.config})
	file := filepath.Join(m.config, "controlplane.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		m.t.Fatal(err)
	}
	host, _, _ := strings.Cut(image, "/")
	mirror := fmt.Sprintf("machine:\n  registries:\n    mirrors:\n      %s:\n        endpoints: [\"http://%s\"]\n        skipFallback: true\n", host, host)
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "machine:\n", mirror, 1)), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return file
}

var (
	waiting       = regexp.MustCompile(`waiting for one in maintenance mode`)
	installFailed = regexp.MustCompile(`cannot install error="(.*)"`)
	installBegins = regexp.MustCompile(`installer:\s+1/\d+ read what this installer brings`)
	installed     = regexp.MustCompile(`the system is installed: rebooting into it`)
	halted        = regexp.MustCompile(`boot stops here: this machine is installed already`)
)

// TestInstaller takes a machine with an empty disk from an ISO to a system on the disk, which then starts without the ISO
// under both firmwares, and not with it.
func TestInstaller(t *testing.T) {
	image, iso, disk := serveInstaller(t), isoFile(t), emptyDisk(t)
	drives := []vm.Drive{{File: disk}, {File: iso, Bus: vm.CD}} // the disk comes first, but nothing boots from it yet

	m := boot(t, vm.Machine{Firmware: vm.UEFI, Drives: drives})
	m.maintenance()
	if _, err := m.console.wait(waiting, 0, bootLimit); err != nil { // it has looked for a system disk until then
		t.Fatal(err)
	}
	config := m.installerConfig(image)
	m.refusesInstallations(config)
	m.must(m.insecure("apply-config", "--file", config))
	for _, sign := range []*regexp.Regexp{installBegins, installed} {
		if _, err := m.console.wait(sign, 0, bootLimit); err != nil {
			t.Fatalf("waiting for %q: %v", sign, err)
		}
	}
	t.Logf("power-on to installed %.1f s", time.Since(m.started).Seconds())
	m.servicesRun(3) // from the disk, with the configuration: only that makes talosctl's certificate good
	m.showsBuildID()
	if out := m.must(m.secure("read", "/proc/cmdline")); strings.Contains(out, "halt_if_installed") {
		t.Errorf("the system that runs is still the ISO's: %s", out)
	}
	identity := m.must(m.secure("read", "/system/state/node-identity.yaml"))
	m.must(m.secure("shutdown"))
	m.waitOff(2 * time.Minute)

	t.Run("BIOS without the ISO", func(t *testing.T) {
		again := boot(t, vm.Machine{Firmware: vm.BIOS, Drives: drives[:1]})
		again.config = m.config
		again.servicesRun(3)
		if got := again.must(again.secure("read", "/system/state/node-identity.yaml")); got != identity {
			t.Errorf("another node came up: %s, not %s", got, identity)
		}
		again.must(again.secure("shutdown"))
		again.waitOff(2 * time.Minute)
	})
	t.Run("with the ISO first", func(t *testing.T) {
		left := boot(t, vm.Machine{Firmware: vm.UEFI, Drives: []vm.Drive{drives[1], drives[0]}})
		if _, err := left.console.wait(halted, 0, bootLimit); err != nil {
			t.Errorf("a machine with an installed disk does not stop when it starts from the ISO: %v", err)
		}
	})
}

// refusesInstallations: what cannot work is refused at once or fails, and the machine waits for the next try.
func (m *machine) refusesInstallations(config string) {
	m.t.Helper()
	good, err := os.ReadFile(config)
	if err != nil {
		m.t.Fatal(err)
	}
	change := func(old, with string) string {
		file := filepath.Join(m.t.TempDir(), "controlplane.yaml")
		if err := os.WriteFile(file, []byte(strings.Replace(string(good), old, with, 1)), 0o600); err != nil {
			m.t.Fatal(err)
		}
		return file
	}
	m.refused("/dev/vdz is no disk of this machine", m.insecure("apply-config", "--file", change("/dev/vda", "/dev/vdz")))
	m.must(m.insecure("apply-config", "--file", change("/installer@", "/nothing@")))
	if _, err := m.console.wait(installFailed, 0, bootLimit); err != nil {
		m.t.Fatalf("an image that is not there: %v", err)
	}
	dry := m.insecure("apply-config", "--dry-run", "--file", config)
	m.eventually(serviceLimit, "maintenance mode", dry, func(string) bool { return true })
	out, err := exec.Command(talosctlFile, dry...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the last installation failed") || !strings.Contains(string(out), "/nothing@") {
		m.t.Errorf("the reason for the failure: got %s, %v", out, err)
	}
}
