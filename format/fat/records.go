package fat

import (
	"slices"
	"unicode/utf16"
)

const (
	recordSize  = 32
	lfnPerEntry = 13   // UTF-16 units
	lfnLast     = 0x40 // marks the record that holds the name's end, which comes first

	attrLabel = 0x08
	attrDir   = 0x10
	attrFile  = 0x20 // archive, as mkfs and Linux set it
	attrLong  = 0x0F
)

// record is a short directory entry (specification 1.03, "FAT 32 Byte Directory Entry Structure").
type record struct {
	Name        [11]byte
	Attr        uint8
	Case        uint8
	CreateTenth uint8
	CreateTime  uint16
	CreateDate  uint16
	AccessDate  uint16
	ClusterHigh uint16
	WriteTime   uint16
	WriteDate   uint16
	ClusterLow  uint16
	Size        uint32
}

// longRecord is a piece of a long name (specification 1.03, "FAT Long Directory Entry Structure").
type longRecord struct {
	Order    uint8
	Name1    [5]uint16
	Attr     uint8
	Type     uint8
	Checksum uint8
	Name2    [6]uint16
	Cluster  uint16
	Name3    [2]uint16
}

// dirBytes is the size of a directory's records; an empty root still needs its label and a cluster.
func (n *node) dirBytes() int64 {
	count := 2 // "." and ".."; in the root the label and one to spare
	for _, e := range n.entries {
		count += 1 + e.longRecords()
	}
	return int64(count) * recordSize
}

func (n *node) longRecords() int {
	if !n.long {
		return 0
	}
	return (len(utf16.Encode([]rune(n.name))) + lfnPerEntry - 1) / lfnPerEntry
}

// records is a directory's content.
func (n *node) records(label [11]byte, stamp [2]uint16) []byte {
	var b []byte
	if n.parent == nil {
		b = append(b, encode(newRecord(label, attrLabel, 0, 0, stamp))...)
	} else {
		up := n.parent.cluster
		if n.parent.parent == nil {
			up = 0 // the root is named so in "..", wherever it lies
		}
		b = append(b, encode(newRecord(join(".", ""), attrDir, n.cluster, 0, stamp))...)
		b = append(b, encode(newRecord(join("..", ""), attrDir, up, 0, stamp))...)
	}
	for _, e := range n.entries {
		b = append(b, e.nameRecords()...)
		attr, size := uint8(attrDir), uint32(0)
		if !e.dir {
			attr, size = attrFile, uint32(e.content.Size())
		}
		b = append(b, encode(newRecord(e.short, attr, e.cluster, size, stamp))...)
	}
	return b
}

func newRecord(name [11]byte, attr uint8, cluster, size uint32, stamp [2]uint16) record {
	return record{Name: name, Attr: attr, CreateDate: stamp[0], CreateTime: stamp[1], AccessDate: stamp[0],
		WriteDate: stamp[0], WriteTime: stamp[1], ClusterHigh: uint16(cluster >> 16), ClusterLow: uint16(cluster), Size: size}
}

// nameRecords are the records of a long name, last piece first.
func (n *node) nameRecords() []byte {
	count := n.longRecords()
	if count == 0 {
		return nil
	}
	// Behind the name come one 0 and then 0xFFFF, unless it ends just at a record's end.
	name := append(utf16.Encode([]rune(n.name)), 0)
	name = append(name, slices.Repeat([]uint16{0xFFFF}, lfnPerEntry)...)
	var b []byte
	for i := count; i > 0; i-- {
		piece := name[(i-1)*lfnPerEntry : i*lfnPerEntry]
		r := longRecord{Order: uint8(i), Attr: attrLong, Checksum: checksum(n.short),
			Name1: [5]uint16(piece[0:5]), Name2: [6]uint16(piece[5:11]), Name3: [2]uint16(piece[11:13])}
		if i == count {
			r.Order |= lfnLast
		}
		b = append(b, encode(r)...)
	}
	return b
}
