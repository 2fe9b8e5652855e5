package uki_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/cpio"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/pe"
	"github.com/talos-factory/talos-factory/format/uki"
)

// stub is testdata/stub.efi: headers as systemd-stub has them and no code. It is made for these tests.
func stub(t testing.TB) []byte {
	b, err := os.ReadFile("testdata/stub.efi")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func Example() {
	stub, err := os.ReadFile("testdata/stub.efi")
	if err != nil {
		panic(err)
	}
	store := extent.Memory{}
	plan, err := uki.Image{
		Stub:      stub,
		OSRelease: "ID=talos\n",
		Cmdline:   "console=ttyS0",
		Linux:     extent.FromBlob(store.Add(make([]byte, 100_000))),
		Initrd:    extent.FromBlob(store.Add([]byte("070701"))),
	}.Plan()
	if err != nil {
		panic(err)
	}
	texts, err := uki.Describe(plan.NewReader(store), plan.Size())
	if err != nil {
		panic(err)
	}
	fmt.Println(texts[".cmdline"])
	// Output: console=ttyS0
}

// image is as large as a real one.
func image(t testing.TB, m extent.Memory) uki.Image {
	initrd, err := cpio.Plan([]cpio.Entry{
		{Path: "init", Mode: 0o755, Content: extent.FromBlob(m.Add(bytes.Repeat([]byte("init"), 300_001)))},
		{Path: "mnt", Mode: fs.ModeDir | 0o755},
		{Path: "rootfs.sqsh", Mode: 0o444, Content: extent.FromBlob(m.Add(bytes.Repeat([]byte("hsqs"), 5_000_000)))},
	}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return uki.Image{
		Stub:      stub(t),
		OSRelease: "ID=talos\nVERSION_ID=v0.1.0\nPRETTY_NAME=\"Talos Factory v0.1.0\"\n",
		Cmdline:   "console=ttyS0 talos.platform=metal",
		Uname:     "6.12.41",
		Linux:     extent.FromBlob(m.Add(bytes.Repeat([]byte("MZbzImage"), 1_700_000))),
		Initrd:    initrd,
	}
}

func TestPlan(t *testing.T) {
	m := extent.Memory{}
	plan, err := image(t, m).Plan()
	if err != nil {
		t.Fatal(err)
	}
	if n := plan.Literals(); n > 64<<10 {
		t.Errorf("%d literal bytes", n)
	}
	image2, _ := image(t, extent.Memory{}).Plan()
	if diff := cmp.Diff(plan.Extents(), image2.Extents()); diff != "" {
		t.Error(diff)
	}
	f, err := pe.Parse(plan.NewReader(m), plan.Size())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range f.Sections {
		names = append(names, s.Name)
		if (s.Name == ".linux" || s.Name == ".initrd") && s.Offset%pe.Align != 0 {
			t.Errorf("%s lies at %#x", s.Name, s.Offset)
		}
	}
	if got, want := strings.Join(names, " "), ".text .sbat .osrel .cmdline .uname .linux .initrd"; got != want {
		t.Errorf("got sections %s, want %s", got, want)
	}
	texts, err := uki.Describe(plan.NewReader(m), plan.Size())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{".osrel": image(t, m).OSRelease, ".cmdline": image(t, m).Cmdline, ".uname": "6.12.41", ".sbat": strings.Repeat("s", 0x50)}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Error(diff)
	}
}

// TestPCR: the public key comes before what is large, the signature last.
func TestPCR(t *testing.T) {
	m := extent.Memory{}
	i := image(t, m)
	i.PCRPublicKey, i.PCRSignature = []byte("PUBLIC KEY"), []byte(`{"sha256":[]}`)
	plan, err := i.Plan()
	if err != nil {
		t.Fatal(err)
	}
	f, err := pe.Parse(plan.NewReader(m), plan.Size())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range f.Sections {
		names = append(names, s.Name)
	}
	if got, want := strings.Join(names, " "), ".text .sbat .osrel .cmdline .uname .pcrpkey .linux .initrd .pcrsig"; got != want {
		t.Errorf("got sections %s, want %s", got, want)
	}
	texts, err := uki.Describe(plan.NewReader(m), plan.Size())
	if err != nil || texts[".pcrpkey"] != "PUBLIC KEY" || texts[".pcrsig"] != `{"sha256":[]}` {
		t.Errorf("got %q, %v", texts, err)
	}
}

func TestRefusals(t *testing.T) {
	for want, change := range map[string]func(*uki.Image){
		"without os-release":                   func(i *uki.Image) { i.OSRelease = "" },
		"initrd":                               func(i *uki.Image) { i.Initrd = nil },
		"line break":                           func(i *uki.Image) { i.Cmdline = "a\nb" },
		"reading the stub: cannot":             func(i *uki.Image) { i.Stub = []byte("not") },
		"adding section .initrd: cannot place": func(i *uki.Image) { i.Initrd = extent.New(3 << 30) },
	} {
		i := image(t, extent.Memory{})
		change(&i)
		if _, err := i.Plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if _, err := uki.Describe(bytes.NewReader(stub(t)), int64(len(stub(t)))); err == nil {
		t.Error("the bare stub was read as a UKI")
	}
}

func FuzzDescribe(f *testing.F) {
	p, err := uki.Image{Stub: stub(f), OSRelease: "ID=x", Linux: extent.FromBytes([]byte("k")), Initrd: extent.FromBytes([]byte("i"))}.Plan()
	if err != nil {
		f.Fatal(err)
	}
	whole, err := io.ReadAll(p.NewReader(nil))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(stub(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		uki.Describe(bytes.NewReader(b), int64(len(b)))
	})
}
