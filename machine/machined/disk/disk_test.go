//go:build linux

package disk

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/format/gpt"
	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

// sysfs makes a tree like the kernel's: class entries are links into the devices' own directories.
func sysfs(t *testing.T, uevents map[string]string) string {
	t.Helper()

	root := t.TempDir()
	class := filepath.Join(root, "class/block")
	if err := os.MkdirAll(class, 0o755); err != nil {
		t.Fatal(err)
	}

	for dir, uevent := range uevents {
		full := filepath.Join(root, "devices", dir)
		if err := os.MkdirAll(full, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(full, "uevent"), []byte(uevent), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("../../devices", dir), filepath.Join(class, filepath.Base(dir))); err != nil {
			t.Fatal(err)
		}
	}

	return class
}

func TestFind(t *testing.T) {
	class := sysfs(t, map[string]string{
		"pci/vda":      "DEVNAME=vda\nDEVTYPE=disk\n",
		"pci/vda/vda4": "DEVNAME=vda4\nDEVTYPE=partition\nPARTN=4\nPARTNAME=META\n",
		"pci/vda/vda5": "DEVNAME=vda5\nPARTN=5\nPARTNAME=STATE\n",
		"usb/sda":      "DEVNAME=sda\n",
		"usb/sda/sda1": "DEVNAME=sda1\nPARTN=1\nPARTNAME=STATE\n",
		"usb/vdb/vdb2": "DEVNAME=vdb2\nPARTN=2\nPARTNAME=META\n",
	})

	got, err := Find(class)
	if err != nil {
		t.Fatal(err)
	}
	want := System{Name: "vda", Partitions: map[string]Partition{"META": {"vda4", 4}, "STATE": {"vda5", 5}}, Others: []string{"vdb"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if _, err := Find(sysfs(t, map[string]string{"pci/vda": "DEVNAME=vda\n"})); !errors.Is(err, ErrNone) {
		t.Errorf("got %v, want ErrNone", err)
	}
}

func TestProbe(t *testing.T) {
	const size = 3 << 20

	put := func(at int64, s string) []byte {
		b := make([]byte, size)
		copy(b[at:], s)

		return b
	}

	for name, tt := range map[string]struct {
		content []byte
		want    Content
	}{
		"zeros":          {put(0, ""), Empty},
		"xfs":            {put(0, "XFSB"), XFS},
		"mkfs cut short": {put(0, "XFSB"+strings.Repeat("\x00", 122)+"\x01"), Unfinished},
		"ext4":           {put(1080, "\x53\xef"), Foreign},
		"btrfs":          {put(0x10040, "_BHRfS_M"), Foreign},
		"luks":           {put(0, "LUKS\xba\xbe"), Foreign},
		"behind it":      {put(size/2, "data"), Empty}, // left from an earlier use of the disk
		"one small sign": {put(probeSize-1, "x"), Foreign},
	} {
		got, err := Probe(strings.NewReader(string(tt.content)))
		if err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, tt.want)
		}
	}
}

func writeTable(t *testing.T, names ...string) *os.File {
	t.Helper()

	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })

	l := layout.Metal()
	table := gpt.Table{DiskGUID: l.GUID, DiskSize: 64 << 20, SectorSize: 512}
	for i, name := range names {
		p, _ := l.Find(name)
		table.Partitions = append(table.Partitions, gpt.Partition{Name: name, Type: p.Type, GUID: p.GUID, Start: int64(1+i*8) << 20, Size: 8 << 20})
	}
	plan, err := table.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.WriteSparse(t.Context(), f, nil); err != nil {
		t.Fatal(err)
	}

	return f
}

func TestGrowTable(t *testing.T) {
	f := writeTable(t, layout.META, layout.STATE, layout.EPHEMERAL)

	for _, tt := range []struct {
		size  int64
		grown bool
		after int64
	}{
		{1 << 30, true, 1<<30 - 18<<20}, // 17 MiB before it, 1 MiB for the backup table
		{1 << 30, false, 1<<30 - 18<<20},
		{2 << 30, true, 2<<30 - 18<<20},
	} {
		if err := f.Truncate(tt.size); err != nil {
			t.Fatal(err)
		}
		g, _, err := growTable(f, tt.size, 512)
		if err != nil || g.Grown != tt.grown || g.After != tt.after {
			t.Errorf("%d: got %+v, %v; want grown %v to %d", tt.size, g, err, tt.grown, tt.after)
		}
	}

	f = writeTable(t, layout.META, layout.EPHEMERAL, layout.STATE)
	if err := f.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	if _, _, err := growTable(f, 1<<30, 512); err == nil || !strings.Contains(err.Error(), "STATE lies behind it") {
		t.Errorf("EPHEMERAL not last: got %v", err)
	}
}

type execRunner struct{}

func (execRunner) Run(ctx context.Context, path string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()

	return string(out), err
}

func TestFormat(t *testing.T) {
	if _, err := os.Stat("/usr/sbin/mkfs.xfs"); err != nil {
		t.Skip("there is no mkfs.xfs here; the smoke boots run it")
	}

	file := filepath.Join(t.TempDir(), "STATE")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 320<<20); err != nil {
		t.Fatal(err)
	}

	for i, want := range []bool{true, false} {
		got, err := Format(t.Context(), execRunner{}, file, "STATE")
		if err != nil || got != want {
			t.Errorf("call %d: got %v, %v; want %v", i+1, got, err, want)
		}
	}

	if err := os.WriteFile(file, []byte("somebody's data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Format(t.Context(), execRunner{}, file, "STATE"); !errors.Is(err, errForeign) {
		t.Errorf("foreign data: got %v", err)
	}
}
