//go:build linux

package disk

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/talos-factory/talos-factory/format/gpt"
	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

// signature is how something is known to be on a disk.
type signature struct {
	name  string
	at    int64
	magic string
}

// signatures of what people keep on whole disks, from the headers of Linux (include/uapi/linux/magic.h and fs/*) and of
// util-linux' libblkid. What is not here and has no partition table is not seen.
var signatures = []signature{
	{"an XFS file system", 0, "XFSB"},
	{"an ext2, ext3 or ext4 file system", 1080, "\x53\xef"},
	{"a Btrfs file system", 0x10040, "_BHRfS_M"},
	{"an encrypted volume (LUKS)", 0, "LUKS\xba\xbe"},
	{"an LVM physical volume", 512, "LABELONE"},
	{"a RAID member (md)", 4096, "\xfc\x4e\x2b\xa9"},
	{"a RAID member (md)", 0, "\xfc\x4e\x2b\xa9"},
	{"a FAT file system", 82, "FAT32"},
	{"a FAT file system", 54, "FAT1"},
	{"an NTFS file system", 3, "NTFS    "},
	{"an exFAT file system", 3, "EXFAT   "},
	{"an ISO 9660 file system", 0x8001, "CD001"},
	{"a SquashFS file system", 0, "hsqs"},
	{"swap space", 4086, "SWAPSPACE2"},
	{"a ZFS volume", 128<<10 + 8, "\x00\xba\xb1\x0c"},
	{"a ZFS volume", 128 << 10, "\x0c\xb1\xba\x00"},
}

// holds names what is on a disk, "" for nothing known.
func holds(disk io.ReaderAt, size int64, sector int) (string, error) {
	table, err := gpt.Read(disk, size, sector)
	if err == nil {
		return describe(table), nil
	}
	if !errors.Is(err, gpt.ErrNoTable) {
		return "", err
	}
	for _, s := range signatures {
		b := make([]byte, len(s.magic))
		if n, err := disk.ReadAt(b, s.at); n < len(b) && !errors.Is(err, io.EOF) {
			return "", err
		}
		if string(b) == s.magic {
			return s.name, nil
		}
	}
	return mbr(disk)
}

// describe names a table's partitions, and an installation of this system for what it is.
func describe(t *gpt.Table) string {
	if _, ok := t.Find(layout.META); ok {
		if _, ok := t.Find(layout.STATE); ok {
			return "an installed system of this kind"
		}
	}
	var names []string
	for _, p := range t.Partitions {
		if p.Type != "" {
			names = append(names, "\""+p.Name+"\"")
		}
	}
	return "a partition table (" + strings.Join(names, ", ") + ")"
}

// mbr looks for a master boot record with at least one partition: its entries of 16 bytes are at 446, the fifth byte of each is its
// type, and 0x55 0xAA ends the sector (UEFI 2.10, table 5.1).
func mbr(disk io.ReaderAt) (string, error) {
	b := make([]byte, 512)
	if n, err := disk.ReadAt(b, 0); n < len(b) {
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		return "", err
	}
	if !bytes.Equal(b[510:], []byte{0x55, 0xaa}) {
		return "", nil
	}
	for at := 446; at < 510; at += 16 {
		if b[at+4] != 0 {
			return "a partition table (MBR)", nil
		}
	}
	return "", nil
}
