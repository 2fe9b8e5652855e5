//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/talos-factory/talos-factory/factory/vm"
)

// TestPXE boots from the network, with what factory build pxe writes in a folder served by TFTP.
func TestPXE(t *testing.T) {
	script := builtFile(t, "pxe", nil)
	if err := os.Rename(script, filepath.Join(filepath.Dir(script), vm.NetbootFile)); err != nil {
		t.Fatal(err)
	}
	for _, firmware := range []vm.Firmware{vm.BIOS, vm.UEFI} {
		t.Run(string(firmware), func(t *testing.T) {
			m := boot(t, vm.Machine{Firmware: firmware, Netboot: filepath.Dir(script)})
			m.maintenance()
			t.Logf("power-on to API %.1f s", time.Since(m.started).Seconds())
		})
	}
}
