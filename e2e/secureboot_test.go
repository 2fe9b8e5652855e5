//go:build long

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/factory/vm"
	"github.com/talos-factory/talos-factory/profiles/disk"
)

// denied is what systemd-boot or the firmware says of a program whose signature is none it knows.
var denied = regexp.MustCompile(`(?i)access denied`)

// signedDisk generates keys, lets prepare change them, and builds a disk for Secure Boot that enrolls its keys by itself, all by the
// command line.
func signedDisk(t *testing.T, prepare func(keys string)) string {
	t.Helper()
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	run := buildRun{}
	run.command(t, checkout, "bin/factory", "keys", "generate", "--output", keys)
	if prepare != nil {
		prepare(keys)
	}
	stdout, _ := run.command(t, checkout, "bin/factory", "build", "metal", "--secureboot", "--keys", keys, "--secure-boot-enroll", "force", "--output", dir, "--json")
	var files []result
	if err := json.Unmarshal(stdout, &files); err != nil || len(files) != 1 {
		t.Fatalf("reading the result %q: %v", stdout, err)
	}
	run.command(t, checkout, "bin/factory", "verify", files[0].Path, "--key", filepath.Join(keys, "cosign.pub"))
	file := filepath.Join(dir, "disk")
	if err := vm.NewDisk(file, files[0].Path, diskSize); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSecureBoot boots a signed image on firmware without keys: systemd-boot enrolls those of the image and starts again, and then
// the machine says by API that Secure Boot is on.
func TestSecureBoot(t *testing.T) {
	m := boot(t, vm.Machine{Firmware: vm.SecureBoot, Drives: []vm.Drive{{File: signedDisk(t, nil)}}})
	m.maintenance()
	m.must([]string{"gen", "config", "secure", "https://127.0.0.1:6443", "--output", m.config})
	m.configure()
	out := m.must(m.secure("get", "securitystates", "--output", "yaml"))
	for _, want := range []string{"secureBoot: true", "bootedWithUKI: true", "rootVerified: true"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestSecureBootRefuses: no UKI boots that is not what was signed, or was signed by somebody else.
func TestSecureBootRefuses(t *testing.T) {
	t.Run("a flipped bit", func(t *testing.T) {
		image := signedDisk(t, nil)
		file, err := os.OpenFile(image, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		text := []byte("talos.platform=metal")
		if _, err := file.WriteAt([]byte{text[0] ^ 1}, find(t, file, disk.EFI, text)); err != nil {
			t.Fatal(err)
		}
		refusesToBoot(t, image)
	})
	t.Run("another key", func(t *testing.T) {
		refusesToBoot(t, signedDisk(t, func(keys string) {
			other := filepath.Join(t.TempDir(), "keys")
			run := buildRun{}
			run.command(t, "..", "bin/factory", "keys", "generate", "--output", other)
			for _, name := range []string{"uki-signing-key.pem", "uki-signing-cert.pem"} { // db.auth stays
				run.command(t, ".", "cp", filepath.Join(other, name), filepath.Join(keys, name))
			}
		}))
	})
}

func refusesToBoot(t *testing.T, image string) {
	t.Helper()
	m := boot(t, vm.Machine{Firmware: vm.SecureBoot, Drives: []vm.Drive{{File: image}}})
	if _, err := m.console.wait(denied, 0, bootLimit); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(m.console.String(), "Linux version") {
		t.Error("the kernel started nevertheless")
	}
}
