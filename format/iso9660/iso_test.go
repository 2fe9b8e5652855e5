package iso9660_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/iso9660"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

func Example() {
	v := iso9660.Volume{ID: "EXAMPLE", Files: []iso9660.File{
		{Path: "boot/grub/grub.cfg", Content: extent.FromBytes([]byte("set timeout=3\n"))},
	}}
	plan, err := v.Plan()
	if err != nil {
		panic(err)
	}
	fmt.Println(plan.Size(), "bytes, of which", plan.Literals(), "are literal")
	// Output: 1048576 bytes, of which 8518 are literal
}

// system is like a bootable ISO: a boot image, a large image whose parts are files too, and names of all sorts.
func system(m extent.Memory) iso9660.Volume {
	rnd := rand.New(rand.NewPCG(5, 6))
	blob := func(n int) *extent.Plan {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return extent.FromBlob(m.Add(b))
	}
	v := iso9660.Volume{
		ID: "TALOS_V0_1_0", Application: "Talos Factory v0.1.0", Time: time.Date(2020, 5, 4, 3, 2, 1, 0, time.UTC), Tail: 18 * kib,
		Files: []iso9660.File{
			{Path: "boot/efi.img", Content: blob(3*mib + 777), Align: mib},
			{Path: "boot/vmlinuz", Alias: iso9660.Range{Path: "boot/efi.img", Offset: 128 * kib, Size: mib + 5}},
			{Path: "boot/initramfs.img", Alias: iso9660.Range{Path: "boot/efi.img", Offset: 2 * mib, Size: mib + 777}},
			{Path: "boot/grub/eltorito.img", Content: blob(70_000)},
			{Path: "boot/grub/grub.cfg", Content: extent.FromBytes([]byte("set timeout=3\n"))},
			{Path: "empty", Content: extent.New(0)},
			{Path: "Name with blanks, and ümlauts.text", Content: blob(5000)},
			{Path: ".hidden", Content: blob(2048)},
			{Path: "a/b/c/d/e/f/g/deep", Content: blob(100)},
			{Path: strings.Repeat("x", 134), Content: blob(10)},
		},
		Boot: []iso9660.Boot{
			{Platform: iso9660.BIOS, Path: "boot/grub/eltorito.img", Sectors: 4},
			{Platform: iso9660.UEFI, Path: "boot/efi.img", Sectors: 1},
		},
	}
	for i := range 100 {
		v.Files = append(v.Files, iso9660.File{Path: fmt.Sprintf("many/a rather long name, number %03d.conf", i), Content: extent.FromBytes(fmt.Append(nil, i))})
	}
	return v
}

// content is what a file of the volume holds.
func content(t testing.TB, v iso9660.Volume, f iso9660.File, m extent.Memory) []byte {
	t.Helper()
	r := f.Alias
	if f.Content != nil {
		r = iso9660.Range{Path: f.Path, Size: f.Content.Size()}
	}
	i := slices.IndexFunc(v.Files, func(f iso9660.File) bool { return f.Path == r.Path })
	b := make([]byte, r.Size)
	if _, err := v.Files[i].Content.NewReader(m).ReadAt(b, r.Offset); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return b
}

// write makes a sparse file of the plan.
func write(t testing.TB, v iso9660.Volume, m extent.Memory) string {
	t.Helper()
	p, err := v.Plan()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "image.iso"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.WriteSparse(t.Context(), f, m); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// TestPlan: the same twice, few literals, large contents where others can share them, the ends left to the caller.
func TestPlan(t *testing.T) {
	m := extent.Memory{}
	v := system(m)
	p, err := v.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if p.Size()%mib != 0 {
		t.Errorf("the volume has %d bytes: not whole MiB", p.Size())
	}
	if n := p.Literals(); n > 64*kib {
		t.Errorf("%d literal bytes", n)
	}
	slices.Reverse(v.Files) // the order of the list means nothing
	again, err := v.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.Extents(), again.Extents()); diff != "" {
		t.Error(diff)
	}
	blobs := map[extent.Digest]int{}
	for _, e := range p.Extents() {
		if e.Off < iso9660.SystemArea || e.Off+e.Len > p.Size()-v.Tail {
			t.Errorf("something lies at %d", e.Off)
		}
		if e.Literal == nil {
			blobs[e.Blob.SHA256]++
			if e.Len >= iso9660.Align && e.Off%iso9660.Align != 0 {
				t.Errorf("%d bytes of a blob lie at %d", e.Len, e.Off)
			}
		}
	}
	for d, n := range blobs {
		if n != 1 {
			t.Errorf("blob %x is there %d times", d[:4], n)
		}
	}
	l, err := v.Layout()
	if err != nil {
		t.Fatal(err)
	}
	efi, _ := l.Offset("boot/efi.img")
	linux, err := l.Offset("boot/vmlinuz")
	if err != nil || efi%mib != 0 || linux != efi+128*kib {
		t.Errorf("efi.img lies at %d, vmlinuz at %d (%v)", efi, linux, err)
	}
	if _, err := l.Offset("boot/none"); err == nil {
		t.Error("a missing file has an offset")
	}
	if err := p.PutBytes(0, make([]byte, iso9660.SystemArea)); err != nil {
		t.Error(err)
	}
}

// TestReader reads the volume as an operating system does: from the descriptor down, by Rock Ridge names.
func TestReader(t *testing.T) {
	m := extent.Memory{}
	v := system(m)
	p, err := v.Plan()
	if err != nil {
		t.Fatal(err)
	}
	got := read(t, p.NewReader(m))
	for _, f := range v.Files {
		want := content(t, v, f, m)
		if e, ok := got[f.Path]; !ok || e.mode != 0o100444 || e.stamp != "2020-05-04 03:02:01" || !bytes.Equal(e.bytes(t, p.NewReader(m)), want) {
			t.Errorf("%s: there (%v): mode %o, time %s, %d bytes, or others than the %d it has", f.Path, ok, e.mode, e.stamp, e.size, len(want))
		}
		delete(got, f.Path)
	}
	var rest []string
	for name, e := range got {
		rest = append(rest, fmt.Sprintf("%s %o %d", name, e.mode, e.links))
	}
	slices.Sort(rest)
	want := []string{"a 40555 3", "a/b 40555 3", "a/b/c 40555 3", "a/b/c/d 40555 3", "a/b/c/d/e 40555 3", "a/b/c/d/e/f 40555 3",
		"a/b/c/d/e/f/g 40555 2", "boot 40555 3", "boot/grub 40555 2", "many 40555 2"}
	if diff := cmp.Diff(want, rest); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
}

// large is a volume of more than 4 GiB with a file of more than that, and one behind it.
func large(m extent.Memory) iso9660.Volume {
	huge := extent.New(9*gib + 5)
	for _, off := range []int64{0, 1<<32 - 4096, 1 << 32, 9*gib - 4} { // around where extents end
		huge.PutBytes(off, fmt.Appendf(nil, "%09x", off))
	}
	return iso9660.Volume{ID: "LARGE", Files: []iso9660.File{
		{Path: "huge", Content: huge},
		{Path: "part", Alias: iso9660.Range{Path: "huge", Offset: 1 << 32, Size: 5*gib + 5}},
		{Path: "last", Content: extent.FromBlob(m.Add(bytes.Repeat([]byte("last"), 100_000)))},
	}}
}

// TestLarge looks at the records of files of more than 4 GiB: extents that follow each other.
func TestLarge(t *testing.T) {
	m := extent.Memory{}
	v := large(m)
	p, err := v.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if p.Size() < 9*gib {
		t.Fatalf("the volume has %d bytes", p.Size())
	}
	l, err := v.Layout()
	if err != nil {
		t.Fatal(err)
	}
	r := p.NewReader(m)
	got := read(t, r)
	for name, want := range map[string]int64{"huge": 9*gib + 5, "part": 5*gib + 5, "last": 400_000} {
		if got[name].size != want {
			t.Errorf("%s has %d bytes, want %d", name, got[name].size, want)
		}
	}
	off, _ := l.Offset("part")
	begin := make([]byte, 9)
	if _, err := r.ReadAt(begin, off); err != nil || string(begin) != "100000000" {
		t.Errorf("the part begins with %q (%v)", begin, err)
	}
}

func TestRefusals(t *testing.T) {
	one := extent.FromBytes([]byte("1"))
	files := func(f ...iso9660.File) iso9660.Volume { return iso9660.Volume{ID: "X", Files: f} }
	for want, v := range map[string]iso9660.Volume{
		`"small" as a volume identifier`: {ID: "small"},
		`as an application identifier`:   {ID: "X", Application: "ü"},
		`cannot use ".." as a name`:      files(iso9660.File{Path: "../x", Content: one}),
		`cannot use a name of 135 bytes`: files(iso9660.File{Path: strings.Repeat("x", 135), Content: one}),
		`levels of directories`:          files(iso9660.File{Path: "1/2/3/4/5/6/7/8/9", Content: one}),
		`cannot add it twice`:            files(iso9660.File{Path: "a", Content: one}, iso9660.File{Path: "./a", Content: one}),
		`"a": it is a file`:              files(iso9660.File{Path: "a", Content: one}, iso9660.File{Path: "a/b", Content: one}),
		`want either content`:            files(iso9660.File{Path: "a"}),
		`multiple of 4095`:               files(iso9660.File{Path: "a", Content: one, Align: 4095}),
		`cannot find file "b"`:           files(iso9660.File{Path: "a", Alias: iso9660.Range{Path: "b"}}),
		`that one has 1`:                 files(iso9660.File{Path: "a", Content: one}, iso9660.File{Path: "b", Alias: iso9660.Range{Path: "a", Size: 2}}),
		`not at a sector`:                files(iso9660.File{Path: "a", Content: one}, iso9660.File{Path: "b", Alias: iso9660.Range{Path: "a", Offset: 1}}),
		`"b", which is a part`: files(iso9660.File{Path: "a", Content: one},
			iso9660.File{Path: "b", Alias: iso9660.Range{Path: "a", Size: 1}}, iso9660.File{Path: "c", Alias: iso9660.Range{Path: "b", Size: 1}}),
		`at most 2^32 sectors`:      files(iso9660.File{Path: "a", Content: extent.New(8 << 40)}),
		`adding a boot image`:       {ID: "X", Boot: []iso9660.Boot{{Path: "none"}}},
		`"d" as a file: it is a di`: {ID: "X", Boot: []iso9660.Boot{{Path: "d"}}, Files: []iso9660.File{{Path: "d/f", Content: one}}},
	} {
		if _, err := v.Plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// TestEarlyTime: dates that the format cannot say are moved to where it can.
func TestEarlyTime(t *testing.T) {
	for _, v := range []iso9660.Volume{{ID: "X"}, {ID: "X", Time: time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)}} {
		p, err := v.Plan()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 17)
		if _, err := p.NewReader(nil).ReadAt(b, iso9660.SystemArea+813); err != nil {
			t.Fatal(err)
		}
		if got := string(b); got != "1970010100000000\x00" && got != "2155123123595900\x00" {
			t.Errorf("%v is written as %q", v.Time, got)
		}
	}
}
