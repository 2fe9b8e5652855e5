// Package grub places GRUB's i386-pc boot code on a GPT disk: boot.img goes into the first sector, core.img into the
// BIOS boot partition, and each is told where on the disk the next sectors lie. The same for a hybrid ISO, with boot_hybrid.img and an
// El Torito image.
//
// It does not build core.img (grub-mkimage does, as a build step) and knows no file system. The offsets are those of
// GRUB 2's boot/i386/pc/boot.S and diskboot.S.
package grub

import (
	"encoding/binary"
	"fmt"
)

const (
	sectorSize = 512

	// MBRCode is how much of boot.img may be written to the first sector: the partition table of the protective MBR
	// starts right behind the disk signature at 440 (UEFI 2.10, 5.2.1).
	MBRCode = 440

	bootKernelSector = 0x5c // boot.S: u64 LBA of core.img's first sector
	bootDriveNumber  = 0x64 // boot.S: 0xff means the drive the BIOS booted from
	bootDriveCheck   = 0x66 // boot.S: a jump, replaced by two NOPs so that the BIOS's drive number is checked and mended

	coreNextSector  = 0x1f4 // diskboot.S: u64 LBA of core.img's second sector
	coreNextLength  = 0x1fc // diskboot.S: u16 number of sectors that follow
	coreNextSegment = 0x1fe // diskboot.S: u16 segment they are loaded to
	loadSegment     = 0x820 // kernel.i386-pc: GRUB_BOOT_I386_PC_KERNEL_SEG + one sector

	maxSectors = 0xffff // the length field has 16 bits
)

// BootCode returns the first MBRCode bytes of boot.img, told that core.img starts at sector lba.
func BootCode(bootImg []byte, lba uint64) ([]byte, error) {
	if len(bootImg) != sectorSize || bootImg[510] != 0x55 || bootImg[511] != 0xaa {
		return nil, fmt.Errorf("cannot use boot.img: it is not one boot sector (%d bytes)", len(bootImg))
	}
	code := append([]byte(nil), bootImg[:MBRCode]...)
	binary.LittleEndian.PutUint64(code[bootKernelSector:], lba)
	code[bootDriveNumber] = 0xff
	code[bootDriveCheck], code[bootDriveCheck+1] = 0x90, 0x90
	return code, nil
}

// CoreImage returns core.img padded to whole sectors, told that it lies on the disk from sector lba on. room is the
// size of the partition that holds it, in bytes.
func CoreImage(coreImg []byte, lba uint64, room int64) ([]byte, error) {
	if len(coreImg) <= sectorSize {
		return nil, fmt.Errorf("cannot use core.img: %d bytes are less than its first sector and a kernel", len(coreImg))
	}
	sectors := (len(coreImg) + sectorSize - 1) / sectorSize
	if int64(sectors)*sectorSize > room || sectors > maxSectors {
		return nil, fmt.Errorf("cannot place core.img: it has %d bytes, the BIOS boot partition %d", len(coreImg), room)
	}
	image := make([]byte, sectors*sectorSize)
	copy(image, coreImg)
	binary.LittleEndian.PutUint64(image[coreNextSector:], lba+1)
	binary.LittleEndian.PutUint16(image[coreNextLength:], uint16(sectors-1))
	binary.LittleEndian.PutUint16(image[coreNextSegment:], loadSegment)
	return image, nil
}

// EnvironmentBlock returns a grubenv file: 1024 bytes, a fixed first line, `name=value` lines in the order given, and
// `#` up to the end (GRUB manual, "The GRUB environment block").
func EnvironmentBlock(assignments ...string) ([]byte, error) {
	const size = 1024
	block := []byte("# GRUB Environment Block\n")
	for _, assignment := range assignments {
		block = append(block, assignment+"\n"...)
	}
	if len(block) > size {
		return nil, fmt.Errorf("cannot write a GRUB environment of %d bytes: it holds %d", len(block), size)
	}
	for len(block) < size {
		block = append(block, '#')
	}
	return block, nil
}
