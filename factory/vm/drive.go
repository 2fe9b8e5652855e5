package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/talos-factory/talos-factory/build"
)

// Bus is how a drive is attached.
type Bus string

// Buses of drives.
const (
	Virtio Bus = "virtio" // the default: a paravirtual disk
	CD     Bus = "cd"     // an optical drive, read-only
	USB    Bus = "usb"    // a USB stick
)

// Drive is a disk of a machine.
type Drive struct {
	File       string
	Format     string // as qemu-img names it: raw, qcow2, vpc, vmdk; "" means raw
	Bus        Bus    // "" means Virtio
	SectorSize int    // logical and physical, 0 means 512; of Virtio only
	ReadOnly   bool
}

// binds makes the drives' files reachable for QEMU.
func (m Machine) binds() ([]build.Bind, error) {
	var binds []build.Bind
	for i, drive := range m.Drives {
		file, err := filepath.Abs(drive.File)
		if err != nil {
			return nil, fmt.Errorf("finding disk: %w", err)
		}
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("opening disk: %w", err)
		}
		binds = append(binds, build.Bind{Host: file, Path: drivePath(i), Writable: !drive.readOnly()})
	}
	if m.Netboot != "" {
		dir, err := filepath.Abs(filepath.Dir(m.Netboot))
		if err != nil {
			return nil, fmt.Errorf("finding folder to boot from: %w", err)
		}
		binds = append(binds, build.Bind{Host: dir, Path: "/vm/netboot"})
	}
	return binds, nil
}

func drivePath(i int) string { return "/vm/drive" + strconv.Itoa(i) }

func (d Drive) readOnly() bool { return d.ReadOnly || d.Bus == CD }

func (d Drive) arguments(i int) []string {
	id := "drive" + strconv.Itoa(i)
	format := d.Format
	if format == "" {
		format = "raw"
	}
	file := fmt.Sprintf("file=%s,format=%s,if=none,id=%s", drivePath(i), format, id)
	if d.readOnly() {
		file += ",readonly=on"
	} else {
		file += ",discard=unmap,cache=writeback"
	}
	device := map[Bus]string{"": "virtio-blk-pci", Virtio: "virtio-blk-pci", CD: "ide-cd", USB: "usb-storage,bus=usb.0"}[d.Bus]
	device += fmt.Sprintf(",drive=%s,bootindex=%d", id, i+1)
	if d.SectorSize != 0 {
		device += fmt.Sprintf(",logical_block_size=%d,physical_block_size=%d", d.SectorSize, d.SectorSize)
	}
	return []string{"-drive", file, "-device", device}
}
