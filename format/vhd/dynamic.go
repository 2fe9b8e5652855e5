package vhd

import (
	"bytes"
	"encoding/binary"

	"github.com/talos-factory/talos-factory/format/extent"
)

const (
	headerOffset = sector           // behind the footer's copy
	tableOffset  = headerOffset * 3 // behind the header's two sectors
	blockSize    = 2 << 20          // the specification's default, and all that some readers know
	bitmapSize   = blockSize / sector / 8
	unused       = 0xFFFFFFFF // table entry of a block that the file does not have

	// dataAlign is where the blocks' data starts, a multiple of it: whole pages and blocks of a file system, so that what is
	// zero inside a block can be a hole. A block's bitmap is in the sector before; Xen's writer does the same.
	dataAlign = 4 << 10
)

// diskHeader is "Dynamic Disk Header Format".
type diskHeader struct {
	Cookie          [8]byte
	DataOffset      uint64
	TableOffset     uint64
	HeaderVersion   uint32
	MaxTableEntries uint32
	BlockSize       uint32
	Checksum        uint32
	Parent          [728]byte // of differencing disks: its ID, time, name and locators
	Reserved        [256]byte
}

const headerChecksum = 36 // where Checksum lies

func header(blocks int64) []byte {
	h := diskHeader{
		DataOffset: noOffset, TableOffset: tableOffset, HeaderVersion: formatVersion,
		MaxTableEntries: uint32(blocks), BlockSize: blockSize,
	}
	copy(h.Cookie[:], "cxsparse")
	return summed(h, headerChecksum)
}

func dynamic(raw *extent.Plan, stamp uint32, id [16]byte) (*extent.Plan, error) {
	blocks := (raw.Size() + blockSize - 1) / blockSize
	table := bytes.Repeat([]byte{0xFF}, int(blocks*4+sector-1)/sector*sector)
	end := int64(tableOffset + len(table))
	extents := raw.Extents()
	offsets := place(extents, &end)
	for b, data := range offsets {
		binary.BigEndian.PutUint32(table[4*b:], uint32((data-bitmapSize)/sector))
	}

	p := extent.New(end + sector)
	p.PutBytes(0, footer(Dynamic, raw.Size(), stamp, id))
	p.PutBytes(headerOffset, header(blocks))
	p.PutBytes(tableOffset, table)
	putBlocks(p, extents, offsets)
	p.PutBytes(end, footer(Dynamic, raw.Size(), stamp, id))
	return p, p.Err()
}

// place gives each block that has an extent a place for its data from *end on, and moves *end behind the last.
func place(extents []extent.Extent, end *int64) map[int64]int64 {
	offsets := map[int64]int64{}
	for _, e := range extents {
		for b := e.Off / blockSize; b <= (e.Off+e.Len-1)/blockSize; b++ {
			if _, ok := offsets[b]; !ok {
				offsets[b] = (*end + bitmapSize + dataAlign - 1) / dataAlign * dataAlign
				*end = offsets[b] + blockSize
			}
		}
	}
	return offsets
}

// putBlocks places the extents, cut where blocks end, and each block's bitmap, which says that all its sectors are there: zeros
// are zeros, and not every reader looks.
func putBlocks(p *extent.Plan, extents []extent.Extent, offsets map[int64]int64) {
	bitmap := bytes.Repeat([]byte{0xFF}, bitmapSize)
	last := int64(-1)
	for _, e := range extents {
		for from := e.Off; from < e.Off+e.Len; {
			b := from / blockSize
			to := min((b+1)*blockSize, e.Off+e.Len)
			if b != last {
				p.PutBytes(offsets[b]-bitmapSize, bitmap)
				last = b
			}
			off := offsets[b] + from%blockSize
			if e.Literal != nil {
				p.PutBytes(off, e.Literal[from-e.Off:to-e.Off])
			} else {
				p.PutRange(off, e.Blob, e.BlobOff+from-e.Off, to-from)
			}
			from = to
		}
	}
}
