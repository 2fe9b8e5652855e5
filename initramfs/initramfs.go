// Package initramfs describes the machine's initial file system: /init, a console to print on, and the squashfs root,
// as a cpio the kernel unpacks.
//
// Nothing is compressed here: the squashfs is compressed already and lies in the cpio as it is. The plan costs a few
// literal bytes and is made again each time.
package initramfs

import (
	"fmt"

	"github.com/talos-factory/talos-factory/format/cpio"
	"github.com/talos-factory/talos-factory/format/extent"
)

// Plan returns the cpio with init and squashfs, which are whole blobs.
func Plan(init, squashfs extent.Blob) (*extent.Plan, error) {
	plan, err := cpio.New([]cpio.Entry{
		cpio.Directory("dev", 0o755),
		cpio.CharDevice("dev/console", 0o600, 5, 1),
		cpio.File("init", 0o755, extent.FromBlob(init)),
		cpio.File("rootfs.sqsh", 0o444, extent.FromBlob(squashfs)),
	})
	if err != nil {
		return nil, fmt.Errorf("planning initramfs: %w", err)
	}
	return plan, nil
}
