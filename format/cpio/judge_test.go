//go:build judge

package cpio_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/cpio"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
)

func TestCpio(t *testing.T) {
	m := extent.Memory{}
	plan, err := cpio.Plan(initramfs(m), time.Unix(1735689600, 0))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "archive"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := plan.WriteSparse(t.Context(), f, m); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range strings.Split(judge.Run(t, []string{"cpio", "--list", "--verbose", "--numeric-uid-gid", "--quiet", "-F", "archive"}, f.Name()), "\n") {
		got = append(got, strings.Join(strings.Fields(l), " "))
	}
	want := []string{
		"-rwxr-xr-x 1 0 0 400004 Jan 1 2025 init",
		"drwxr-xr-x 2 0 0 0 Jan 1 2025 dev",
		"crw------- 1 0 0 5, 1 Jan 1 2025 dev/console",
		"brw-rw---- 1 0 6 7, 0 Jan 1 2025 dev/loop0",
		"drwxrwxrwt 2 0 0 0 Jan 1 2025 tmp",
		"drwxr-xr-x 2 0 0 0 Jan 1 2025 etc",
		"-rw------- 1 50 51 0 Jan 1 2025 etc/empty",
		"-rw------- 1 0 0 9 Jan 1 2025 etc/zeros",
		"lrwxrwxrwx 1 0 0 7 Jan 1 2025 etc/link -> ../init",
		"prw------- 1 0 0 0 Jan 1 2025 etc/fifo",
		"-r--r--r-- 1 0 0 2000000 Jan 1 2025 rootfs.sqsh",
		"",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cpio -tv (-want +got):\n%s", diff)
	}
}
