package vmdk

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/splice"
)

// sparseExtentHeader is the first sector and, as the footer, the last but one. All numbers are little-endian.
type sparseExtentHeader struct {
	MagicNumber        uint32
	Version            uint32
	Flags              uint32
	Capacity           uint64 // sectors
	GrainSize          uint64 // sectors
	DescriptorOffset   uint64 // sectors
	DescriptorSize     uint64 // sectors
	NumGTEsPerGT       uint32
	RGDOffset          uint64 // sectors; there is no second directory
	GDOffset           uint64 // sectors
	OverHead           uint64 // sectors
	UncleanShutdown    uint8
	SingleEndLineChar  uint8 // these four find out that a transfer as text changed the file
	NonEndLineChar     uint8
	DoubleEndLineChar1 uint8
	DoubleEndLineChar2 uint8
	CompressAlgorithm  uint16
	Pad                [433]uint8
}

const (
	magicNumber   = 0x564d444b // "KDMV"
	version       = 3          // what compressed grains need
	flags         = 1 | 1<<16 | 1<<17
	gdAtEnd       = 1<<64 - 1 // the footer says where
	deflateMethod = 1
)

// Types of the markers before metadata.
const (
	markerEOS = iota
	markerGT
	markerGD
	markerFooter
)

func header(size, gdOffset uint64) []byte {
	var b bytes.Buffer
	h := sparseExtentHeader{
		MagicNumber: magicNumber, Version: version, Flags: flags, Capacity: size / sector, GrainSize: grainSize / sector,
		DescriptorOffset: descriptorAt / sector, DescriptorSize: descriptorSz / sector, NumGTEsPerGT: grainsPerGT,
		GDOffset: gdOffset, OverHead: overhead / sector,
		SingleEndLineChar: '\n', NonEndLineChar: ' ', DoubleEndLineChar1: '\r', DoubleEndLineChar2: '\n',
		CompressAlgorithm: deflateMethod,
	}
	_ = binary.Write(&b, binary.LittleEndian, h) // a buffer takes all
	return b.Bytes()
}

// descriptor is the embedded text. CID, which should change when the content does, is of a hash of the disk's plan.
func descriptor(raw *extent.Plan, name string) ([]byte, error) {
	if strings.ContainsAny(name, "\"/\n") || name == "" {
		return nil, fmt.Errorf("cannot name a VMDK %q", name)
	}
	id := splice.Identity(raw)
	cid := binary.BigEndian.Uint32(id[:]) &^ 1 // never ffffffff, which means no parent
	const heads, perTrack = 255, 63            // what every BIOS makes of a large disk
	sectors := raw.Size() / sector
	lines := []string{
		"# Disk DescriptorFile",
		"version=1",
		fmt.Sprintf("CID=%08x", cid),
		"parentCID=ffffffff",
		`createType="streamOptimized"`,
		"",
		"# Extent description",
		fmt.Sprintf("RW %d SPARSE %q", sectors, name),
		"",
		"# The Disk Data Base",
		"#DDB",
		"",
		`ddb.adapterType = "lsilogic"`, // also of a disk at a paravirtual controller
		fmt.Sprintf(`ddb.geometry.cylinders = "%d"`, min(sectors/(heads*perTrack), 65535)),
		fmt.Sprintf(`ddb.geometry.heads = "%d"`, heads),
		fmt.Sprintf(`ddb.geometry.sectors = "%d"`, perTrack),
		fmt.Sprintf(`ddb.longContentID = "%s"`, hex.EncodeToString(id[:16])),
		`ddb.virtualHWVersion = "15"`,
		"",
	}
	return []byte(strings.Join(lines, "\n")), nil
}

func roundUp(n int64) int64 { return (n + sector - 1) / sector * sector }

// tables is how many grain tables the grains need.
func tables(grains []grain) (n int64) {
	last := int64(-1)
	for _, g := range grains {
		if table := g.number / grainsPerGT; table != last {
			n, last = n+1, table
		}
	}
	return n
}

// file is a VMDK in the making, written from start to end.
type file struct {
	plan *extent.Plan
	pos  int64
	gd   []uint32
	gt   []uint32 // of the table that is being filled
}

// assemble puts the parts behind one another: header, descriptor, grains - each table behind its grains -,
// directory, footer, end of stream.
func assemble(size int64, text []byte, grains []grain) (*extent.Plan, error) {
	covered := int64(grainSize * grainsPerGT)
	f := &file{gd: make([]uint32, (size+covered-1)/covered), gt: make([]uint32, grainsPerGT), pos: overhead}
	total := overhead + tables(grains)*(sector+tableSize) + sector + roundUp(int64(4*len(f.gd))) + 3*sector
	for _, g := range grains {
		total += roundUp(markerSize + g.piece.Size)
	}
	if total > maxOffset {
		return nil, fmt.Errorf("cannot make a VMDK of %d bytes: grain tables reach %d", total, int64(maxOffset))
	}
	f.plan = extent.New(total)
	f.plan.PutBytes(0, header(uint64(size), gdAtEnd))
	f.plan.PutBytes(descriptorAt, text)
	for i, g := range grains {
		f.grain(g)
		if i+1 == len(grains) || grains[i+1].number/grainsPerGT != g.number/grainsPerGT {
			f.table(g.number / grainsPerGT)
		}
	}
	f.marker(markerGD, roundUp(int64(4*len(f.gd))))
	gd := f.pos
	f.numbers(f.gd)
	f.marker(markerFooter, sector)
	f.plan.PutBytes(f.pos, header(uint64(size), uint64(gd/sector)))
	f.pos += sector
	f.pos += sector // the end-of-stream marker is zeros
	if f.pos != total && f.plan.Err() == nil {
		return nil, fmt.Errorf("internal error: a VMDK of %d bytes ends at %d", total, f.pos)
	}
	return f.plan, f.plan.Err()
}

// grain appends one, behind its marker: the disk's sector and the compressed size.
func (f *file) grain(g grain) {
	marker := binary.LittleEndian.AppendUint64(nil, uint64(g.number*grainSize/sector))
	marker = binary.LittleEndian.AppendUint32(marker, uint32(g.piece.Size))
	if g.piece.Literal != nil {
		f.plan.PutBytes(f.pos, append(marker, g.piece.Literal...))
	} else {
		f.plan.PutBytes(f.pos, marker)
		f.plan.PutRange(f.pos+markerSize, g.piece.Blob, g.piece.Off, g.piece.Size)
	}
	f.gt[g.number%grainsPerGT] = uint32(f.pos / sector)
	f.pos += roundUp(markerSize + g.piece.Size)
}

// table appends the table of the grains so far.
func (f *file) table(number int64) {
	f.marker(markerGT, tableSize)
	f.gd[number] = uint32(f.pos / sector)
	f.numbers(f.gt)
	clear(f.gt)
}

// marker appends that of so many bytes of metadata.
func (f *file) marker(kind uint32, size int64) {
	b := binary.LittleEndian.AppendUint64(nil, uint64(size/sector))
	b = binary.LittleEndian.AppendUint32(b, 0) // no grain
	f.plan.PutBytes(f.pos, binary.LittleEndian.AppendUint32(b, kind))
	f.pos += sector
}

func (f *file) numbers(list []uint32) {
	var b []byte
	for _, n := range list {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	f.plan.PutBytes(f.pos, b)
	f.pos += roundUp(int64(len(b)))
}
