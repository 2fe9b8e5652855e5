package factory

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/verity"
	"github.com/talos-factory/talos-factory/profiles"
)

// TestRootIsReadOnce: the tree is what the planner writes, and making it again reads nothing.
func TestRootIsReadOnce(t *testing.T) {
	store := testStore(t)
	content := bytes.Repeat([]byte("squashfs"), 1<<18)
	b, err := store.Put(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	squashfs := extent.Blob{SHA256: b.Digest, Size: b.Size}
	plan, root, err := verifiable(store, squashfs)
	if err != nil {
		t.Fatal(err)
	}
	var tree bytes.Buffer
	want, err := verity.Write(&tree, bytes.NewReader(content), []byte(veritySalt))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(plan.NewReader(Blobs(store)))
	if err != nil {
		t.Fatal(err)
	}
	if root != want || !bytes.Equal(got, append(content, tree.Bytes()...)) {
		t.Errorf("root %x, want %x, or other bytes", root, want)
	}
	before := store.BytesRead()
	again, sameRoot, err := verifiable(store, squashfs)
	if err != nil {
		t.Fatal(err)
	}
	if sameRoot != root || again.String() != plan.String() {
		t.Errorf("made again it is another plan")
	}
	if n := store.BytesRead() - before; n != 0 {
		t.Errorf("%d bytes were read to make it again", n)
	}
}

// TestProfileKeepsRootHash: a profile neither changes nor removes what the root is verified by.
func TestProfileKeepsRootHash(t *testing.T) {
	p, err := profiles.Load("metal")
	if err != nil {
		t.Fatal(err)
	}
	argument := verityArgument(verity.Hash{1})
	p.Customization.ExtraKernelArgs = []string{"-console", "quiet"}
	args, err := commandLine(p, argument)
	if err != nil || !strings.Contains(strings.Join(args, " "), " talos.verity=0100000000") {
		t.Errorf("arguments %q (%v) lack %s", args, err, argument)
	}
	for _, arg := range []string{"-talos.verity", "talos.verity=0"} {
		p.Customization.ExtraKernelArgs = []string{arg}
		if args, err := commandLine(p, argument); err == nil || !strings.Contains(err.Error(), "belongs to the release") {
			t.Errorf("%s: got %q, error %v", arg, args, err)
		}
	}
}
