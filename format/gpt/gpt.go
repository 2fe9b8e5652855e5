// Package gpt plans and reads GUID partition tables (UEFI specification 2.10, chapter 5).
//
// A Table plans the protective MBR and both copies of the table, by go-diskfs's writer; reads a table back from
// a disk with every checksum verified; and plans how the last partition grows to the end of a larger disk. It
// places no partition contents, touches no block device, and never writes the first 446 bytes, where BIOS boot code lies.
// Tables of other than 128 entries of 128 bytes are read but not edited.
package gpt

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf16"
)

const (
	// Align is where partitions start: a multiple of it from the disk's start. 1 MiB suits every known
	// erase block and stripe, and is what sgdisk and parted do.
	Align = 1 << 20
	// LegacyBIOSBootable is attribute bit 2 (UEFI 2.10, table 5.8).
	LegacyBIOSBootable uint64 = 1 << 2

	entrySize  = 128 // UEFI 2.10, table 5.6
	entryCount = 128 // UEFI 2.10, 5.3.1: at least 16 KiB are reserved
	maxName    = 36  // UTF-16 code units
)

// Partition is one entry. Offsets and sizes are bytes, GUIDs their usual text form in either case.
type Partition struct {
	Name       string
	Type       string
	GUID       string
	Start      int64
	Size       int64
	Attributes uint64
}

// End is the offset of the first byte behind the partition.
func (p Partition) End() int64 { return p.Start + p.Size }

// Table is a disk's partition table.
type Table struct {
	DiskGUID   string
	DiskSize   int64
	SectorSize int         // 512 or 4096
	Partitions []Partition // entry i+1 of the table; one with an empty Type is an unused entry

	// FromBackup is set by Read when the primary table was damaged.
	FromBackup bool

	custom bool // as read: not entryCount entries of entrySize
}

// Find returns the partition of that name.
func (t *Table) Find(name string) (Partition, bool) {
	for _, p := range t.Partitions {
		if p.Type != "" && p.Name == name {
			return p, true
		}
	}
	return Partition{}, false
}

// first and last are the bounds, in bytes, of what partitions may use.
func (t *Table) first() int64 { return int64(2*t.SectorSize) + entrySize*entryCount }
func (t *Table) last() int64  { return t.DiskSize - int64(t.SectorSize) - entrySize*entryCount }

// check refuses a table that a strict reader would refuse.
func (t *Table) check() error {
	if t.SectorSize != 512 && t.SectorSize != 4096 {
		return fmt.Errorf("cannot make a partition table for sectors of %d bytes: want 512 or 4096", t.SectorSize)
	}
	if t.DiskSize%int64(t.SectorSize) != 0 || t.DiskSize < 2*Align {
		return fmt.Errorf("cannot make a partition table for a disk of %d bytes", t.DiskSize)
	}
	if len(t.Partitions) > entryCount {
		return fmt.Errorf("cannot make %d partitions: the table has %d entries", len(t.Partitions), entryCount)
	}
	if _, err := parseGUID(t.DiskGUID); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	for i, p := range t.Partitions {
		if p.Type == "" {
			continue
		}
		if err := t.checkPartition(i); err != nil {
			return fmt.Errorf("partition %d (%s): %w", i+1, p.Name, err)
		}
	}
	return nil
}

func (t *Table) checkPartition(i int) error {
	p := t.Partitions[i]
	for _, s := range []string{p.Type, p.GUID} {
		if _, err := parseGUID(s); err != nil {
			return err
		}
	}
	if n := len(utf16.Encode([]rune(p.Name))); n > maxName {
		return fmt.Errorf("cannot use a name of %d characters: at most %d", n, maxName)
	}
	sector := int64(t.SectorSize)
	switch {
	case p.Start%sector != 0 || p.Size%sector != 0 || p.Size <= 0:
		return fmt.Errorf("cannot place %d bytes at %d: not whole sectors", p.Size, p.Start)
	case p.Start < t.first() || p.Size > t.last() || p.Start > t.last()-p.Size:
		return fmt.Errorf("cannot place %d bytes at %d: partitions may lie from %d to %d", p.Size, p.Start, t.first(), t.last())
	}
	for j, q := range t.Partitions[:i] {
		if q.Type == "" {
			continue
		}
		if p.Start < q.End() && q.Start < p.End() {
			return fmt.Errorf("cannot place %d bytes at %d: overlaps partition %d (%s)", p.Size, p.Start, j+1, q.Name)
		}
		if strings.EqualFold(p.GUID, q.GUID) {
			return fmt.Errorf("cannot use GUID %s twice", p.GUID)
		}
	}
	return nil
}

// parseGUID returns the 16 bytes as they lie on the disk: the first three fields are little-endian
// (UEFI 2.10, appendix A).
func parseGUID(s string) ([16]byte, error) {
	var g [16]byte
	ok := len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-'
	if ok {
		n, err := hex.Decode(g[:], []byte(strings.ReplaceAll(s, "-", "")))
		ok = n == 16 && err == nil
	}
	if !ok {
		return g, fmt.Errorf("cannot read GUID %q", s)
	}
	return swapGUID(g), nil
}

// formatGUID is parseGUID's inverse.
func formatGUID(disk [16]byte) string {
	g := swapGUID(disk)
	return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", g[0:4], g[4:6], g[6:8], g[8:10], g[10:16]))
}

func swapGUID(g [16]byte) [16]byte {
	g[0], g[1], g[2], g[3] = g[3], g[2], g[1], g[0]
	g[4], g[5] = g[5], g[4]
	g[6], g[7] = g[7], g[6]
	return g
}
