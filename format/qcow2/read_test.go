package qcow2_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
)

// image is what the tests read of an image, by the specification and not by what wrote it.
type image struct {
	r          io.ReaderAt
	size       int64 // of the disk
	clusterLog int
	mapped     map[int64]int64 // guest cluster to offset in the file
}

func (img image) cluster() int64 { return 1 << img.clusterLog }

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

// read reads all tables of a planned image and fails the test unless each cluster's reference count is the number of times
// that something refers to it.
func read(t *testing.T, p *extent.Plan) image {
	t.Helper()
	r := p.NewReader(tables{t})
	h := bytesAt(t, r, 0, 112)
	if !bytes.Equal(h[:8], []byte("QFI\xfb\x00\x00\x00\x03")) || u32(h[100:]) != 104 || u64(h[104:]) != 0 {
		t.Fatalf("header % x", h)
	}
	for _, off := range []int{8, 60, 64, 72, 80, 88} { // backing file, snapshots, features
		if u64(h[off:]) != 0 && off != 60 || u32(h[off:]) != 0 {
			t.Errorf("header has %x at %d", h[off:off+8], off)
		}
	}
	img := image{r: r, size: u64(h[24:]), clusterLog: int(u32(h[20:])), mapped: map[int64]int64{}}
	used := map[int64]int{}
	use := func(off, n int64) { // n bytes, which start a cluster
		if off%img.cluster() != 0 || off+n > p.Size() {
			t.Fatalf("%d bytes at %d of a file of %d", n, off, p.Size())
		}
		for c := off / img.cluster(); c <= (off+n-1)/img.cluster(); c++ {
			used[c]++
		}
	}
	if p.Size()%img.cluster() != 0 {
		t.Errorf("the file's size is %d, no whole clusters", p.Size())
	}
	use(0, 1)
	counts := img.counts(t, h, use)
	img.tables(t, h, use)
	for c := range p.Size() / img.cluster() {
		if used[c] != counts[c] {
			t.Fatalf("cluster %d of %d is used %d times, its count is %d", c, p.Size()/img.cluster(), used[c], counts[c])
		}
		delete(counts, c)
	}
	for c, n := range counts {
		t.Fatalf("cluster %d behind the end has count %d", c, n)
	}
	return img
}

// counts reads all reference counts but zeros.
func (img image) counts(t *testing.T, h []byte, use func(off, n int64)) map[int64]int {
	table, clusters, width := u64(h[48:]), u32(h[56:]), int64(1)<<u32(h[96:])
	use(table, clusters*img.cluster())
	counts := map[int64]int{}
	perBlock := img.cluster() * 8 / width
	for n, entries := int64(0), bytesAt(t, img.r, table, clusters*img.cluster()); n < int64(len(entries))/8; n++ {
		off := u64(entries[8*n:])
		if off == 0 {
			continue
		}
		use(off, img.cluster())
		block := bytesAt(t, img.r, off, img.cluster())
		for k := range perBlock {
			var count int
			switch width {
			case 1:
				count = int(block[k/8]>>(k%8)) & 1
			case 16:
				count = int(binary.BigEndian.Uint16(block[2*k:]))
			default:
				t.Fatalf("counts of %d bits", width)
			}
			if count != 0 {
				counts[n*perBlock+k] = count
			}
		}
	}
	return counts
}

// tables reads L1 and all L2 tables.
func (img image) tables(t *testing.T, h []byte, use func(off, n int64)) {
	const copied, flags = uint64(1) << 63, uint64(1)<<63 | 0x1ff
	perTable := img.cluster() / 8
	n := u32(h[36:])
	if span := perTable * img.cluster(); n != (img.size+span-1)/span {
		t.Fatalf("L1 has %d entries for %d bytes", n, img.size)
	}
	use(u64(h[40:]), n*8)
	l1 := bytesAt(t, img.r, u64(h[40:]), n*8)
	for k := range n {
		e := binary.BigEndian.Uint64(l1[8*k:])
		if e == 0 {
			continue
		}
		if e&flags != copied {
			t.Fatalf("L1 entry %d is %x", k, e)
		}
		use(int64(e&^copied), img.cluster())
		l2 := bytesAt(t, img.r, int64(e&^copied), img.cluster())
		some := false
		for m := range perTable {
			e := binary.BigEndian.Uint64(l2[8*m:])
			if e == 0 {
				continue
			}
			some = true
			if e&flags != copied || (k*perTable+m)*img.cluster() >= img.size {
				t.Fatalf("L2 entry %d of table %d is %x", m, k, e)
			}
			use(int64(e&^copied), img.cluster())
			img.mapped[k*perTable+m] = int64(e &^ copied)
		}
		if !some {
			t.Errorf("L2 table %d is empty", k)
		}
	}
}

// tables is a source for plans whose tables are read and whose blobs must not be.
type tables struct{ t *testing.T }

func (s tables) OpenBlob(d extent.Digest) (extent.ReaderAtCloser, error) {
	s.t.Fatalf("a table lies in blob %x", d[:4])
	return nil, nil
}

// content reads the whole disk out of the image, which is p.
func (img image) content(t *testing.T, p *extent.Plan, src extent.Source) []byte {
	t.Helper()
	r := p.NewReader(src)
	disk := make([]byte, (img.size+img.cluster()-1)/img.cluster()*img.cluster())
	for guest, off := range img.mapped {
		if _, err := r.ReadAt(disk[guest*img.cluster():(guest+1)*img.cluster()], off); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range disk[img.size:] {
		if b != 0 {
			t.Error("the last cluster has content behind the disk's end")
		}
	}
	return disk[:img.size]
}
