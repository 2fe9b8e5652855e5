//go:build judge

package qcow2_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/format/qcow2"
)

// sparse is a disk of size bytes with little in it: literals and blobs at both ends, in the middle, and side by side.
func sparse(size int64, m extent.Memory) *extent.Plan {
	p := extent.New(size)
	p.PutBytes(0, noise(3000))
	p.PutBlob(mib, m.Add(noise(300_000)))
	p.PutBytes(mib+300_000, noise(77))
	for off := int64(2 * mib); off < 40*mib; off += 1234 * kib {
		p.PutRange(off, m.Add(noise(50_000)), 99, 40_000)
	}
	p.PutBlob(size/2/512*512+512, m.Add(noise(2*mib+5)))
	p.PutBytes(size-700, noise(700))
	return p
}

func TestQemuImg(t *testing.T) {
	for _, tt := range []struct{ size, cluster int64 }{
		{4247 * mib, 64 * kib},
		{10 * gib, 8 * kib},
		{10*gib + 512, 8 * kib},
		{3*gib - 1024, 2 * mib},
		{200 * mib, 512},
	} {
		t.Run(fmt.Sprintf("%d in clusters of %d", tt.size, tt.cluster), func(t *testing.T) {
			m := extent.Memory{}
			raw := sparse(tt.size, m)
			judged(t, raw, must(t, raw, tt.cluster), tt.cluster, m)
		})
	}
}

func TestQemuImgSpecial(t *testing.T) {
	m := extent.Memory{}
	empty := extent.New(gib)
	judged(t, empty, must(t, empty, 0), 64*kib, m)

	full := extent.FromBlob(m.Add(noise(5 * mib)))
	judged(t, full, must(t, full, 8*kib), 8*kib, m)

	// So many literals that reference counts of 16 bits would break the rule.
	narrow := sparse(gib, m)
	narrow.PutBytes(100*mib+5, noise(int(mib-4*kib-narrow.Literals())))
	p, err := qcow2.Plan(narrow, qcow2.Options{ClusterSize: 8 * kib})
	if err != nil {
		t.Fatal(err)
	}
	if info := judged(t, narrow, p, 8*kib, m); info.Specific.Data.RefcountBits != 1 {
		t.Errorf("counts of %d bits, want 1", info.Specific.Data.RefcountBits)
	}
}

// A machine that runs from the image adds clusters to it, and may take a snapshot.
func TestQemuWrites(t *testing.T) {
	m := extent.Memory{}
	raw := sparse(4*gib, m)
	disk, file := write(t, "disk.raw", raw, m), write(t, "disk.qcow2", must(t, raw, 8*kib), m)
	judge.Run(t, []string{"qemu-img", "snapshot", "-c", "before", "disk.qcow2"}, file)
	for name, format := range map[string]string{disk: "raw", file: "qcow2"} {
		for _, cmd := range []string{"write -P 7 100M 20M", "write -P 8 512 4k"} {
			judge.Run(t, []string{"qemu-io", "-f", format, "-c", cmd, filepath.Base(name)}, name)
		}
	}
	found(t, disk, file)
}

type info struct {
	Format      string
	VirtualSize int64 `json:"virtual-size"`
	ClusterSize int64 `json:"cluster-size"`
	Specific    struct {
		Data struct {
			Compat       string
			RefcountBits int `json:"refcount-bits"`
			Corrupt      bool
		}
	} `json:"format-specific"`
}

// judged fails the test unless QEMU finds no fault in the image and the disk's content in it.
func judged(t *testing.T, raw, image *extent.Plan, cluster int64, m extent.Memory) info {
	t.Helper()
	disk, file := write(t, "disk.raw", raw, m), write(t, "disk.qcow2", image, m)

	found(t, disk, file)
	var i info
	got := judge.Run(t, []string{"qemu-img", "info", "--output=json", "-f", "qcow2", "disk.qcow2"}, file)
	if err := json.Unmarshal([]byte(got), &i); err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	if i.Format != "qcow2" || i.VirtualSize != raw.Size() || i.ClusterSize != cluster || i.Specific.Data.Compat != "1.1" || i.Specific.Data.Corrupt {
		t.Errorf("qemu-img info:\n%s", got)
	}
	return i
}

// found fails the test unless QEMU finds no fault in the image file, and the disk's content in it.
func found(t *testing.T, disk, file string) {
	t.Helper()
	got := judge.Run(t, []string{"qemu-img", "check", "-f", "qcow2", "disk.qcow2"}, file)
	if !strings.Contains(got, "No errors were found on the image.") || strings.Contains(got, "leak") {
		t.Errorf("qemu-img check:\n%s", got)
	}
	got = judge.Run(t, []string{"qemu-img", "compare", "-f", "raw", "-F", "qcow2", "disk.raw", "disk.qcow2"}, disk, file)
	if !strings.Contains(got, "Images are identical.") {
		t.Errorf("qemu-img compare:\n%s", got)
	}
}

func write(t *testing.T, name string, p *extent.Plan, m extent.Memory) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.WriteSparse(t.Context(), f, m); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}
