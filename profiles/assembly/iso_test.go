package assembly_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/cpio"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/gpt"
	"github.com/talos-factory/talos-factory/format/iso9660"
	"github.com/talos-factory/talos-factory/profiles/assembly"
)

const kernelSize = 9<<20 + 512

// parts are as large as real ones and without meaning. blob makes one of a size.
func parts(t testing.TB, blob func(n int64) extent.Blob, elTorito []byte) assembly.Parts {
	t.Helper()
	stub, err := os.ReadFile("../../format/uki/testdata/stub.efi")
	if err != nil {
		t.Fatal(err)
	}
	initramfs, err := cpio.Plan([]cpio.Entry{
		{Path: "init", Mode: 0o755, Content: extent.FromBlob(blob(3 << 20))},
		{Path: "rootfs.sqsh", Mode: 0o444, Content: extent.FromBlob(blob(27 << 20))},
	}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	hybrid := make([]byte, 512)
	copy(hybrid[510:], "\x55\xaa")
	return assembly.Parts{
		Arch: "amd64", Version: "v0.1.0", OSRelease: "ID=talos\nVERSION_ID=v0.1.0\n",
		Kernel: extent.FromBlob(blob(kernelSize)), Initramfs: initramfs,
		SystemdBoot: bytes.Repeat([]byte("boot"), 31_000), SystemdStub: append(stub, make([]byte, 90<<10)...),
		GRUBHybrid: hybrid, GRUBElTorito: elTorito,
	}
}

// iso is an ISO that can be read: m has all its blobs.
func iso(t testing.TB, m extent.Memory) assembly.ISO {
	t.Helper()
	random := rand.NewChaCha8([32]byte{9})
	blob := func(n int64) extent.Blob {
		b := make([]byte, n)
		random.Read(b)
		return m.Add(b)
	}
	elTorito := bytes.Repeat([]byte("grub"), 39_000)
	m.Add(elTorito)
	return finish(t, assembly.ISO{
		Parts: parts(t, blob, elTorito),
		Boot:  assembly.Boot{Cmdline: []string{"console=ttyS0", "talos.platform=metal"}, Extra: extent.FromBlob(blob(1 << 20))},
		Time:  time.Date(2020, 3, 2, 1, 0, 0, 0, time.UTC),
	})
}

func finish(t testing.TB, i assembly.ISO) assembly.ISO {
	t.Helper()
	var err error
	if i.UKI, err = assembly.UKI(i.Parts, i.Boot); err != nil {
		t.Fatal(err)
	}
	return i
}

// TestISO: the same twice, few literals, nothing stored more than once, whatever a customization brings. The blobs are never opened.
func TestISO(t *testing.T) {
	for _, extra := range []int64{0, 10 << 20, 40 << 20, 200 << 20, 1 << 30} {
		var stored int64
		blobs := map[extent.Digest]int64{}
		blob := func(n int64) extent.Blob {
			b := extent.Blob{SHA256: extent.Digest{byte(len(blobs) + 1)}, Size: n}
			blobs[b.SHA256], stored = n, stored+n
			return b
		}
		i := assembly.ISO{Parts: parts(t, blob, make([]byte, 156_000))}
		if extra > 0 {
			i.Boot.Extra = extent.FromBlob(blob(extra))
		}
		p, err := finish(t, i).Plan()
		if err != nil {
			t.Fatal(err)
		}
		again, err := finish(t, i).Plan()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(p.Extents(), again.Extents()) { // cmp takes seconds for so many bytes
			t.Error("planned twice, the ISO is not the same")
		}
		if n := p.Literals(); n > 1<<20 {
			t.Errorf("%d literal bytes", n)
		}
		once(t, p, blobs)
		t.Logf("parts of %4d MiB: an ISO of %4d MiB, %d bytes of it literal", stored>>20, p.Size()>>20, p.Literals())
		if p.Size()%(1<<20) != 0 || p.Size() > stored*3/2+4<<20 {
			t.Errorf("the ISO has %d bytes", p.Size())
		}
	}
}

// once fails unless the plan has each of the blobs exactly once, and the kernel where other formats can share it.
func once(t *testing.T, p *extent.Plan, blobs map[extent.Digest]int64) {
	t.Helper()
	planned := map[extent.Digest]int64{}
	for _, e := range p.Extents() {
		if _, known := blobs[e.Blob.SHA256]; e.Literal != nil || !known {
			continue
		}
		if planned[e.Blob.SHA256] != e.BlobOff {
			t.Errorf("blob %x: byte %d comes after byte %d", e.Blob.SHA256[0], e.BlobOff, planned[e.Blob.SHA256])
		}
		planned[e.Blob.SHA256] += e.Len
		if e.Len == kernelSize && e.Off%(64<<10) != 0 {
			t.Errorf("the kernel begins at %d", e.Off)
		}
	}
	if diff := cmp.Diff(blobs, planned); diff != "" {
		t.Errorf("bytes of each blob (-stored +planned):\n%s", diff)
	}
}

// TestISOFiles finds the kernel and the initramfs by what GRUB would read of directories.
func TestISOFiles(t *testing.T) {
	m := extent.Memory{}
	i := iso(t, m)
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

// TestLargeISO: files that come first push everything else beyond 4 GiB.
func TestLargeISO(t *testing.T) {
	m := extent.Memory{}
	i := iso(t, m)
	i.Files = []iso9660.File{{Path: "a", Content: extent.New(5 << 30)}}
	p, err := i.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Literals(); n > 1<<20 {
		t.Errorf("%d literal bytes", n)
	}
	off, size := find(t, p.NewReader(m), "VMLINUZ.;1")
	got, err := io.ReadAll(io.NewSectionReader(p.NewReader(m), off, size))
	if err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(i.Parts.Kernel.NewReader(m)); err != nil || !bytes.Equal(got, content) || off < 5<<30 {
		t.Errorf("the kernel lies at %d, or has other bytes (%v)", off, err)
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
	i := iso(t, extent.Memory{})
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
		i := iso(t, extent.Memory{})
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

func BenchmarkISO(b *testing.B) {
	i := finish(b, assembly.ISO{Parts: parts(b, func(n int64) extent.Blob { return extent.Blob{SHA256: extent.Digest{byte(n)}, Size: n} }, make([]byte, 156_000))})
	for b.Loop() {
		if _, err := i.Plan(); err != nil {
			b.Fatal(err)
		}
	}
}
