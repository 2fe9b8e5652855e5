package qcow2

import (
	"encoding/binary"
	"math/bits"

	"github.com/talos-factory/talos-factory/format/extent"
)

const (
	headerSize = 104     // header_length: version 3 without additional fields
	copied     = 1 << 63 // of an L1 or L2 entry: what it points to has a reference count of exactly one
)

// header is the start of the file. Everything in the format is big-endian.
type header struct {
	Magic                 [4]byte
	Version               uint32
	BackingFileOffset     uint64
	BackingFileSize       uint32
	ClusterBits           uint32
	Size                  uint64 // of the disk, in bytes
	CryptMethod           uint32
	L1Size                uint32 // entries
	L1TableOffset         uint64
	RefcountTableOffset   uint64
	RefcountTableClusters uint32
	Snapshots             uint32
	SnapshotsOffset       uint64
	IncompatibleFeatures  uint64
	CompatibleFeatures    uint64
	AutoclearFeatures     uint64
	RefcountOrder         uint32
	HeaderLength          uint32
}

func (l *layout) putTables(p *extent.Plan, diskSize int64) {
	b, err := binary.Append(nil, binary.BigEndian, header{
		Magic:                 [4]byte{'Q', 'F', 'I', 0xfb},
		Version:               3,
		ClusterBits:           uint32(bits.TrailingZeros64(uint64(l.cluster))),
		Size:                  uint64(diskSize),
		L1Size:                uint32(l.l1Entries),
		L1TableOffset:         uint64(l.l1 * l.cluster),
		RefcountTableOffset:   uint64(l.countTable * l.cluster),
		RefcountTableClusters: uint32(l.countTables),
		RefcountOrder:         uint32(l.order),
		HeaderLength:          headerSize,
	})
	if err != nil {
		panic("internal error: " + err.Error()) // only if the type has no fixed size
	}
	p.PutBytes(0, b)

	blocks := l.countTable + l.countTables
	p.PutBytes(l.countTable*l.cluster, l.entries(blocks, l.countBlocks, 0))
	p.PutBytes(blocks*l.cluster, l.counts())
	l.putL1(p)
	l.putL2(p)
}

// entries are the entries of a table that point to n clusters from first on.
func (l *layout) entries(first, n int64, flags uint64) []byte {
	b := make([]byte, 0, n*entrySize)
	for i := range n {
		b = binary.BigEndian.AppendUint64(b, uint64((first+i)*l.cluster)|flags)
	}
	return b
}

// counts are the reference counts of all clusters, 1 or 0. Refcount blocks follow each other, so they are one array.
func (l *layout) counts() []byte {
	b := make([]byte, l.countBytes())
	mark := func(from, n int64) {
		for c := from; c < from+n; c++ {
			if l.order == narrowCounts {
				b[c/8] |= 1 << (c % 8) // bit 0 means the least significant one
			} else {
				b[2*c+1] = 1
			}
		}
	}
	mark(0, l.l2+int64(len(l.l2Tables)))
	for _, r := range l.runs {
		mark(r.host, r.n)
	}
	return b
}

// putL1 plans a literal for each stretch of entries that have an L2 table.
func (l *layout) putL1(p *extent.Plan) {
	for i := 0; i < len(l.l2Tables); {
		n := 1
		for i+n < len(l.l2Tables) && l.l2Tables[i+n] == l.l2Tables[i]+int64(n) {
			n++
		}
		p.PutBytes(l.l1*l.cluster+l.l2Tables[i]*entrySize, l.entries(l.l2+int64(i), int64(n), copied))
		i += n
	}
}

// putL2 plans a literal for each run: where it reaches into the next L2 table, that one follows in the image.
func (l *layout) putL2(p *extent.Plan) {
	i := 0
	for _, r := range l.runs {
		for l.l2Tables[i] < r.guest/l.perTable() {
			i++
		}
		off := (l.l2+int64(i))*l.cluster + r.guest%l.perTable()*entrySize
		p.PutBytes(off, l.entries(r.host, r.n, copied))
	}
}
