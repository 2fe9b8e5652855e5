//go:build vm || long || bench

package e2e

import (
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/format/gpt"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/rootfs"
)

var update = flag.Bool("update", false, "rewrite the golden files from what was built")

// golden compares text with a committed file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// partition copies one partition of the image to a file of its own.
func partition(t *testing.T, name string) string {
	t.Helper()
	image, err := os.Open(imageFile(t))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	info, err := image.Stat()
	if err != nil {
		t.Fatal(err)
	}
	table, err := gpt.Read(image, info.Size(), 512)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := table.Find(name)
	if !ok {
		t.Fatalf("the image has no partition %s", name)
	}
	file := filepath.Join(t.TempDir(), name)
	copied, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if _, err := io.Copy(copied, io.NewSectionReader(image, p.Start, p.Size)); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPartitionTable(t *testing.T) {
	out := judge.Run(t, []string{"sgdisk", "-v", "metal-amd64.raw"}, imageFile(t))
	if !strings.Contains(out, "No problems found") {
		t.Errorf("sgdisk -v:\n%s", out)
	}
	dump := judge.Run(t, []string{"sfdisk", "--dump", "metal-amd64.raw"}, imageFile(t))
	golden(t, "partitions.txt", regexp.MustCompile(`(?m)^device:.*\n|\S*metal-amd64\.raw`).ReplaceAllString(dump, ""))
}

// TestVolumes has the FAT file systems checked and listed, sizes left out.
func TestVolumes(t *testing.T) {
	for _, name := range []string{"EFI", "BOOT"} {
		file := partition(t, name)
		if out := judge.Run(t, []string{"fsck.vfat", "-n", "-v", name}, file); regexp.MustCompile(`(?i)wrong|differ|error|warning|dirty|orphan|reclaim`).MatchString(out) {
			t.Errorf("fsck.vfat on %s complains:\n%s", name, out)
		}
		golden(t, strings.ToLower(name)+".txt", judge.Run(t, []string{"mdir", "-/", "-b", "-i", name, "::"}, file))
	}
}

// TestUKI looks at the unified kernel image as a loader would.
func TestUKI(t *testing.T) {
	uki := filepath.Join(t.TempDir(), "uki.efi")
	judge.Run(t, []string{"mcopy", "-i", "EFI", "::EFI/Linux/talos-" + release.Version + ".efi", uki}, partition(t, "EFI"))
	sections := judge.Run(t, []string{"objdump", "-h", "uki.efi"}, uki)
	for _, name := range []string{".osrel", ".cmdline", ".linux", ".initrd", ".sbat"} {
		if strings.Count(sections, " "+name+" ") != 1 {
			t.Errorf("the UKI has not one section %s:\n%s", name, sections)
		}
	}
	if out := judge.Run(t, []string{"ukify", "inspect", "uki.efi"}, uki); !strings.Contains(out, release.BuildID) {
		t.Errorf("ukify shows no build ID %s:\n%s", release.BuildID, out)
	}
}

// squashfs returns the root that the image carries, which the store has.
func squashfs(t *testing.T) string {
	t.Helper()
	results, err := engine.Build(context.Background(), release.Root)
	if err != nil {
		t.Fatal(err)
	}
	from, err := engine.Store.Open(results[release.Root].Outputs[rootfs.Squashfs].Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	file := filepath.Join(t.TempDir(), rootfs.Squashfs)
	to, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	return file
}

const squashfsLimit, squashfsAim = 80 << 20, 45 << 20 // of the architecture; what we want

var (
	listLine  = regexp.MustCompile(`(?m)^(\S+) +(\S+) +\d+ \S+ \S+ squashfs-root(/\S*)?( -> \S+)?$`)
	unwelcome = regexp.MustCompile(`(?m)^\S+ \S+ \S*/(sh|bash|dash|busybox|login|su|sudo|apt\S*|dpkg\S*|python\S*|perl\S*|ls|cat|cp)( |$)`)
)

// TestRoot compares every file of the root with a committed list: an unexpected one fails, whoever brought it.
func TestRoot(t *testing.T) {
	file := squashfs(t)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("squashfs: %.1f MB", float64(info.Size())/1e6)
	if info.Size() > squashfsAim {
		t.Errorf("the root has %d bytes, more than the aim of %d (the limit is %d)", info.Size(), squashfsAim, squashfsLimit)
	}
	var list strings.Builder
	for _, m := range listLine.FindAllStringSubmatch(judge.Run(t, []string{"unsquashfs", "-llnumeric", rootfs.Squashfs}, file), -1) {
		list.WriteString(strings.TrimSpace(m[1]+" "+m[2]+" /"+strings.TrimPrefix(m[3], "/")+m[4]) + "\n")
	}
	golden(t, "root.txt", list.String())
	if bad := unwelcome.FindAllString(list.String(), -1); bad != nil {
		t.Errorf("the root holds what has no place in it: %q", bad)
	}
	if regexp.MustCompile(`(?m)^-\S*[sS]\S* `).MatchString(list.String()) {
		t.Error("the root holds a setuid or setgid file")
	}
}
