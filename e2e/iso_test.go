//go:build long

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/factory/vm"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/iso9660"
	"github.com/talos-factory/talos-factory/kernel/cmdline"
	"github.com/talos-factory/talos-factory/profiles"
	"github.com/talos-factory/talos-factory/profiles/assembly"
)

// isoFile builds the ISO, as factory build iso does.
func isoFile(t *testing.T) string {
	t.Helper()
	profile, err := profiles.Load("iso")
	if err != nil {
		t.Fatal(err)
	}
	artifacts, err := release.Build(t.Context(), engine, profile, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return artifacts[0].Path
}

// largeISO is one whose boot loaders, kernel and initramfs lie beyond 4 GiB.
func largeISO(t *testing.T) string {
	t.Helper()
	parts, err := release.Parts(t.Context(), engine)
	if err != nil {
		t.Fatal(err)
	}
	iso := assembly.ISO{
		Parts: parts,
		Boot:  assembly.Boot{Cmdline: append(cmdline.Console(), "talos.platform=metal")},
		Files: []iso9660.File{{Path: "before", Content: extent.New(5 << 30)}},
	}
	if iso.UKI, err = assembly.UKI(iso.Parts, iso.Boot); err != nil {
		t.Fatal(err)
	}
	plan, err := iso.Plan()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "large.iso"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := plan.WriteSparse(t.Context(), file, factory.Blobs(engine.Store)); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

func TestISO(t *testing.T) { bootsFourWays(t, isoFile(t)) }

func TestLargeISO(t *testing.T) { bootsFourWays(t, largeISO(t)) }

// bootsFourWays boots one ISO in all its ways, each up to the API in maintenance mode. The machine has no other drive.
func bootsFourWays(t *testing.T, iso string) {
	t.Helper()
	fromGRUB, fromUEFI := regexp.MustCompile(`Command line: BOOT_IMAGE=/boot/vmlinuz `), regexp.MustCompile(`efi: EFI v2`)
	for _, way := range []struct {
		name     string
		firmware vm.Firmware
		bus      vm.Bus
		sign     *regexp.Regexp
	}{
		{"BIOS CD", vm.BIOS, vm.CD, fromGRUB},
		{"BIOS USB", vm.BIOS, vm.USB, fromGRUB},
		{"UEFI CD", vm.UEFI, vm.CD, fromUEFI},
		{"UEFI USB", vm.UEFI, vm.USB, fromUEFI},
	} {
		t.Run(way.name, func(t *testing.T) {
			m := boot(t, vm.Machine{Firmware: way.firmware, Drives: []vm.Drive{{File: iso, Bus: way.bus, ReadOnly: true}}})
			m.maintenance()
			t.Logf("power-on to API %.1f s", time.Since(m.started).Seconds())
			if !way.sign.MatchString(m.console.String()) {
				t.Errorf("the console shows nothing like %q", way.sign)
			}
		})
	}
}
