//go:build judge

package vmdk_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
)

func write(t *testing.T, name string, p *extent.Plan, src extent.Source) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.WriteSparse(t.Context(), f, src); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func TestQemuImg(t *testing.T) {
	for _, size := range []int64{48 * mib, 4247 * mib, 8 * gib, 8*gib + 64*kib, 100 * gib} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			m := extent.Memory{}
			raw := disk(size, m, "start")
			s, cache := splicer(m)
			image := write(t, "disk.vmdk", plan(t, raw, s), cache)
			judge.Run(t, []string{"qemu-img", "check", "-f", "vmdk", "disk.vmdk"}, image)
			got := judge.Run(t, []string{"qemu-img", "compare", "-f", "raw", "-F", "vmdk", "disk.raw", "disk.vmdk"},
				write(t, "disk.raw", raw, m), image)
			if !strings.Contains(got, "Images are identical.") {
				t.Errorf("qemu-img compare:\n%s", got)
			}
			var info struct {
				VirtualSize int64 `json:"virtual-size"`
				Specific    struct {
					Data struct {
						CreateType string `json:"create-type"`
						CID        uint32 `json:"cid"`
						Extents    []struct {
							Compressed  bool  `json:"compressed"`
							ClusterSize int64 `json:"cluster-size"`
						} `json:"extents"`
					} `json:"data"`
				} `json:"format-specific"`
			}
			got = judge.Run(t, []string{"qemu-img", "info", "--output=json", "-f", "vmdk", "disk.vmdk"}, image)
			if err := json.Unmarshal([]byte(got), &info); err != nil {
				t.Fatalf("%v\n%s", err, got)
			}
			if d := info.Specific.Data; info.VirtualSize != size || d.CreateType != "streamOptimized" || d.CID == 0 ||
				len(d.Extents) != 1 || !d.Extents[0].Compressed || d.Extents[0].ClusterSize != 64*kib {
				t.Errorf("qemu-img info: %s", got)
			}
			raw2 := filepath.Join(t.TempDir(), "back.raw")
			judge.Run(t, []string{"qemu-img", "convert", "-f", "vmdk", "-O", "raw", "disk.vmdk", raw2}, image)
		})
	}
}
