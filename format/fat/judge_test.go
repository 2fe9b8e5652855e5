//go:build judge

package fat_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/fat"
	"github.com/talos-factory/talos-factory/format/judge"
)

// fsck.vfat has nothing to say: its two lines are its version and a summary.
func TestFsck(t *testing.T) {
	m := extent.Memory{}
	wide := system(m)
	wide.SectorSize = 4096
	full := fat.Volume{Size: 40 * mib, Label: "FULL"}
	for _, content := range []int64{38 * mib, 512 << 10, 64 << 10, 16 << 10, 4096, 2048, 1024, 512, 512, 512} {
		name := strings.Repeat("x", len(full.Files)+1)
		full.Files = append(full.Files, fat.File{Path: name, Content: extent.New(content)})
	}
	for name, v := range map[string]fat.Volume{
		"system": system(m),
		"4096":   wide,
		"empty":  {Size: 33*mib + 512<<10, Label: "EMPTY", ID: 1},
		"odd":    {Size: 300*mib + 513, ID: 1},
		"full":   full,
	} {
		got := judge.Run(t, []string{"fsck.vfat", "-n", "volume"}, write(t, v, m))
		if lines := strings.Split(strings.TrimSpace(got), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[0], "fsck.fat 4") || !strings.Contains(lines[1], " files, ") {
			t.Errorf("%s: fsck.vfat:\n%s", name, got)
		}
	}
}

func TestMtools(t *testing.T) {
	m := extent.Memory{}
	v := system(m)
	name := write(t, v, m)

	got := judge.Run(t, []string{"mdir", "-/", "-b", "-i", "volume", "::"}, name)
	var listed []string
	for _, l := range strings.Split(strings.TrimSpace(got), "\n") {
		if !strings.Contains(l, "/many/") && !strings.Contains(l, ".txt") { // mtools prints the snowman as the locale has it
			listed = append(listed, l)
		}
	}
	want, err := os.ReadFile("testdata/mdir.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), listed); diff != "" {
		t.Errorf("mdir -/ -b (-want +got):\n%s", diff)
	}
	if n := strings.Count(got, "/many/a rather"); n != 300 {
		t.Errorf("mdir lists %d of 300 files", n)
	}

	for _, f := range v.Files[:8] {
		out := filepath.Join(t.TempDir(), "out")
		// In upper case, as firmware asks.
		judge.Run(t, []string{"mcopy", "-i", "volume", "::" + strings.ToUpper(f.Path), out}, name)
		got, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(f.Content.NewReader(m))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: mcopy got other bytes", f.Path)
		}
	}
}

// Short names are part of what a volume is: firmware may ask for them.
func TestShortNames(t *testing.T) {
	m := extent.Memory{}
	name := write(t, system(m), m)
	var b strings.Builder
	for _, dir := range []string{"::", "::EFI/Linux", "::loader"} {
		b.WriteString(judge.Run(t, []string{"mdir", "-i", "volume", dir}, name))
	}
	want, err := os.ReadFile("testdata/short.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ascii(string(want)), ascii(b.String())); diff != "" {
		t.Errorf("mdir (-want +got):\n%s", diff)
	}
}

// ascii drops what depends on the reader's locale.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 0x7f {
			return -1
		}
		return r
	}, s)
}
