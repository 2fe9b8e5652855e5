//go:build judge

package tar_test

import (
	stdtar "archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/format/tar"
)

func write(t *testing.T, p *extent.Plan, src extent.Source) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "archive.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.WriteSparse(t.Context(), f, src); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func TestGNUTar(t *testing.T) {
	big := tar.File{Path: "disk.raw", Mode: 0o644, Content: extent.New(9 << 30)}
	for _, format := range []stdtar.Format{stdtar.FormatUSTAR, stdtar.FormatPAX, stdtar.FormatGNU} {
		m := extent.Memory{}
		files := layer(m)
		want := []string{
			"drwxr-xr-x 0/0 0 2025-01-01 00:00 bin/",
			"-rwsr-xr-x 0/0 400004 2025-01-01 00:00 bin/tool",
			"lrwxrwxrwx 0/0 0 2025-01-01 00:00 bin/sh -> tool",
			"drwxrwxrwt 0/0 0 2025-01-01 00:00 tmp/",
			"-r-------- 50/51 0 2025-01-01 00:00 empty",
			"-rw------- 0/0 1048576 2025-01-01 00:00 sparse",
		}
		if format != stdtar.FormatUSTAR {
			files = append(files, big)
			want = append(want, "-rw-r--r-- 0/0 9663676416 2025-01-01 00:00 disk.raw")
		}
		plan, err := tar.Plan(files, tar.Options{Format: format, Time: when})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		out := judge.Run(t, []string{"tar", "--list", "--verbose", "--numeric-owner", "--file", "archive.tar"}, write(t, plan, m))
		for _, l := range strings.Split(strings.TrimSpace(out), "\n") {
			got = append(got, strings.Join(strings.Fields(l), " "))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: tar -tv (-want +got):\n%s", format, diff)
		}
	}
}
