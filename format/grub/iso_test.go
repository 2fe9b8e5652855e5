package grub

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestHybridCode(t *testing.T) {
	code, err := HybridCode(bootSector(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if got := binary.LittleEndian.Uint64(code[432:]); got != 404 || len(code) != MBRCode {
		t.Errorf("%d bytes of code load sector %d", len(code), got)
	}
	if _, err := HybridCode(make([]byte, 511), 1); err == nil {
		t.Error("an image of 511 bytes was accepted")
	}
}

func TestElToritoImage(t *testing.T) {
	original := bytes.Repeat([]byte{1}, 4097)
	image, err := ElToritoImage(original, 16, 100)
	if err != nil {
		t.Fatal(err)
	}
	if got := binary.LittleEndian.Uint64(image[2548:]); got != 405 {
		t.Errorf("the second sector is loaded from %d", got)
	}
	var table [4]uint32
	if _, err := binary.Decode(image[8:], binary.LittleEndian, &table); err != nil {
		t.Fatal(err)
	}
	// 1008 whole words, of which two were overwritten, and one byte.
	words := uint32((4097 - 64) / 4)
	if want := (words-2)*0x01010101 + 405 + 1; table != [4]uint32{16, 100, 4097, want} {
		t.Errorf("boot information table is %d, want the sum %d", table, want)
	}
	if !bytes.Equal(original, bytes.Repeat([]byte{1}, 4097)) {
		t.Error("the image given was changed")
	}
	if _, err := ElToritoImage(make([]byte, 2560), 16, 1); err == nil {
		t.Error("an image without a kernel was accepted")
	}
}
