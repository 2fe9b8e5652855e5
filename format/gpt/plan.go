package gpt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	diskfs "github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/talos-factory/talos-factory/format/extent"
)

// protectiveSize is where the protective MBR's size in sectors lies (UEFI 2.10, table 5.4, in the
// record at 446).
const protectiveSize = 446 + 12

// Plan returns the whole disk with only the table in it: the protective MBR from byte 446 on, and both
// copies. Boot code and partition contents are the caller's to nest.
func (t *Table) Plan() (*extent.Plan, error) {
	writes, err := t.writes()
	if err != nil {
		return nil, err
	}
	p := extent.New(t.DiskSize)
	for _, w := range writes {
		p.PutBytes(w.Off, w.Literal)
	}
	return p, p.Err()
}

// GrowLast plans how the partition that lies last is enlarged to the end of a disk of diskSize bytes, with the table's second
// copy moved there. It returns the new table and what to write, in the order in which to write it: the second copy comes first, so that
// a power cut leaves one good table. The table is not changed. If nothing would change, there is nothing to write.
func (t *Table) GrowLast(diskSize int64) (*Table, []extent.Extent, error) {
	if t.custom {
		return nil, nil, fmt.Errorf("cannot edit a partition table that has not %d entries of %d bytes", entryCount, entrySize)
	}
	diskSize -= diskSize % int64(t.SectorSize)
	last := -1
	for i, p := range t.Partitions {
		if p.Type != "" && (last < 0 || p.Start > t.Partitions[last].Start) {
			last = i
		}
	}
	if last < 0 {
		return nil, nil, errors.New("cannot grow the last partition: there is none")
	}
	grown := *t
	grown.DiskSize, grown.FromBackup = diskSize, false
	grown.Partitions = append([]Partition(nil), t.Partitions...)
	p := &grown.Partitions[last]
	end := grown.last() / Align * Align
	if end < p.End() {
		end = p.End() // never shrink; check says if it does not fit
	}
	p.Size = end - p.Start
	if !t.FromBackup && diskSize == t.DiskSize && p.Size == t.Partitions[last].Size {
		return &grown, nil, nil
	}
	writes, err := grown.writes()
	if err != nil {
		return nil, nil, fmt.Errorf("growing partition %s: %w", p.Name, err)
	}
	return &grown, writes, nil
}

// writes is what go-diskfs writes, in its order.
func (t *Table) writes() ([]extent.Extent, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	table := diskfs.Table{LogicalSectorSize: t.SectorSize, PhysicalSectorSize: t.SectorSize, GUID: t.DiskGUID, ProtectiveMBR: true}
	sector := int64(t.SectorSize)
	for i, p := range t.Partitions {
		if p.Type == "" {
			continue
		}
		table.Partitions = append(table.Partitions, &diskfs.Partition{
			Index: i + 1, Name: p.Name,
			Type: diskfs.Type(strings.ToUpper(p.Type)), GUID: p.GUID, Attributes: p.Attributes,
			Start: uint64(p.Start / sector), End: uint64(p.End()/sector) - 1, Size: uint64(p.Size),
		})
	}
	var rec recorder
	if err := table.Write(&rec, t.DiskSize); err != nil {
		return nil, fmt.Errorf("writing the partition table: %w", err)
	}
	t.capProtectiveSize(rec.writes)
	return rec.writes, nil
}

// capProtectiveSize mends what go-diskfs 1.9.4 does for disks of 2^32 sectors and more: it truncates
// the size in the protective MBR, where UEFI 2.10, table 5.4, wants 0xFFFFFFFF.
func (t *Table) capProtectiveSize(writes []extent.Extent) {
	if t.DiskSize/int64(t.SectorSize)-1 <= 0xFFFFFFFF {
		return
	}
	for _, w := range writes {
		if w.Off <= protectiveSize && protectiveSize+4 <= w.Off+w.Len {
			binary.LittleEndian.PutUint32(w.Literal[protectiveSize-w.Off:], 0xFFFFFFFF)
		}
	}
}

// recorder is a disk that remembers what was written to it and cannot be read.
type recorder struct{ writes []extent.Extent }

func (r *recorder) WriteAt(b []byte, off int64) (int, error) {
	r.writes = append(r.writes, extent.Extent{Off: off, Len: int64(len(b)), Literal: bytes.Clone(b)})
	return len(b), nil
}

func (*recorder) ReadAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }
func (*recorder) Read([]byte) (int, error)          { return 0, errors.ErrUnsupported }
func (*recorder) Seek(int64, int) (int64, error)    { return 0, errors.ErrUnsupported }
func (*recorder) Stat() (fs.FileInfo, error)        { return nil, errors.ErrUnsupported }
func (*recorder) Close() error                      { return nil }
