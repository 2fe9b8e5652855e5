//go:build judge

package assembly_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/profiles/assembly"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestISOJudges: xorriso knows it for a hybrid ISO and finds files, boot images and boot code; sgdisk has nothing to say of
// the partition table; fsck.vfat nothing of the partition; and what they extract is what was put in.
func TestISOJudges(t *testing.T) {
	m := extent.Memory{}
	i := iso(t, m)
	plan, err := i.Plan()
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.Create(filepath.Join(t.TempDir(), "image.iso"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if err := plan.WriteSparse(t.Context(), image, m); err != nil {
		t.Fatal(err)
	}
	xorriso := func(command ...string) string {
		t.Helper()
		argv := []string{"xorriso", "-report_about", "WARNING", "-return_with", "WARNING", "32", "-indev", "image.iso"}
		_, out, _ := strings.Cut(judge.Run(t, append(argv, command...), image.Name()), "\n\n")
		return out
	}
	report := xorriso("-find", "/", "-exec", "lsdl", "--") + xorriso("-report_el_torito", "plain") + xorriso("-report_system_area", "plain")
	golden(t, "iso.txt", report)

	if out := judge.Run(t, []string{"sgdisk", "-v", "image.iso"}, image.Name()); !strings.Contains(out, "No problems found") || strings.Contains(out, "Caution") {
		t.Errorf("sgdisk -v:\n%s", out)
	}

	dir := filepath.Join(t.TempDir(), "out")
	xorriso("-osirrox", "on", "-extract", "/boot", dir)
	t.Cleanup(func() { os.Chmod(dir, 0o755); os.Chmod(filepath.Join(dir, "grub"), 0o755) })
	efi := filepath.Join(dir, "efi.img")
	if out := judge.Run(t, []string{"fsck.vfat", "-n", "-v", "efi.img"}, efi); regexp.MustCompile(`(?i)wrong|differ|error|warning|dirty|orphan|reclaim`).MatchString(out) {
		t.Errorf("fsck.vfat complains:\n%s", out)
	}
	uki := filepath.Join(t.TempDir(), "uki.efi")
	judge.Run(t, []string{"mcopy", "-i", "efi.img", "::" + assembly.UKIPath("v0.1.0"), uki}, efi)
	initramfs, err := assembly.Initrd(i.Parts, i.Boot)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]*extent.Plan{uki: i.UKI, filepath.Join(dir, "vmlinuz"): i.Parts.Kernel, filepath.Join(dir, "initramfs.img"): initramfs} {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(want.NewReader(m)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s has other bytes than were put in (%v)", filepath.Base(file), err)
		}
	}
}

// golden compares text with a committed file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}
