package ova_test

import (
	stdtar "archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/ova"
	"github.com/talos-factory/talos-factory/format/splice"
	"github.com/talos-factory/talos-factory/format/vmdk"
)

var update = flag.Bool("update", false, "write testdata/machine.ovf")

var machine = ova.Machine{
	Name: "vmware-amd64", Product: "Talos", Vendor: "the vendor", Version: "v1.2.3", SecureBoot: true,
	Properties: []ova.Property{{Key: "talos.config", Label: "Machine configuration", Description: "base64 & <plain>"}},
	Time:       time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC),
}

// appliance is an OVA with a disk of 8 GiB, and what its blobs are read from.
func appliance(t testing.TB) (*extent.Plan, extent.Source) {
	t.Helper()
	m, cache := extent.Memory{}, splice.NewMemory()
	raw := extent.New(8 << 30)
	raw.PutBlob(1<<20, m.Add(bytes.Repeat([]byte("kernel"), 1e5)))
	raw.PutBytes(8<<30-3, []byte("end"))
	image, err := vmdk.Plan(t.Context(), raw, machine.DiskName(), splice.Splicer{Source: m, Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	p, err := ova.Plan(machine, ova.Disk{Image: image, Capacity: raw.Size()}, sumFrom(cache))
	if err != nil {
		t.Fatal(err)
	}
	return p, cache
}

func sumFrom(src extent.Source) func(*extent.Plan) ([32]byte, error) {
	return func(p *extent.Plan) ([32]byte, error) {
		h := sha256.New()
		_, err := io.Copy(h, p.NewReader(src))
		return [32]byte(h.Sum(nil)), err
	}
}

func TestArchive(t *testing.T) {
	p, src := appliance(t)
	r := stdtar.NewReader(p.NewReader(src))
	files, names, manifest := map[string][]byte{}, []string(nil), ""
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if names = append(names, h.Name); strings.HasSuffix(h.Name, ".mf") {
			manifest = string(b)
			continue
		}
		files[h.Name] = b
	}
	if diff := cmp.Diff([]string{"vmware-amd64.ovf", "vmware-amd64.mf", "vmware-amd64.vmdk"}, names); diff != "" {
		t.Error(diff)
	}
	want := ""
	for _, name := range []string{"vmware-amd64.ovf", "vmware-amd64.vmdk"} {
		want += fmt.Sprintf("SHA256(%s)= %x\n", name, sha256.Sum256(files[name]))
	}
	if diff := cmp.Diff(want, manifest); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(string(files["vmware-amd64.ovf"]), fmt.Sprintf(`ovf:size="%d"`, len(files["vmware-amd64.vmdk"]))) {
		t.Error("the descriptor has another size of the disk image")
	}
	if p.Literals() > 64<<10 {
		t.Errorf("%d literals", p.Literals())
	}
}

// The descriptor as people may read it, and as XML.
func TestDescriptor(t *testing.T) {
	p, src := appliance(t)
	r := stdtar.NewReader(p.NewReader(src))
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/machine.ovf", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/machine.ovf")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got; -update writes it):\n%s", diff)
	}
	for d := xml.NewDecoder(bytes.NewReader(got)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTwice(t *testing.T) {
	var sums [2][32]byte
	for i := range sums {
		p, src := appliance(t)
		var err error
		if sums[i], err = sumFrom(src)(p); err != nil {
			t.Fatal(err)
		}
	}
	if sums[0] != sums[1] {
		t.Error("two OVAs differ")
	}
}

func TestRefusals(t *testing.T) {
	disk := ova.Disk{Image: extent.New(512), Capacity: 1 << 20}
	for _, name := range []string{"", "..", "a/b", strings.Repeat("x", 200)} {
		if _, err := ova.Plan(ova.Machine{Name: name}, disk, sumFrom(nil)); err == nil {
			t.Errorf("name %q: no error", name)
		}
	}
	if _, err := ova.Plan(machine, ova.Disk{Image: extent.New(9 << 30), Capacity: 1}, func(*extent.Plan) (d [32]byte, err error) { return d, nil }); err == nil {
		t.Error("took an image of 9 GiB, which ustar cannot hold")
	}
	fails := func(*extent.Plan) (d [32]byte, err error) { return d, io.ErrUnexpectedEOF }
	if _, err := ova.Plan(machine, disk, fails); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want the error of sum", err)
	}
}

func Example() {
	image := extent.New(512) // package vmdk makes a real one
	plan, err := ova.Plan(ova.Machine{Name: "machine"}, ova.Disk{Image: image, Capacity: 8 << 30}, sumFrom(nil))
	if err != nil {
		panic(err)
	}
	r := stdtar.NewReader(plan.NewReader(nil))
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		fmt.Println(h.Name)
	}
	// Output:
	// machine.ovf
	// machine.mf
	// machine.vmdk
}
