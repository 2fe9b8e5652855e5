//go:build long

package e2e

import (
	"testing"
	"time"

	"github.com/talos-factory/talos-factory/factory/vm"
)

// TestNetboot boots from the network: by iPXE what factory build pxe writes, by UEFI the UKI.
func TestNetboot(t *testing.T) {
	for _, test := range []struct {
		firmware vm.Firmware
		profile  string
	}{{vm.BIOS, "pxe"}, {vm.UEFI, "metal-uki"}} {
		t.Run(string(test.firmware), func(t *testing.T) {
			m := boot(t, vm.Machine{Firmware: test.firmware, Netboot: builtFile(t, test.profile, nil)})
			m.maintenance()
			t.Logf("power-on to API %.1f s", time.Since(m.started).Seconds())
		})
	}
}
