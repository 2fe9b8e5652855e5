package vhd

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/talos-factory/talos-factory/format/extent"
)

const (
	formatVersion = 0x00010000          // file format version, and header version: 1.0
	noOffset      = 0xFFFFFFFF_FFFFFFFF // data offset of what has no further structure
	reserved      = 2                   // of the field features: a bit that must always be set

	// Readers know by the creator application whether current size or the geometry is the disk's size. This one is
	// QEMU's for current size (its option force_size, which Azure's manual uses).
	creatorApplication = "qem2"
	creatorVersion     = 0x00050003 // as QEMU has it
	creatorHostOS      = "Wi2k"     // Windows; the other value is Macintosh
)

// diskFooter is "Hard Disk Footer Format". Everything in the format is big-endian.
type diskFooter struct {
	Cookie             [8]byte
	Features           uint32
	FileFormatVersion  uint32
	DataOffset         uint64 // of the dynamic disk header
	TimeStamp          uint32
	CreatorApplication [4]byte
	CreatorVersion     uint32
	CreatorHostOS      [4]byte
	OriginalSize       uint64
	CurrentSize        uint64
	Geometry           geometry
	DiskType           Kind
	Checksum           uint32
	UniqueID           [16]byte
	SavedState         uint8
	Reserved           [427]byte
}

const footerChecksum = 64 // where Checksum lies

func footer(kind Kind, size int64, stamp uint32, id [16]byte) []byte {
	f := diskFooter{
		Features: reserved, FileFormatVersion: formatVersion, DataOffset: noOffset, TimeStamp: stamp,
		CreatorVersion: creatorVersion, OriginalSize: uint64(size), CurrentSize: uint64(size),
		Geometry: geometryOf(size / sector), DiskType: kind, UniqueID: id,
	}
	copy(f.Cookie[:], "conectix")
	copy(f.CreatorApplication[:], creatorApplication)
	copy(f.CreatorHostOS[:], creatorHostOS)
	if kind == Dynamic {
		f.DataOffset = headerOffset
	}
	return summed(f, footerChecksum)
}

// summed is the bytes of a record of fixed size with its checksum, the ones' complement of the sum of all others, placed at off.
func summed(record any, off int) []byte {
	b, err := binary.Append(nil, binary.BigEndian, record)
	if err != nil {
		panic("internal error: " + err.Error()) // only if the type has no fixed size
	}
	var sum uint32
	for _, c := range b {
		sum += uint32(c)
	}
	binary.BigEndian.PutUint32(b[off:], ^sum)
	return b
}

// geometry is what a BIOS would be told.
type geometry struct {
	Cylinders uint16
	Heads     uint8
	Sectors   uint8 // per track
}

// geometryOf is the specification's "CHS Calculation": the largest geometry of ATA that is not larger than the disk.
func geometryOf(sectors int64) geometry {
	sectors = min(sectors, 65535*16*255)
	if sectors >= 65535*16*63 {
		return geometry{uint16(sectors / 255 / 16), 16, 255}
	}
	perTrack := int64(17)
	tracks := sectors / perTrack // cylinders times heads
	heads := max((tracks+1023)/1024, 4)
	if tracks >= heads*1024 || heads > 16 {
		perTrack, heads = 31, 16
		tracks = sectors / perTrack
	}
	if tracks >= heads*1024 {
		perTrack, heads = 63, 16
		tracks = sectors / perTrack
	}
	return geometry{uint16(tracks / heads), uint8(heads), uint8(perTrack)}
}

// uniqueID is a UUID of version 8 (RFC 9562, 5.8) from the sha256 of what the disk is planned to be.
func uniqueID(raw *extent.Plan, kind Kind) [16]byte {
	h := sha256.New()
	number := func(n ...int64) {
		for _, n := range n {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
		}
	}
	number(int64(kind), raw.Size())
	for _, e := range raw.Extents() {
		number(e.Off, e.Len)
		if e.Literal != nil {
			h.Write(e.Literal)
		} else {
			h.Write(e.Blob.SHA256[:])
			number(e.BlobOff)
		}
	}
	id := [16]byte(h.Sum(nil))
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}
