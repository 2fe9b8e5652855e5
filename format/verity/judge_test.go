//go:build judge

package verity_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/format/verity"
	"github.com/talos-factory/talos-factory/format/verity/superblock"
)

// TestVeritysetupVerifies has veritysetup verify files of data and tree, and refuse them with one bit changed anywhere.
func TestVeritysetupVerifies(t *testing.T) {
	for _, size := range []int{1, 4096, 130*4096 + 77, 16385 * 4096} {
		store, data := extent.Memory{}, sample(size)
		var tree bytes.Buffer
		root, err := verity.Write(&tree, bytes.NewReader(data), salt[:])
		if err != nil {
			t.Fatal(err)
		}
		plan, err := verity.Plan(store.Add(data), store.Add(tree.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.Create(filepath.Join(t.TempDir(), "root"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := plan.WriteSparse(context.Background(), file, store); err != nil {
			t.Fatal(err)
		}
		at := superblock.Offset(int64(size))
		verify := []string{"veritysetup", "verify", "root", "root", fmt.Sprintf("%x", root), fmt.Sprintf("--hash-offset=%d", at)}
		judge.Run(t, verify, file.Name())
		if out := judge.Run(t, []string{"veritysetup", "dump", "root", verify[5]}, file.Name()); !strings.Contains(out, fmt.Sprintf("%x", salt)) {
			t.Errorf("veritysetup dump shows another salt:\n%s", out)
		}
		changes := []int64{0, int64(size) - 1, at + superblock.BlockSize} // the last is the top of the tree, if there is one
		for _, offset := range changes {
			if offset >= plan.Size() {
				continue
			}
			flip(t, file, offset)
			if out, err := judge.Try(t, verify, file.Name()); err == nil {
				t.Errorf("%d bytes, byte %d changed: veritysetup verified it: %s", size, offset, out)
			}
			flip(t, file, offset)
		}
	}
}

func flip(t *testing.T, file *os.File, offset int64) {
	t.Helper()
	var b [1]byte
	if _, err := file.ReadAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := file.WriteAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
}
