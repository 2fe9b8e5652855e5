package vhd_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
)

func u32(b []byte) int64 { return int64(binary.BigEndian.Uint32(b)) }
func u64(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

func bytesAt(t *testing.T, r io.ReaderAt, off, n int64) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := r.ReadAt(b, off); err != nil {
		t.Fatalf("reading %d bytes at %d: %v", n, off, err)
	}
	return b
}

// summed fails the test unless the checksum at off is right.
func summed(t *testing.T, b []byte, off int) {
	t.Helper()
	var sum uint32
	for i, c := range b {
		if i < off || i >= off+4 {
			sum += uint32(c)
		}
	}
	if got := uint32(u32(b[off:])); got != ^sum {
		t.Errorf("checksum %08x, want %08x", got, ^sum)
	}
}

// image is what the tests read of a dynamic image, by the specification and not by what wrote it.
type image struct {
	size   int64
	blocks map[int64]int64 // which of the disk's blocks to the offset of its data in the file
}

const block = 2 << 20

// read reads all tables of a dynamic image and fails the test where they are wrong.
func read(t *testing.T, p *extent.Plan) image {
	t.Helper()
	r := p.NewReader(nil)
	foot := bytesAt(t, r, p.Size()-512, 512)
	summed(t, foot, 64)
	if !bytes.Equal(foot, bytesAt(t, r, 0, 512)) {
		t.Error("the footer and its copy differ")
	}
	if u64(foot[16:]) != 512 || u32(foot[60:]) != 3 {
		t.Errorf("footer % x", foot[:84])
	}
	h := bytesAt(t, r, 512, 1024)
	summed(t, h, 36)
	if string(h[:8]) != "cxsparse" || u64(h[8:]) != -1 || u32(h[24:]) != 0x10000 || u32(h[32:]) != block {
		t.Errorf("header % x", h[:40])
	}
	if !bytes.Equal(h[40:], make([]byte, 984)) {
		t.Error("the header names a parent, or has something reserved")
	}
	img := image{size: u64(foot[48:]), blocks: map[int64]int64{}}
	n := u32(h[28:])
	if n != (img.size+block-1)/block {
		t.Fatalf("the table has %d entries for %d bytes", n, img.size)
	}
	tableEnd := (u64(h[16:]) + 4*n + 511) / 512 * 512
	end := tableEnd
	table := bytesAt(t, r, u64(h[16:]), tableEnd-u64(h[16:]))
	for b := range n {
		e := u32(table[4*b:])
		if e == 0xFFFFFFFF {
			continue
		}
		if e*512 < end {
			t.Fatalf("block %d lies at %d, before the last one's end %d", b, e*512, end)
		}
		if got := bytesAt(t, r, e*512, 512); !bytes.Equal(got, bytes.Repeat([]byte{0xFF}, 512)) {
			t.Errorf("block %d's bitmap is % x", b, got[:8])
		}
		img.blocks[b] = e*512 + 512
		if img.blocks[b]%4096 != 0 {
			t.Errorf("block %d's data starts at %d", b, img.blocks[b])
		}
		end = img.blocks[b] + block
	}
	if !bytes.Equal(table[4*n:], bytes.Repeat([]byte{0xFF}, len(table[4*n:]))) {
		t.Error("the table is padded with entries that are used")
	}
	if end+512 != p.Size() {
		t.Errorf("the file has %d bytes, want %d", p.Size(), end+512)
	}
	return img
}

// content reads the whole disk out of the image, which is p.
func (img image) content(t *testing.T, p *extent.Plan, src extent.Source) []byte {
	t.Helper()
	r := p.NewReader(src)
	disk := make([]byte, (img.size+block-1)/block*block)
	for b, off := range img.blocks {
		copy(disk[b*block:], bytesAt(t, r, off, block))
	}
	for _, b := range disk[img.size:] {
		if b != 0 {
			t.Error("the last block has content behind the disk's end")
		}
	}
	return disk[:img.size]
}
