//go:build judge

package assembly_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/profiles/assembly"
)

// TestEnrollmentFiles: another reader of FAT finds the keys where systemd-boot looks for them.
func TestEnrollmentFiles(t *testing.T) {
	m := extent.Memory{}
	i := iso(t, m)
	i.Enrollment = &assembly.Enrollment{Mode: assembly.DefaultEnroll, Variables: variables()}
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
	dir := filepath.Join(t.TempDir(), "out")
	judge.Run(t, []string{"xorriso", "-indev", "image.iso", "-osirrox", "on", "-extract", "/boot", dir}, image.Name())
	t.Cleanup(func() { os.Chmod(dir, 0o755); os.Chmod(filepath.Join(dir, "grub"), 0o755) })
	efi := filepath.Join(dir, "efi.img")
	for name, want := range map[string]string{
		"loader/loader.conf":        "timeout 3\neditor no\nsecure-boot-enroll if-safe\n",
		"loader/keys/auto/PK.auth":  "update of PK",
		"loader/keys/auto/KEK.auth": "update of KEK",
		"loader/keys/auto/db.auth":  "update of db",
	} {
		if got := judge.Run(t, []string{"mtype", "-i", "efi.img", "::" + name}, efi); strings.ReplaceAll(got, "\r", "") != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := judge.Run(t, []string{"mdir", "-b", "-i", "efi.img", "::loader/keys/auto"}, efi); strings.Count(got, "\n") != 3 {
		t.Errorf("loader/keys/auto has other files:\n%s", got)
	}
}
