package vm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNewDisk copies a sparse image: same bytes, grown, and still sparse.
func TestNewDisk(t *testing.T) {
	dir := t.TempDir()
	image, disk := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	file, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("data"), 1<<15)
	for _, at := range []int64{0, 8 << 20} {
		if _, err := file.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := NewDisk(disk, image, 64<<20); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 64<<20 || !bytes.Equal(got[:len(want)], want) {
		t.Errorf("the disk has %d bytes, or others than the image", len(got))
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(disk, &stat); err != nil {
		t.Fatal(err)
	}
	if used := stat.Blocks * 512; used > 2<<20 {
		t.Errorf("the disk takes %d bytes of the host: it is not sparse", used)
	}
	empty := filepath.Join(dir, "empty")
	if err := NewDisk(empty, "", 1<<20); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(empty); err != nil || info.Size() != 1<<20 {
		t.Errorf("an empty disk: %v, error %v", info, err)
	}
	if err := NewDisk(disk, image, 64<<20); err == nil {
		t.Error("an existing disk was replaced")
	}
	if err := NewDisk(disk+"2", image, 1<<20); err == nil || !strings.Contains(err.Error(), "cannot make a disk of 1048576 bytes") {
		t.Errorf("a disk smaller than its image: error %v", err)
	}
}

// TestDrives: order of the list is order of booting, and a CD cannot be written to.
func TestDrives(t *testing.T) {
	m := Machine{Drives: []Drive{{File: "a", SectorSize: 4096}, {File: "b", Bus: CD}, {File: "c", Bus: USB, Format: "qcow2"}}}
	args := strings.Join(m.arguments(tcg), " ")
	for _, want := range []string{
		"file=/vm/drive0,format=raw,if=none,id=drive0,discard=unmap",
		"virtio-blk-pci,drive=drive0,bootindex=1,logical_block_size=4096,physical_block_size=4096",
		"id=drive1,readonly=on -device ide-cd,drive=drive1,bootindex=2",
		"file=/vm/drive2,format=qcow2,", "usb-storage,bus=usb.0,drive=drive2,bootindex=3",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("no %q in %s", want, args)
		}
	}
	if _, err := m.binds(); err == nil {
		t.Error("a machine with missing drives was accepted")
	}
}

// TestArguments: a machine gets a disk and a firmware, never a kernel from outside.
func TestArguments(t *testing.T) {
	for _, firmware := range []Firmware{UEFI, SecureBoot, BIOS} {
		args := strings.Join(Machine{Firmware: firmware, Forward: map[int]int{50000: 50000}}.arguments(tcg), " ")
		for _, bad := range []string{"-kernel", "-initrd", "-append"} {
			if strings.Contains(args, bad) {
				t.Errorf("%s: QEMU gets %s", firmware, bad)
			}
		}
		if !strings.Contains(args, "hostfwd=tcp:127.0.0.1:50000-:50000") {
			t.Errorf("%s: the API is not forwarded: %s", firmware, args)
		}
		if got := strings.Contains(args, "pflash"); got != (firmware != BIOS) {
			t.Errorf("%s: pflash given: %v", firmware, got)
		}
		// Without, anybody in the machine could write keys of his own.
		if got := strings.Contains(args, "smm=on") && strings.Contains(args, "property=secure,value=on"); got != (firmware == SecureBoot) {
			t.Errorf("%s: variables are protected: %v", firmware, got)
		}
	}
}

func TestParseFirmware(t *testing.T) {
	if _, err := ParseFirmware("coreboot"); err == nil {
		t.Error("an unknown firmware was accepted")
	}
}
