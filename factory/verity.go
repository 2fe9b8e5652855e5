package factory

import (
	"fmt"
	"io"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/verity"
	"github.com/talos-factory/talos-factory/format/verity/superblock"
)

// veritySalt is hashed before each block of a root. It is no secret; it makes a search for two blocks of one hash
// start anew for us. Another one would be another root hash for the same squashfs.
const veritySalt = "talos-factory root, dm-verity 1"

// verityArgument is the kernel argument by which /init verifies the root.
func verityArgument(root verity.Hash) string { return fmt.Sprintf("%s=%x", superblock.Argument, root) }

// verifiable plans a squashfs with its hash tree behind it. The store remembers the tree, so that the squashfs is read once.
func verifiable(store *build.Store, squashfs extent.Blob) (*extent.Plan, verity.Hash, error) {
	tree, note, err := pieces{store}.Recall("dm-verity tree 1 with salt "+veritySalt, squashfs.SHA256, func(w io.Writer) ([]byte, error) {
		file, err := store.Open(build.Digest(squashfs.SHA256))
		if err != nil {
			return nil, err
		}
		defer file.Close()
		root, err := verity.Write(w, file, []byte(veritySalt))
		return root[:], err
	})
	if err != nil {
		return nil, verity.Hash{}, fmt.Errorf("making the root's hash tree: %w", err)
	}
	if len(note) != len(verity.Hash{}) {
		return nil, verity.Hash{}, fmt.Errorf("internal error: a root hash of %d bytes", len(note))
	}
	plan, err := verity.Plan(squashfs, tree)
	return plan, verity.Hash(note), err
}
