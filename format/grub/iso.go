package grub

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ElToritoHead is how much of an El Torito image's start ElToritoImage may change.
const ElToritoHead = cdSector + sectorSize

const (
	cdSector = 2048 // what sectors of a CD have, and how much of an El Torito image is cdboot.img

	hybridSector = 0x1b0 // boot_hybrid's boot.S: u64 LBA of diskboot.img, which follows cdboot.img in the El Torito image

	infoTable   = 8                         // cdboot.S: the boot information table, without which it says "no boot info"
	infoSummed  = 64                        // the table's checksum is of the words from here on
	toritoNext  = cdSector + coreNextSector // diskboot.S, behind cdboot.img: u64 LBA of its second sector
	diskPerDisc = cdSector / sectorSize
)

// HybridCode returns the first MBRCode bytes of boot_hybrid.img, told that the El Torito image starts at the ISO's
// sector lba, of 2048 bytes: so an ISO starts from a USB disk.
func HybridCode(hybridImg []byte, lba uint32) ([]byte, error) {
	if len(hybridImg) != sectorSize || hybridImg[510] != 0x55 || hybridImg[511] != 0xaa {
		return nil, fmt.Errorf("cannot use boot_hybrid.img: it is not one boot sector (%d bytes)", len(hybridImg))
	}
	code := append([]byte(nil), hybridImg[:MBRCode]...)
	binary.LittleEndian.PutUint64(code[hybridSector:], uint64(lba)*diskPerDisc+diskPerDisc)
	return code, nil
}

// ElToritoImage returns an image that grub-mkimage made for i386-pc-eltorito, told that it starts at the ISO's sector
// lba and that the primary volume descriptor is in sector pvd. A BIOS that starts a CD loads its first sector
// alone; the boot information table (mkisofs's "-boot-info-table") says where the rest is.
func ElToritoImage(img []byte, pvd, lba uint32) ([]byte, error) {
	if len(img) <= ElToritoHead {
		return nil, errors.New("cannot use El Torito image: it is shorter than its boot sectors")
	}
	image := append([]byte(nil), img...)
	binary.LittleEndian.PutUint64(image[toritoNext:], uint64(lba)*diskPerDisc+diskPerDisc+1)
	for i, value := range []uint32{pvd, lba, uint32(len(image)), wordSum(image[infoSummed:])} {
		binary.LittleEndian.PutUint32(image[infoTable+4*i:], value)
	}
	return image, nil
}

// wordSum adds up 32-bit words; the last one may be short.
func wordSum(b []byte) (sum uint32) {
	for ; len(b) >= 4; b = b[4:] {
		sum += binary.LittleEndian.Uint32(b)
	}
	var last [4]byte
	copy(last[:], b)
	return sum + binary.LittleEndian.Uint32(last[:])
}
