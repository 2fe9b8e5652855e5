package grub

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func bootSector() []byte {
	sector := bytes.Repeat([]byte{0xcc}, sectorSize)
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

func TestBootCode(t *testing.T) {
	code, err := BootCode(bootSector(), 0x1122334455)
	if err != nil {
		t.Fatal(err)
	}
	if len(code) != MBRCode {
		t.Errorf("boot code has %d bytes, want %d: more would run into the partition table", len(code), MBRCode)
	}
	if got := binary.LittleEndian.Uint64(code[0x5c:]); got != 0x1122334455 {
		t.Errorf("core.img sector = %#x", got)
	}
	if !bytes.Equal(code[0x64:0x68], []byte{0xff, 0xcc, 0x90, 0x90}) {
		t.Errorf("drive bytes = % x", code[0x64:0x68])
	}
	if _, err := BootCode(make([]byte, 512), 1); err == nil {
		t.Error("a sector without a boot signature was accepted")
	}
}

func TestCoreImage(t *testing.T) {
	image, err := CoreImage(bytes.Repeat([]byte{1}, 1300), 2048, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(image) != 3*sectorSize {
		t.Errorf("core image has %d bytes, want whole sectors", len(image))
	}
	if lba, n, seg := binary.LittleEndian.Uint64(image[0x1f4:]), binary.LittleEndian.Uint16(image[0x1fc:]), binary.LittleEndian.Uint16(image[0x1fe:]); lba != 2049 || n != 2 || seg != 0x820 {
		t.Errorf("block list = sector %d, %d sectors, segment %#x", lba, n, seg)
	}
	for _, size := range []int{100, 2000} {
		if _, err := CoreImage(make([]byte, size), 2048, 1024); err == nil {
			t.Errorf("a core image of %d bytes was accepted for a partition of 1024", size)
		}
	}
}

func TestEnvironmentBlock(t *testing.T) {
	block, err := EnvironmentBlock("slot=A", "tries=0")
	if err != nil {
		t.Fatal(err)
	}
	if len(block) != 1024 || !bytes.HasPrefix(block, []byte("# GRUB Environment Block\nslot=A\ntries=0\n###")) {
		t.Errorf("block of %d bytes starts %q", len(block), block[:60])
	}
	if _, err := EnvironmentBlock(string(make([]byte, 1024))); err == nil {
		t.Error("an environment larger than its block was accepted")
	}
}
