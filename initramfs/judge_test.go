//go:build judge

package initramfs

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
)

// TestCPIOReadsIt has GNU cpio list the archive.
func TestCPIOReadsIt(t *testing.T) {
	blobs := extent.Memory{}
	plan, err := Plan(blobs.Add([]byte("a program")), extent.FromBlob(blobs.Add(make([]byte, 5000))))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "initramfs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.WriteSparse(context.Background(), file, blobs); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	got := judge.Run(t, []string{"cpio", "-tv", "--numeric-uid-gid", "--quiet", "-F", "initramfs"}, file.Name())
	want := `drwxr-xr-x   2 0        0               0 Jan  1  1970 dev
crw-------   1 0        0          5,   1 Jan  1  1970 dev/console
-rwxr-xr-x   1 0        0               9 Jan  1  1970 init
-r--r--r--   1 0        0            5000 Jan  1  1970 rootfs.sqsh
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cpio -tv (-want +got):\n%s", diff)
	}
}
