//go:build linux

package disk_test

import (
	"fmt"

	"github.com/talos-factory/talos-factory/installer/disk"
)

// The steps of an installation can be read before it runs.
func Example() {
	for _, step := range (disk.Install{Target: "/dev/sda"}).Steps()[:3] {
		fmt.Println(step.Name)
	}
	// Output:
	// read what this installer brings
	// open and measure /dev/sda
	// look at what it holds
}
