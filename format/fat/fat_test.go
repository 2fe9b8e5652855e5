package fat_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/fat32"
	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/fat"
)

const mib = 1 << 20

func Example() {
	v := fat.Volume{Size: 64 * mib, Label: "EFI", ID: 0x12345678, Files: []fat.File{
		{Path: "loader/loader.conf", Content: extent.FromBytes([]byte("timeout 3\n"))},
	}}
	plan, err := v.Plan()
	if err != nil {
		panic(err)
	}
	fmt.Println(plan.Size(), "bytes, of which", plan.Literals(), "are literal")
	// Output: 67108864 bytes, of which 2322 are literal
}

// system is like an EFI partition: a UKI of two blobs, loaders, and names of all sorts.
func system(m extent.Memory) fat.Volume {
	rnd := rand.New(rand.NewPCG(3, 4))
	blob := func(n int) *extent.Plan {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return extent.FromBlob(m.Add(b))
	}
	v := fat.Volume{Size: 1024 * mib, Label: "EFI", ID: 0xCAFE0001, Time: time.Unix(1735689601, 0),
		Dirs: []string{"EFI/Linux", "empty"},
		Files: []fat.File{
			{Path: "EFI/BOOT/BOOTX64.EFI", Content: blob(140891)},
			{Path: "EFI/Linux/talos-v0.1.0+3.efi", Content: blob(9*mib + 5)},
			{Path: "EFI/Linux/talos-v0.1.0-old.efi", Content: blob(64 << 10)},
			{Path: "EFI/systemd/systemd-bootx64.efi", Content: blob(140891)},
			{Path: "loader/loader.conf", Content: extent.FromBytes([]byte("timeout 3\n"))},
			{Path: "loader/entries.srel", Content: extent.FromBytes([]byte("type1\n"))},
			{Path: "grub/grubenv", Content: extent.FromBytes(bytes.Repeat([]byte("#"), 1024))},
			{Path: "zero", Content: extent.New(0)},
			{Path: "Ünïcödé ☃.txt", Content: extent.FromBytes([]byte("snow"))},
			{Path: "exactly13char", Content: extent.FromBytes([]byte("13"))},
			{Path: "a.b.c", Content: extent.FromBytes([]byte("dots"))},
			{Path: ".hidden", Content: extent.FromBytes([]byte("h"))},
		}}
	for i := range 300 { // a directory of several clusters, with many equal short names
		v.Files = append(v.Files, fat.File{Path: fmt.Sprintf("many/a rather long file name %03d.text", i), Content: extent.FromBytes([]byte{byte(i)})})
	}
	return v
}

func TestTwiceTheSame(t *testing.T) {
	plan := func(reverse bool) *extent.Plan {
		m := extent.Memory{}
		v := system(m)
		if reverse { // the order of the lists does not matter
			for i, j := 0, len(v.Files)-1; i < j; i, j = i+1, j-1 {
				v.Files[i], v.Files[j] = v.Files[j], v.Files[i]
			}
		}
		p, err := v.Plan()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b := plan(false), plan(true)
	if diff := cmp.Diff(a.Extents(), b.Extents()); diff != "" {
		t.Error(diff)
	}
}

func TestContentIsAligned(t *testing.T) {
	m := extent.Memory{}
	p, err := system(m).Plan()
	if err != nil {
		t.Fatal(err)
	}
	big := 0
	for _, e := range p.Extents() {
		if e.Literal == nil {
			big++
			if e.Off%fat.Align != 0 {
				t.Errorf("a blob of %d bytes lies at %d", e.Len, e.Off)
			}
		}
	}
	if big != 4 {
		t.Errorf("got %d blobs, want 4", big)
	}
	if n := p.Literals(); n > 256<<10 {
		t.Errorf("%d literal bytes", n)
	}
}

// A 1 GiB volume that is full to the last aligned cluster still has not more than 1 MiB of literals and a bit.
func TestFullVolume(t *testing.T) {
	v := fat.Volume{Size: 1024 * mib, Files: []fat.File{{Path: "all", Content: extent.FromBlob(extent.Blob{Size: 1000 * mib})}}}
	p, err := v.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Literals(); n > mib {
		t.Errorf("%d literal bytes", n)
	}
	v.Files[0].Content = extent.FromBlob(extent.Blob{Size: 1024 * mib})
	_, err = v.Plan()
	if !errors.Is(err, fat.ErrNoSpace) || !strings.Contains(err.Error(), "are needed") {
		t.Errorf("got %v, want ErrNoSpace with figures", err)
	}
	// To the very last cluster.
	for size := int64(1024 * mib); ; size -= 8 << 10 {
		v.Files[0].Content = extent.FromBlob(extent.Blob{Size: size})
		if _, err := v.Plan(); err == nil {
			break
		} else if !errors.Is(err, fat.ErrNoSpace) || size < 1000*mib {
			t.Fatal(err)
		}
	}
}

// go-diskfs's reader sees the files.
func TestLibraryReads(t *testing.T) {
	m := extent.Memory{}
	v := system(m)
	name := write(t, v, m)
	b, err := file.OpenFromPath(name, true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	vol, err := fat32.Read(b, v.Size, 0, 512)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range v.Files[:10] {
		if f.Content.Size() == 0 || strings.ContainsRune(f.Path, '☃') {
			continue // go-diskfs 1.9.4 opens no empty file, and reads long names as bytes
		}
		r, err := vol.OpenFile("/"+f.Path, os.O_RDONLY)
		if err != nil {
			t.Errorf("%s: %v", f.Path, err)
			continue
		}
		// Not ReadAll: near a file's end go-diskfs 1.9.4 counts bytes it did not read.
		got := make([]byte, f.Content.Size())
		if _, err := io.ReadFull(r, got); err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
		want, _ := io.ReadAll(f.Content.NewReader(m))
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes, want %d", f.Path, len(got), len(want))
		}
	}
	if _, err := vol.OpenFile("/nothing", os.O_RDONLY); !errors.Is(err, fs.ErrNotExist) && err == nil {
		t.Error("opened a file that is not there")
	}
}

func TestRefusals(t *testing.T) {
	one := extent.FromBytes([]byte("1"))
	for _, c := range []struct {
		want string
		v    fat.Volume
	}{
		{"clusters", fat.Volume{Size: 16 * mib}},
		{"sectors of 1000", fat.Volume{Size: 64 * mib, SectorSize: 1000}},
		{"2^32 sectors", fat.Volume{Size: 4 << 40}},
		{"volume label", fat.Volume{Size: 64 * mib, Label: "lower"}},
		{"volume label", fat.Volume{Size: 64 * mib, Label: "LONGER THAN ELEVEN"}},
		{"exists (FAT ignores case)", fat.Volume{Size: 64 * mib, Files: []fat.File{{"a/B", one}, {"a/b", one}}}},
		{`directory "a" also as "A"`, fat.Volume{Size: 64 * mib, Files: []fat.File{{"a/x", one}, {"A/y", one}}}},
		{"it is a file", fat.Volume{Size: 64 * mib, Files: []fat.File{{"a", one}, {"a/b", one}}}},
		{`cannot use ".."`, fat.Volume{Size: 64 * mib, Files: []fat.File{{"../a", one}}}},
		{`cannot use ""`, fat.Volume{Size: 64 * mib, Files: []fat.File{{"/a", one}}}},
		{"has one of", fat.Volume{Size: 64 * mib, Files: []fat.File{{"a:b", one}}}},
		{"space or dot", fat.Volume{Size: 64 * mib, Files: []fat.File{{"a.", one}}}},
		{"control", fat.Volume{Size: 64 * mib, Files: []fat.File{{"a\n", one}}}},
		{"UTF-8", fat.Volume{Size: 64 * mib, Files: []fat.File{{"a\xff", one}}}},
		{"255", fat.Volume{Size: 64 * mib, Files: []fat.File{{strings.Repeat("x", 256), one}}}},
		{"FAT32 allows", fat.Volume{Size: 8 << 30, Files: []fat.File{{"a", extent.New(4 << 30)}}}},
		{"no content", fat.Volume{Size: 64 * mib, Files: []fat.File{{"a", nil}}}},
	} {
		_, err := c.v.Plan()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

// write makes the volume's file.
func write(t *testing.T, v fat.Volume, m extent.Memory) string {
	t.Helper()
	p, err := v.Plan()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "volume"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.WriteSparse(t.Context(), f, m); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// TestOffset: a file lies where the volume says.
func TestOffset(t *testing.T) {
	m := extent.Memory{}
	v := system(m)
	p, err := v.Plan()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range v.Files[:8] {
		off, err := v.Offset(f.Path)
		if f.Content.Size() == 0 {
			if err == nil {
				t.Errorf("%s is empty and lies at %d", f.Path, off)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, f.Content.Size())
		if _, err := p.NewReader(m).ReadAt(got, off); err != nil {
			t.Fatal(err)
		}
		if want, _ := io.ReadAll(f.Content.NewReader(m)); !bytes.Equal(got, want) {
			t.Errorf("%s does not lie at %d", f.Path, off)
		}
	}
	for _, name := range []string{"none", "EFI"} {
		if _, err := v.Offset(name); err == nil {
			t.Errorf("%s has an offset", name)
		}
	}
}
