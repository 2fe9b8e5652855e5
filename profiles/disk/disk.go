// Package disk is the partition contract between the factory, which writes disk images, and the machine, which
// runs from them: names, types, sizes and order of the partitions, and GUIDs that are the same in every build.
//
// It is data. It imports nothing of ours, reads no disk and writes none; package format/gpt does the bytes.
package disk

import (
	"crypto/sha256"
	"fmt"
)

// MiB is the unit of all sizes here; every partition starts at a multiple of it.
const MiB int64 = 1 << 20

// Names of the partitions; a file system's label is its partition's name.
const (
	EFI       = "EFI"       // FAT32: systemd-boot, the slots' UKIs
	BIOS      = "BIOS"      // GRUB's core.img
	BOOT      = "BOOT"      // FAT32: GRUB's slots A and B
	META      = "META"      // two checksummed copies of a few small values
	STATE     = "STATE"     // XFS: machine configuration, node identity
	EPHEMERAL = "EPHEMERAL" // XFS: /var
)

// Partition types.
const (
	// TypeEFISystem is UEFI 2.10, table 5.7.
	TypeEFISystem = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
	// TypeBIOSBoot is GRUB's ("Hah!IdontNeedEFI"), see its manual, "BIOS installation".
	TypeBIOSBoot = "21686148-6449-6E6F-744E-656564454649"
	// TypeLinux is "Linux filesystem data", what the public Talos layout uses for all the others.
	TypeLinux = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
)

// legacyBIOSBootable is attribute bit 2 of UEFI 2.10, table 5.8: a BIOS boots this partition.
const legacyBIOSBootable uint64 = 1 << 2

// Content is what a partition holds, and who makes it.
type Content string

const (
	FAT32 Content = "fat32" // written by the factory
	Raw   Content = "raw"   // written by the factory, no file system
	XFS   Content = "xfs"   // an entry only: the machine formats it at first boot
)

// Partition is one entry of a layout. Start and Size are bytes.
type Partition struct {
	Name       string
	Type       string
	GUID       string
	Content    Content
	Start      int64
	Size       int64
	Attributes uint64
	Grow       bool // the machine enlarges it to the end of its disk before it formats it
}

// Sizes of the partitions of an image.
const (
	// Three UKIs (kernel 15 MB + squashfs of at most 80 MB: slots A and B, and the one being written beside them
	// before the older goes) are 300 MB; the rest is room for extensions, which travel in the UKI.
	efiSize = 1024 * MiB
	// core.img with FAT and GPT modules is below 100 kB; 1 MiB is the alignment.
	biosSize = 1 * MiB
	// The same kernels and squashfs again, for BIOS machines.
	bootSize = 1024 * MiB
	// The format's own size: two copies of 256 KiB and a legacy block at the end.
	metaSize = 1 * MiB
	// mkfs.xfs refuses less than 300 MB; a little more than that.
	stateSize = 320 * MiB
	// Formatted only after it was enlarged, so the size in the image means nothing except that the
	// entry exists and is aligned.
	ephemeralSize = 64 * MiB
)

// Layout is a whole disk's partitions, in order and without gaps.
type Layout struct {
	GUID       string
	Size       int64 // of the image: the partitions and both copies of the partition table
	Partitions []Partition
}

// Metal is the layout of machines that boot under UEFI and under BIOS.
func Metal() Layout {
	return layout(efiPartition, biosPartition, bootPartition, metaPartition, statePartition, ephemeralPartition)
}

// UEFI is the layout of machines that boot under UEFI alone: those with Secure Boot, with sectors of 4096 bytes (no BIOS
// boots from them), or of an architecture without BIOS.
func UEFI() Layout {
	return layout(efiPartition, metaPartition, statePartition, ephemeralPartition)
}

// OfSize is the layout on a larger disk. The partitions stay as they are, EPHEMERAL too: the machine enlarges it. The
// error of a disk that is too small says by how much.
func (l Layout) OfSize(size int64) (Layout, error) {
	if size < l.Size {
		missing := (l.Size - size + MiB - 1) / MiB
		return Layout{}, fmt.Errorf("cannot use a disk of %d MiB: the partitions need %d MiB, %d MiB more", size/MiB, l.Size/MiB, missing)
	}
	l.Size = size / MiB * MiB
	return l, nil
}

var (
	efiPartition       = Partition{Name: EFI, Type: TypeEFISystem, Content: FAT32, Size: efiSize}
	biosPartition      = Partition{Name: BIOS, Type: TypeBIOSBoot, Content: Raw, Size: biosSize, Attributes: legacyBIOSBootable}
	bootPartition      = Partition{Name: BOOT, Type: TypeLinux, Content: FAT32, Size: bootSize}
	metaPartition      = Partition{Name: META, Type: TypeLinux, Content: Raw, Size: metaSize}
	statePartition     = Partition{Name: STATE, Type: TypeLinux, Content: XFS, Size: stateSize}
	ephemeralPartition = Partition{Name: EPHEMERAL, Type: TypeLinux, Content: XFS, Size: ephemeralSize, Grow: true}
)

// layout places the partitions one behind the other, with 1 MiB for the table at either end.
func layout(parts ...Partition) Layout {
	l := Layout{GUID: guid("disk"), Size: MiB}
	for _, p := range parts {
		p.Start, p.GUID = l.Size, guid("partition "+p.Name)
		l.Size += p.Size
		l.Partitions = append(l.Partitions, p)
	}
	l.Size += MiB
	return l
}

// Find returns the partition of that name.
func (l Layout) Find(name string) (Partition, bool) {
	for _, p := range l.Partitions {
		if p.Name == name {
			return p, true
		}
	}
	return Partition{}, false
}

// VolumeID is the FAT volume serial number of a partition, the same in every build.
func VolumeID(name string) uint32 {
	h := sha256.Sum256([]byte("talos-factory volume " + name))
	return uint32(h[0])<<24 | uint32(h[1])<<16 | uint32(h[2])<<8 | uint32(h[3])
}

// guid is a UUID of version 8 (RFC 9562, 5.8) from the hash of a name: the same in every image, as nothing
// about a machine is known when its image is made. Machines find partitions by name on the disk they booted from.
func guid(name string) string {
	h := sha256.Sum256([]byte("talos-factory " + name))
	h[6] = h[6]&0x0f | 0x80 // version 8
	h[8] = h[8]&0x3f | 0x80 // variant of RFC 9562
	return fmt.Sprintf("%X-%X-%X-%X-%X", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
