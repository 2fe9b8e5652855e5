//go:build vm || long

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/factory/vm"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/profiles"
)

// builtFile builds one artifact, as factory build does.
func builtFile(t *testing.T, name string, change func(*profiles.Profile)) string {
	t.Helper()
	profile, err := profiles.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&profile)
	}
	artifacts, err := release.Build(t.Context(), engine, profile, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return artifacts[len(artifacts)-1].Path
}

// TestDiskFormats has qemu-img check the formats and compare the disks in them with the raw one.
func TestDiskFormats(t *testing.T) {
	raw := imageFile(t)
	for _, test := range []struct {
		format, subformat, qemu string
		check                   bool
	}{
		{profiles.QCOW2, "", "qcow2", true}, {profiles.VMDK, "", "vmdk", true},
		{profiles.VHD, "dynamic", "vpc", false}, {profiles.VHD, "fixed", "vpc", false}, // qemu-img knows no check of VHD
	} {
		t.Run(test.format+test.subformat, func(t *testing.T) {
			file := builtFile(t, "metal", func(p *profiles.Profile) {
				p.Output.DiskFormat, p.Output.Subformat = test.format, test.subformat
			})
			if test.check {
				judge.Run(t, []string{"qemu-img", "check", "-f", test.qemu, filepath.Base(file)}, file)
			}
			judge.Run(t, []string{"qemu-img", "compare", "-f", "raw", "-F", test.qemu, filepath.Base(raw), filepath.Base(file)}, raw, file)
		})
	}
}

// TestCompressions has the usual tools decompress what was spliced, and compares.
func TestCompressions(t *testing.T) {
	raw := imageFile(t)
	for _, test := range []struct {
		compression string
		argv        []string // the last word is the compressed file's name
		out         string
	}{
		{profiles.Zstd, []string{"zstd", "-d", "-q", "-o", "OUT"}, "OUT"},
		{profiles.XZ, []string{"xz", "--decompress", "--keep"}, ""},
		{profiles.Gzip, []string{"gzip", "--decompress", "--keep"}, ""},
	} {
		t.Run(test.compression, func(t *testing.T) {
			file := builtFile(t, "metal", func(p *profiles.Profile) { p.Output.Compression = test.compression })
			out := strings.TrimSuffix(file, "."+test.compression)
			argv := append([]string{}, test.argv...)
			for i, arg := range argv {
				if arg == "OUT" {
					argv[i] = out
				}
			}
			judge.Run(t, append(argv, filepath.Base(file)), file)
			judge.Run(t, []string{"qemu-img", "compare", "-f", "raw", "-F", "raw", raw, out})
		})
	}
}

// TestGoogleArchive: GNU tar takes the disk out, which has 8 GiB.
func TestGoogleArchive(t *testing.T) {
	file := builtFile(t, "gcp", nil)
	list := judge.Run(t, []string{"tar", "--list", "--verbose", "--gzip", "--file", filepath.Base(file)}, file)
	if !strings.Contains(list, "8589934592") || !strings.HasSuffix(strings.TrimSpace(list), " disk.raw") || strings.Count(list, "\n") != 1 {
		t.Errorf("tar lists:\n%s", list)
	}
}

// TestOVA unpacks an OVA and has its digests checked and its disk read.
func TestOVA(t *testing.T) {
	file, dir := builtFile(t, "vmware", nil), t.TempDir()
	judge.Run(t, []string{"tar", "--extract", "--directory", dir, "--file", filepath.Base(file)}, file)
	sums := judge.Run(t, []string{"sha256sum", "--tag", filepath.Join(dir, "vmware-amd64.ovf"), filepath.Join(dir, "vmware-amd64.vmdk")})
	manifest := judge.Run(t, []string{"cat", filepath.Join(dir, "vmware-amd64.mf")})
	for line := range strings.Lines(manifest) {
		name, digest, ok := strings.Cut(strings.TrimSpace(line), "= ")
		if !ok || !strings.Contains(sums, digest) {
			t.Errorf("the manifest says %s of %s; sha256sum says\n%s", digest, name, sums)
		}
	}
	judge.Run(t, []string{"qemu-img", "check", "-f", "vmdk", filepath.Join(dir, "vmware-amd64.vmdk")})
}

// TestLargeSectors boots a disk whose sectors have 4096 bytes and lets it grow and format its partitions.
func TestLargeSectors(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	if err := vm.NewDisk(disk, builtFile(t, "metal-4k", nil), diskSize); err != nil {
		t.Fatal(err)
	}
	m := boot(t, vm.Machine{Firmware: vm.UEFI, Drives: []vm.Drive{{File: disk, SectorSize: 4096}}})
	m.maintenance()
	m.must([]string{"gen", "config", "large", "https://127.0.0.1:6443", "--output", m.config})
	m.configure()
	m.showsBuildID()
	m.varFillsDisk()
	m.must(m.secure("shutdown"))
	m.waitOff(serviceLimit)
}
