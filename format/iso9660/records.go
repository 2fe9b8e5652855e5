package iso9660

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
)

// File flags of a directory record (ECMA-119 9.1.6).
const (
	flagDir  = 1 << 1
	flagMore = 1 << 7 // the file has another extent, in the next record
)

const (
	selfID   = "\x00" // ECMA-119 6.8.2.2: how a directory names itself, and its parent
	parentID = "\x01"

	maxRecord = 254 // one byte says its length, and it is even
)

// attributes are what the records of a volume have in common.
type attributes struct {
	stamp [7]byte
	susp  int64 // sector of the continuation area
}

// record is a directory record (ECMA-119 9.1). Location and size are bytes.
func record(id string, flags byte, off, size int64, stamp [7]byte, use []byte) []byte {
	b := make([]byte, 33, maxRecord)
	both32(b[2:], off/Sector)
	both32(b[10:], size)
	copy(b[18:25], stamp[:])
	b[25] = flags
	both16(b[28:], 1) // the volume's number in its set
	b[32] = byte(len(id))
	b = append(b, id...)
	b = even(b)
	b = even(append(b, use...))
	b[0] = byte(len(b))
	return b
}

func even(b []byte) []byte {
	if len(b)%2 != 0 {
		return append(b, 0)
	}
	return b
}

// both16 and both32 write a number in both orders of bytes (ECMA-119 7.2.3 and 7.3.3).
func both16(b []byte, n int64) {
	binary.LittleEndian.PutUint16(b, uint16(n))
	binary.BigEndian.PutUint16(b[2:], uint16(n))
}

func both32(b []byte, n int64) {
	binary.LittleEndian.PutUint32(b, uint32(n))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
}

// records is a directory's content: whole sectors, with no record across two of them (ECMA-119 6.8.1.1).
func (n *node) records(a attributes) []byte {
	var sectors []byte
	put := func(r []byte) {
		if left := Sector - len(sectors)%Sector; left < len(r) {
			sectors = append(sectors, make([]byte, left)...)
		}
		sectors = append(sectors, r...)
	}
	up := n.parent
	if up == nil {
		up = n
	}
	use := n.systemUse(a, "")
	if n.parent == nil {
		use = bytes.Join([][]byte{sharingProtocol(), use, continuation(a.susp)}, nil)
	}
	put(record(selfID, flagDir, n.off, n.size, a.stamp, use))
	put(record(parentID, flagDir, up.off, up.size, a.stamp, up.systemUse(a, "")))
	for _, e := range n.entries {
		for _, r := range e.ownRecords(a) {
			put(r)
		}
	}
	return append(sectors, make([]byte, roundUp(int64(len(sectors)), Sector)-int64(len(sectors)))...)
}

// ownRecords are the records of an entry: one, or one for each extent of a large file (ECMA-119 6.5.1).
func (n *node) ownRecords(a attributes) [][]byte {
	use := n.systemUse(a, n.name)
	if n.dir {
		return [][]byte{record(n.id, flagDir, n.off, n.size, a.stamp, use)}
	}
	var records [][]byte
	off, size := n.off, n.size
	for ; size > maxExtent; off, size = off+maxExtent, size-maxExtent {
		records = append(records, record(n.id, flagMore, off, maxExtent, a.stamp, use))
	}
	return append(records, record(n.id, 0, off, size, a.stamp, use))
}

// recordTime is a directory record's date (ECMA-119 9.1.5), in UTC, and within what volumes can say.
func recordTime(t time.Time) [7]byte {
	t = clamp(t)
	return [7]byte{byte(t.Year() - 1900), byte(t.Month()), byte(t.Day()), byte(t.Hour()), byte(t.Minute()), byte(t.Second()), 0}
}

func clamp(t time.Time) time.Time {
	t = t.UTC()
	if t.Year() < 1970 {
		return time.Unix(0, 0).UTC()
	}
	if t.Year() > 1900+255 {
		return time.Date(1900+255, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return t
}

// pathTable is the list of all directories (ECMA-119 9.4), which a volume has twice, once in each order of bytes.
func (l *Layout) pathTable(bigEndian bool) []byte {
	order := binary.ByteOrder(binary.LittleEndian)
	if bigEndian {
		order = binary.BigEndian
	}
	var b []byte
	for _, d := range l.dirs {
		id, up := d.id, d.parent
		if up == nil {
			id, up = selfID, d
		}
		r := make([]byte, 8)
		r[0] = byte(len(id))
		order.PutUint32(r[2:], uint32(d.off/Sector))
		order.PutUint16(r[6:], uint16(up.number))
		b = append(b, even(append(r, id...))...)
	}
	return b
}

func (v Volume) putPathTables(l *Layout, p *extent.Plan) error {
	p.PutBytes(l.sectors.pathL*Sector, l.pathTable(false))
	return p.PutBytes(l.sectors.pathM*Sector, l.pathTable(true))
}

func (v Volume) putDirectories(l *Layout, p *extent.Plan) error {
	a := attributes{stamp: recordTime(v.Time), susp: l.sectors.susp}
	for _, d := range l.dirs {
		if err := p.PutBytes(d.off, d.records(a)); err != nil {
			return err
		}
	}
	return p.PutBytes(l.sectors.susp*Sector, extensionsReference())
}
