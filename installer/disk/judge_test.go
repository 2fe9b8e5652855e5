//go:build judge

package disk

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/format/meta"
	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

// TestJudges has foreign readers look at a disk that something else was on before, larger than the layout and of an odd size.
func TestJudges(t *testing.T) {
	r := newRelease(t)
	const size = 3<<30 + 5*512
	file := dirtyDisk(t, size)
	i := Install{
		Source: r.source(t, nil), Arch: "amd64", Target: file, Force: true,
		ExtraArgs: []string{"debug"}, Meta: meta.Values{0xc: []byte("text")},
	}
	if err := i.Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	if out := judge.Run(t, []string{"sgdisk", "-v", "disk"}, file); !strings.Contains(out, "No problems found") {
		t.Errorf("sgdisk -v:\n%s", out)
	}
	for _, label := range []string{layout.EFI, layout.BOOT} {
		volume := partition(t, file, label)
		out := judge.Run(t, []string{"fsck.vfat", "-n", "-v", label}, volume)
		if regexp.MustCompile(`(?i)wrong|differ|error|warning|dirty|orphan|reclaim`).MatchString(out) {
			t.Errorf("fsck.vfat on %s complains:\n%s", label, out)
		}
	}
	if out := judge.Run(t, []string{"mtype", "-i", "EFI", "::grub/A/boot.cfg"}, partition(t, file, layout.EFI)); !strings.Contains(out, "'debug'") {
		t.Errorf("GRUB's arguments: %s", out)
	}
}

func partition(t *testing.T, disk, label string) string {
	t.Helper()
	from, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	p, _ := layout.Metal().Find(label)
	to, err := os.Create(filepath.Join(t.TempDir(), label))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := io.Copy(to, io.NewSectionReader(from, p.Start, p.Size)); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}
