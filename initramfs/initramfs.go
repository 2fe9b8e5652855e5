// Package initramfs describes the machine's initial file system: /init, a console to print on, and the squashfs root
// with the hash tree that it is verified by, as a cpio the kernel unpacks.
//
// Nothing is compressed here: the squashfs is compressed already and lies in the cpio as it is. The plan costs a few
// literal bytes and is made again each time.
package initramfs

import (
	"fmt"
	"io/fs"
	"time"

	"github.com/talos-factory/talos-factory/format/cpio"
	"github.com/talos-factory/talos-factory/format/extent"
)

// Plan returns the cpio with init, which is a whole blob, and root, the squashfs and its hash tree.
func Plan(init extent.Blob, root *extent.Plan) (*extent.Plan, error) {
	plan, err := cpio.Plan([]cpio.Entry{
		{Path: "dev", Mode: fs.ModeDir | 0o755},
		{Path: "dev/console", Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600, Major: 5, Minor: 1},
		{Path: "init", Mode: 0o755, Content: extent.FromBlob(init)},
		{Path: "rootfs.sqsh", Mode: 0o444, Content: root},
	}, time.Unix(0, 0))
	if err != nil {
		return nil, fmt.Errorf("planning initramfs: %w", err)
	}
	return plan, nil
}
