package assembly_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/cpio"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/gpt"
	"github.com/talos-factory/talos-factory/profiles/assembly"
)

// iso is as large as a real one, of parts without meaning. extra is the size of a customization's archive.
func iso(t testing.TB, m extent.Memory, extra int) assembly.ISO {
	t.Helper()
	stub, err := os.ReadFile("../../format/uki/testdata/stub.efi")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{9})
	blob := func(n int) extent.Blob {
		b := make([]byte, n)
		random.Read(b)
		return m.Add(b)
	}
	initramfs, err := cpio.Plan([]cpio.Entry{
		{Path: "init", Mode: 0o755, Content: extent.FromBlob(blob(3 << 20))},
		{Path: "rootfs.sqsh", Mode: 0o444, Content: extent.FromBlob(blob(45 << 20))},
	}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	hybrid := make([]byte, 512)
	copy(hybrid[510:], "\x55\xaa")
	i := assembly.ISO{
		Parts: assembly.Parts{
			Arch: "amd64", Version: "v0.1.0", OSRelease: "ID=talos\nVERSION_ID=v0.1.0\n",
			Kernel: extent.FromBlob(blob(15<<20 + 512)), Initramfs: initramfs,
			SystemdBoot: bytes.Repeat([]byte("boot"), 31_000), SystemdStub: stub,
			GRUBHybrid: hybrid, GRUBElTorito: bytes.Repeat([]byte("grub"), 39_000),
		},
		Boot: assembly.Boot{Cmdline: []string{"console=ttyS0", "talos.platform=metal"}},
		Time: time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC),
	}
	if extra > 0 {
		i.Boot.Extra = extent.FromBlob(blob(extra))
	}
	if i.UKI, err = assembly.UKI(i.Parts, i.Boot); err != nil {
		t.Fatal(err)
	}
	return i
}

// TestISO: the same twice, few literals, and no byte of a blob twice.
func TestISO(t *testing.T) {
	for _, extra := range []int{0, 10 << 20, 40 << 20, 200 << 20} {
		m := extent.Memory{}
		i := iso(t, m, extra)
		p, err := i.Plan()
		if err != nil {
			t.Fatal(err)
		}
		again, err := i.Plan()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p.Extents(), again.Extents()); diff != "" {
			t.Error(diff)
		}
		if n := p.Literals(); n > 1<<20 {
			t.Errorf("%d literal bytes", n)
		}
		var stored, planned int64
		for _, b := range m {
			stored += int64(len(b))
		}
		seen := map[extent.Digest]bool{}
		for _, e := range p.Extents() {
			if e.Literal != nil {
				continue
			}
			planned += e.Len
			if seen[e.Blob.SHA256] {
				t.Errorf("blob %x is there twice", e.Blob.SHA256[:4])
			}
			seen[e.Blob.SHA256] = true
			if e.BlobOff == 0 && e.Off%4 != 0 {
				t.Errorf("blob %x begins at %d", e.Blob.SHA256[:4], e.Off)
			}
		}
		if planned != stored || len(seen) != len(m) {
			t.Errorf("%d bytes of %d blobs are planned, there are %d of %d", planned, len(seen), stored, len(m))
		}
		t.Logf("parts of %d bytes: an ISO of %d, %d of them literal", stored, p.Size(), p.Literals())
		if p.Size()%2048 != 0 || p.Size() > 2*stored+4<<20 {
			t.Errorf("the ISO has %d bytes", p.Size())
		}
	}
}

// TestISOFiles finds the kernel and the initramfs by what GRUB would read of directories.
func TestISOFiles(t *testing.T) {
	m := extent.Memory{}
	i := iso(t, m, 1<<20)
	p, err := i.Plan()
	if err != nil {
		t.Fatal(err)
	}
	r := p.NewReader(m)
	initramfs, err := assembly.Initrd(i.Parts, i.Boot)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]*extent.Plan{"VMLINUZ.;1": i.Parts.Kernel, "INITRAMFS.IMG;1": initramfs} {
		off, size := find(t, r, name)
		got, err := io.ReadAll(io.NewSectionReader(r, off, size))
		if err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(want.NewReader(m)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s has %d bytes, or others than the %d put in (%v)", name, len(got), len(content), err)
		}
	}
	off, size := find(t, r, "GRUB.CFG;1")
	config, err := io.ReadAll(io.NewSectionReader(r, off, size))
	if want := "linux /boot/vmlinuz 'console=ttyS0' 'talos.platform=metal'\n"; err != nil || !strings.Contains(string(config), want) || !strings.Contains(string(config), "v0.1.0") {
		t.Errorf("grub.cfg is %s (%v)", config, err)
	}
	table, err := gpt.Read(r, p.Size(), 512)
	if err != nil || table.FromBackup {
		t.Fatal(table, err)
	}
	if _, ok := table.Find("ISO-EFI"); !ok || len(table.Partitions) != 1 {
		t.Errorf("partitions are %v", table.Partitions)
	}
}

// find looks a directory record up by its identifier, in the first sectors, where all directories are.
func find(t *testing.T, r io.ReaderAt, id string) (off, size int64) {
	t.Helper()
	b := make([]byte, 128<<10)
	if _, err := r.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte(id)) - 33
	if at < 0 {
		t.Fatalf("no record of %s", id)
	}
	number := func(at int) int64 {
		return int64(b[at]) | int64(b[at+1])<<8 | int64(b[at+2])<<16 | int64(b[at+3])<<24
	}
	return number(at+2) * 2048, number(at + 10)
}

// TestISOOfUEFI: without GRUB there is no BIOS entry and no boot code.
func TestISOOfUEFI(t *testing.T) {
	i := iso(t, extent.Memory{}, 0)
	i.Parts.Arch, i.Parts.GRUBElTorito, i.Parts.GRUBHybrid = "arm64", nil, nil
	p, err := i.Plan()
	if err != nil {
		t.Fatal(err)
	}
	code := make([]byte, 440)
	if _, err := p.NewReader(nil).ReadAt(code, 0); err != nil || !bytes.Equal(code, make([]byte, 440)) {
		t.Errorf("the first sector has code (%v)", err)
	}
	platform := make([]byte, 2)
	if _, err := p.NewReader(nil).ReadAt(platform, 19*2048); err != nil || platform[1] != 0xef {
		t.Errorf("the boot catalog begins with % x (%v)", platform, err)
	}
}

func TestISORefusals(t *testing.T) {
	for want, change := range map[string]func(*assembly.ISO){
		"architecture":      func(i *assembly.ISO) { i.Parts.Arch = "mips" },
		"boot_hybrid.img":   func(i *assembly.ISO) { i.Parts.GRUBHybrid = nil },
		"volume identifier": func(i *assembly.ISO) { i.Label = "lower case" },
		"looking into":      func(i *assembly.ISO) { i.UKI = extent.New(1 << 20) },
		"a quote":           func(i *assembly.ISO) { i.Boot.Cmdline = []string{"it's"} },
	} {
		i := iso(t, extent.Memory{}, 0)
		change(&i)
		if _, err := i.Plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func ExampleVolumeLabel() {
	fmt.Println(assembly.VolumeLabel("v1.2.3-beta.1"))
	// Output: TALOS_V1_2_3_BETA_1
}
