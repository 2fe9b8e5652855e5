package gpt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"unicode/utf16"
)

const (
	headerSize = 92 // UEFI 2.10, table 5.5
	revision   = 0x00010000
	maxEntries = 1 << 20 // bytes of entries that are read at most; 16 KiB are usual
)

var signature = [8]byte{'E', 'F', 'I', ' ', 'P', 'A', 'R', 'T'}

// header is UEFI 2.10, table 5.5.
type header struct {
	Signature   [8]byte
	Revision    uint32
	HeaderSize  uint32
	HeaderCRC   uint32
	_           uint32
	MyLBA       uint64
	OtherLBA    uint64
	FirstUsable uint64
	LastUsable  uint64
	DiskGUID    [16]byte
	EntriesLBA  uint64
	EntryCount  uint32
	EntrySize   uint32
	EntriesCRC  uint32
}

// entry is UEFI 2.10, table 5.6.
type entry struct {
	Type       [16]byte
	GUID       [16]byte
	First      uint64
	Last       uint64 // inclusive
	Attributes uint64
	Name       [maxName]uint16
}

// ErrNoTable is wrapped by Read's error when neither copy of the table is good.
var ErrNoTable = errors.New("no valid partition table")

// Read reads the table of a disk of size bytes and verifies its checksums. If the primary table is damaged, the
// copy in the disk's last sector is taken and FromBackup is set. A table whose disk has grown since is read as it
// is: DiskSize is the size the table was made for.
func Read(disk io.ReaderAt, size int64, sectorSize int) (*Table, error) {
	if sectorSize < 512 || sectorSize > 4096 || sectorSize&(sectorSize-1) != 0 {
		return nil, fmt.Errorf("cannot read a partition table in sectors of %d bytes", sectorSize)
	}
	t, err := readAt(disk, size, sectorSize, 1)
	if err == nil {
		return t, nil
	}
	t, err2 := readAt(disk, size, sectorSize, size/int64(sectorSize)-1)
	if err2 != nil {
		return nil, fmt.Errorf("%w: primary: %w; backup: %w", ErrNoTable, err, err2)
	}
	t.FromBackup = true
	return t, nil
}

// readAt reads the table whose header is in sector lba.
func readAt(disk io.ReaderAt, size int64, sectorSize int, lba int64) (*Table, error) {
	b := make([]byte, sectorSize)
	if err := readFull(disk, b, size, lba*int64(sectorSize)); err != nil {
		return nil, fmt.Errorf("reading the header: %w", err)
	}
	h, err := parseHeader(b, uint64(lba), uint64(size)/uint64(sectorSize))
	if err != nil {
		return nil, err
	}
	entries := make([]byte, int(h.EntryCount)*int(h.EntrySize))
	if err := readFull(disk, entries, size, int64(h.EntriesLBA)*int64(sectorSize)); err != nil {
		return nil, fmt.Errorf("reading the entries: %w", err)
	}
	if got := crc32.ChecksumIEEE(entries); got != h.EntriesCRC {
		return nil, fmt.Errorf("entries have checksum %08x, want %08x", got, h.EntriesCRC)
	}
	t := &Table{
		DiskGUID:   formatGUID(h.DiskGUID),
		DiskSize:   int64(max(h.MyLBA, h.OtherLBA)+1) * int64(sectorSize),
		SectorSize: sectorSize,
		custom:     h.EntryCount != entryCount || h.EntrySize != entrySize,
	}
	for i := 0; i < len(entries); i += int(h.EntrySize) {
		p, err := parseEntry(entries[i:i+entrySize], h, sectorSize)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", i/int(h.EntrySize)+1, err)
		}
		t.Partitions = append(t.Partitions, p)
	}
	for n := len(t.Partitions); n > 0 && t.Partitions[n-1].Type == ""; n-- {
		t.Partitions = t.Partitions[:n-1]
	}
	return t, nil
}

// parseHeader checks everything that later code computes with; sectors is the disk's size.
func parseHeader(b []byte, lba, sectors uint64) (header, error) {
	var h header
	if _, err := binary.Decode(b, binary.LittleEndian, &h); err != nil {
		return h, err
	}
	if h.Signature != signature {
		return h, errors.New("no signature")
	}
	if h.Revision != revision || h.HeaderSize < headerSize || int(h.HeaderSize) > len(b) {
		return h, fmt.Errorf("cannot read revision %#x with a header of %d bytes", h.Revision, h.HeaderSize)
	}
	sum := make([]byte, h.HeaderSize)
	copy(sum, b)
	clear(sum[16:20]) // HeaderCRC itself
	if got := crc32.ChecksumIEEE(sum); got != h.HeaderCRC {
		return h, fmt.Errorf("header has checksum %08x, want %08x", got, h.HeaderCRC)
	}
	if h.MyLBA != lba {
		return h, fmt.Errorf("header in sector %d says it is in %d", lba, h.MyLBA)
	}
	if h.EntrySize < entrySize || h.EntrySize%8 != 0 || h.EntryCount == 0 || uint64(h.EntrySize)*uint64(h.EntryCount) > maxEntries {
		return h, fmt.Errorf("cannot read %d entries of %d bytes", h.EntryCount, h.EntrySize)
	}
	// The other copy may lie behind the end of a disk that shrank, but not where numbers overflow.
	const most = 1 << 50
	if h.EntriesLBA >= sectors || h.OtherLBA > most || h.LastUsable > most || h.FirstUsable > h.LastUsable {
		return h, fmt.Errorf("header points outside of the disk")
	}
	return h, nil
}

func parseEntry(b []byte, h header, sectorSize int) (Partition, error) {
	var e entry
	if _, err := binary.Decode(b, binary.LittleEndian, &e); err != nil {
		return Partition{}, err
	}
	if e.Type == ([16]byte{}) {
		return Partition{}, nil
	}
	if e.First > e.Last || e.First < h.FirstUsable || e.Last > h.LastUsable {
		return Partition{}, fmt.Errorf("sectors %d to %d are not within %d to %d", e.First, e.Last, h.FirstUsable, h.LastUsable)
	}
	name := e.Name[:]
	for i, c := range name {
		if c == 0 {
			name = name[:i]
			break
		}
	}
	return Partition{
		Name: string(utf16.Decode(name)),
		Type: formatGUID(e.Type), GUID: formatGUID(e.GUID),
		Start: int64(e.First) * int64(sectorSize), Size: int64(e.Last-e.First+1) * int64(sectorSize),
		Attributes: e.Attributes,
	}, nil
}

func readFull(r io.ReaderAt, b []byte, size, off int64) error {
	if off < 0 || off > size-int64(len(b)) {
		return io.ErrUnexpectedEOF
	}
	if n, err := r.ReadAt(b, off); n < len(b) {
		return err
	}
	return nil
}
