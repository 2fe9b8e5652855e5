//go:build judge

package vhd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/format/vhd"
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
	p.PutBlob(size/2/512*512+512, m.Add(noise(5*mib+5)))
	p.PutBytes(size-700, noise(700))
	return p
}

func TestQemuImg(t *testing.T) {
	for _, size := range []int64{100 * mib, 4247 * mib, 8 * gib, 8*gib + 512, 3*gib - 1024, 200 * gib} {
		for name, kind := range map[string]vhd.Kind{"fixed": vhd.Fixed, "dynamic": vhd.Dynamic} {
			t.Run(fmt.Sprintf("%s of %d", name, size), func(t *testing.T) {
				m := extent.Memory{}
				judged(t, sparse(size, m), kind, m)
			})
		}
	}
	t.Run("empty", func(t *testing.T) { judged(t, extent.New(gib), vhd.Dynamic, nil) })
}

// A machine that runs from the image adds blocks to it.
func TestQemuWrites(t *testing.T) {
	m := extent.Memory{}
	raw := sparse(4*gib, m)
	disk, file := write(t, "disk.raw", raw, m), write(t, "disk.vhd", must(t, raw, vhd.Dynamic), m)
	for name, format := range map[string]string{disk: "raw", file: "vpc"} {
		for _, cmd := range []string{"write -P 7 100M 5M", "write -P 8 512 4k"} {
			judge.Run(t, []string{"qemu-io", "-f", format, "-c", cmd, filepath.Base(name)}, name)
		}
	}
	got := judge.Run(t, []string{"qemu-img", "compare", "-f", "raw", "-F", "vpc", "disk.raw", "disk.vhd"}, disk, file)
	if !strings.Contains(got, "Images are identical.") {
		t.Errorf("qemu-img compare:\n%s", got)
	}
}

// judged fails the test unless QEMU finds the disk's content in the image, and its exact size.
func judged(t *testing.T, raw *extent.Plan, kind vhd.Kind, m extent.Memory) {
	t.Helper()
	disk, file := write(t, "disk.raw", raw, m), write(t, "disk.vhd", must(t, raw, kind), m)
	got := judge.Run(t, []string{"qemu-img", "compare", "-f", "raw", "-F", "vpc", "disk.raw", "disk.vhd"}, disk, file)
	if !strings.Contains(got, "Images are identical.") {
		t.Errorf("qemu-img compare:\n%s", got)
	}
	want := raw.Size()
	if kind == vhd.Fixed {
		want = (want + mib - 1) / mib * mib
	}
	var info struct {
		Format      string
		VirtualSize int64 `json:"virtual-size"`
	}
	got = judge.Run(t, []string{"qemu-img", "info", "--output=json", "-f", "vpc", "disk.vhd"}, file)
	if err := json.Unmarshal([]byte(got), &info); err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	if info.Format != "vpc" || info.VirtualSize != want {
		t.Errorf("qemu-img info: want %d bytes\n%s", want, got)
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
