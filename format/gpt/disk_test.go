package gpt_test

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/cpio"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/fat"
	"github.com/talos-factory/talos-factory/format/gpt"
	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/format/pe"
	"github.com/talos-factory/talos-factory/format/uki"
	"github.com/talos-factory/talos-factory/profiles/disk"
)

// whole is a disk as the factory makes it, of blobs that nobody has: planning must not need them.
func whole(t *testing.T) *extent.Plan {
	t.Helper()
	blob := func(id byte, size int64) *extent.Plan {
		return extent.FromBlob(extent.Blob{SHA256: extent.Digest{id}, Size: size})
	}
	must := func(p *extent.Plan, err error) *extent.Plan {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	kernel := blob(1, 15_321_600)
	initrd := must(cpio.Plan([]cpio.Entry{
		{Path: "init", Mode: 0o755, Content: blob(2, 2_345_679)},
		{Path: "rootfs.sqsh", Mode: 0o444, Content: blob(3, 79_691_776)},
	}, time.Unix(0, 0)))
	stub, err := os.ReadFile("../uki/testdata/stub.efi")
	if err != nil {
		t.Fatal(err)
	}
	image := must(uki.Image{Stub: stub, OSRelease: "ID=talos\n", Cmdline: "quiet", Linux: kernel, Initrd: initrd}.Plan())
	contents := map[string]*extent.Plan{
		disk.EFI: must(fat.Volume{Size: 1 << 30, Label: disk.EFI, ID: disk.VolumeID(disk.EFI), Files: []fat.File{
			{Path: "EFI/BOOT/BOOTX64.EFI", Content: blob(4, 140_891)},
			{Path: "EFI/Linux/A.efi", Content: image},
		}}.Plan()),
		disk.BIOS: blob(5, 70_144),
		disk.BOOT: must(fat.Volume{Size: 1 << 30, Label: disk.BOOT, ID: disk.VolumeID(disk.BOOT), Files: []fat.File{
			{Path: "A/vmlinuz", Content: kernel},
			{Path: "A/initramfs.cpio", Content: initrd},
			{Path: "grub/grub.cfg", Content: extent.FromBytes(bytes.Repeat([]byte("#"), 2000))},
		}}.Plan()),
		disk.META: must(meta.Values{meta.DiskImageBootloader: []byte("dual-boot")}.Plan()),
	}
	table := metal(512)
	p := must(table.Plan())
	p.PutBytes(0, bytes.Repeat([]byte{0x90}, 440))
	for name, content := range contents {
		part, ok := table.Find(name)
		if !ok {
			t.Fatalf("no partition %s", name)
		}
		p.Nest(part.Start, content)
	}
	return must(p, p.Err())
}

func TestWholeDisk(t *testing.T) {
	p := whole(t)
	if n := p.Literals(); n > 1<<20 {
		t.Errorf("%d literal bytes, want at most 1 MiB", n)
	}
	if diff := cmp.Diff(p.Extents(), whole(t).Extents()); diff != "" {
		t.Errorf("planned twice:\n%s", diff)
	}
	kernels := 0
	for _, e := range p.Extents() {
		if e.Literal == nil && e.Blob.SHA256 == (extent.Digest{1}) {
			kernels++
			if e.Off%pe.Align != 0 {
				t.Errorf("a kernel lies at %d", e.Off)
			}
		}
	}
	if kernels != 2 {
		t.Errorf("got %d kernels, want that of EFI and that of BOOT", kernels)
	}
	// What is only literal can be read without a store.
	part, _ := metal(512).Find(disk.META)
	values, err := meta.Parse(io.NewSectionReader(p.NewReader(nil), part.Start, part.Size))
	if err != nil || len(values) != 1 {
		t.Errorf("META: %v, %v", values, err)
	}
	if _, err := gpt.Read(p.NewReader(nil), p.Size(), 512); err != nil {
		t.Error(err)
	}
	t.Logf("%d bytes in %d extents, %d of them literal", p.Size(), len(p.Extents()), p.Literals())
}
