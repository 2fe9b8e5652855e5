package pack

import (
	"context"
	"fmt"
	"io"

	"github.com/talos-factory/talos-factory/build"
)

// Squashfs is the name of the step's output.
const Squashfs = "extension.sqsh"

// packScript: as the root is packed, but from a tar, which has owners and modes; 19 is zstd's best level of ordinary memory.
const packScript = `mksquashfs - /out/` + Squashfs + ` -tar -comp zstd -Xcompression-level 19 -b 1M \
	-all-time 0 -mkfs-time 0 -root-mode 0755 -root-uid 0 -root-gid 0 -no-xattrs -no-progress -quiet </in/tree.tar
`

// Step packs the extension as a squashfs. It depends on the extension's files alone, not on where they came from. tools has
// mksquashfs for the architecture host.
func (e *Extension) Step(tools *build.Tree, host string) *build.Step {
	return &build.Step{
		Name: fmt.Sprintf("extension %s %.12s", e.Manifest.Metadata.Name, e.Tree.Digest),
		Argv: []string{"/bin/sh", "-euc", packScript},
		Env:  map[string]string{"PATH": "/usr/bin:/usr/sbin", "LC_ALL": "C"},
		Host: host, Target: host,
		Mounts: []build.Mount{{Path: "/", Tree: tools}},
		Inputs: []build.Input{{Path: "/in/tree.tar", Fetch: &build.Fetch{
			Name: "files of extension " + e.Manifest.Metadata.Name, Blob: e.Tree,
			Open: func(context.Context) (io.ReadCloser, error) {
				return nil, fmt.Errorf("files of %s are gone from the store since it was loaded: %w", e.Source, build.ErrMissing)
			},
		}}},
		Outputs: []string{Squashfs},
	}
}
