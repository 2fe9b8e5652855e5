package pack

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"path"
	"strings"
	"testing"
)

// FuzzMerge: whatever a layer holds, what comes out of it keeps to the rules, lies in directories, and can be written.
func FuzzMerge(f *testing.F) {
	f.Add(layerTar(f, hello(good, dir("rootfs/lib"), file{name: "rootfs/lib/firmware/x", text: "x"})), []byte{})
	f.Add(layerTar(f, hello(good, file{name: "rootfs/usr/local/l", text: "good", kind: tar.TypeSymlink})), layerTar(f, []file{{name: "rootfs/usr/local/.wh.good"}}))
	f.Add(layerTar(f, hello(good, file{name: "rootfs/usr/local/h", text: "rootfs/usr/local/good", kind: tar.TypeLink})), layerTar(f, []file{{name: "rootfs/.wh..wh..opq"}, {name: "../x"}}))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		m := newMerge()
		defer m.close()
		for i, text := range [][]byte{one, two} {
			err := m.layer(layer{number: i, diffID: fmt.Sprintf("sha256:%x", sha256.Sum256(text)), open: func() (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(text)), nil
			}})
			if err != nil {
				return
			}
		}
		tree, err := m.tree()
		if err != nil {
			return
		}
		for p, e := range tree.entries {
			if !path.IsAbs(p) || path.Clean(p) != p || e.kind != tar.TypeDir && !allowed(p) || e.kind == tar.TypeDir && !allowed(p) && !given(p) {
				t.Errorf("%q was let in", p)
			}
			if parent := tree.entries[path.Dir(p)]; path.Dir(p) != "/" && (parent == nil || parent.kind != tar.TypeDir) {
				t.Errorf("%q lies in no directory", p)
			}
			if strings.Contains(p, "\x00") {
				t.Errorf("%q has a NUL", p)
			}
		}
		if err := tree.write(io.Discard); err != nil {
			t.Errorf("writing: %v", err)
		}
	})
}
