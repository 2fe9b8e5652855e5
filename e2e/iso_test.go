//go:build vm || long

package e2e

import (
	"regexp"
	"testing"
	"time"

	"github.com/talos-factory/talos-factory/factory/vm"
)

// isoFile builds the ISO, as factory build iso does.
func isoFile(t *testing.T) string { return builtFile(t, "iso", nil) }

func TestISO(t *testing.T) { bootsFourWays(t, isoFile(t)) }

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
