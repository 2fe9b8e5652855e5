// Package vmdk plans streamOptimized VMDKs, the form in which VMware takes disks in an OVA, from the plan of a raw disk
// (VMware, Virtual Disk Format 5.0; names below are its names).
//
// The disk's grains of 64 KiB are compressed one by one, by package splice: a grain that is a range of a stored blob is
// remembered, so the VMDK of a disk that differs in a few sectors costs the grains of these. Grains in which the raw disk
// has nothing are left out, and so are grain tables without grains.
//
// It plans no other kind of VMDK and reads none. A plan has 12 bytes of literals for each grain and 2.5 KiB for each
// 32 MiB of the disk that has a grain: a MiB for 4 GiB of data.
package vmdk

import (
	"bytes"
	"context"
	"fmt"

	"github.com/klauspost/compress/zlib"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/splice"
)

const (
	sector       = 512
	grainSize    = 64 << 10
	grainsPerGT  = 512                     // numGTEsPerGT: a table of 2 KiB covers 32 MiB
	tableSize    = 4 * grainsPerGT         // bytes
	markerSize   = 12                      // of a grain: its sector and its size
	overhead     = grainSize               // header and descriptor, rounded up to a grain
	maxOffset    = (1<<32 - 1) * sector    // grain tables hold 32-bit sectors
	descriptorAt = sector                  // right behind the header
	descriptorSz = overhead - descriptorAt // the room it has
)

// Plan returns the VMDK of a raw disk. name is the file name it will have, which the descriptor repeats.
func Plan(ctx context.Context, raw *extent.Plan, name string, s splice.Splicer) (*extent.Plan, error) {
	if err := raw.Err(); err != nil {
		return nil, fmt.Errorf("planning a VMDK of a broken disk plan: %w", err)
	}
	if raw.Size() <= 0 || raw.Size()%grainSize != 0 {
		return nil, fmt.Errorf("cannot make a VMDK of a disk of %d bytes: not whole grains of 64 KiB", raw.Size())
	}
	text, err := descriptor(raw, name)
	if err != nil {
		return nil, err
	}
	grains, err := compress(ctx, raw, s)
	if err != nil {
		return nil, fmt.Errorf("compressing grains: %w", err)
	}
	return assemble(raw.Size(), text, grains)
}

// grain is a compressed part of the disk.
type grain struct {
	number int64
	piece  splice.Piece
}

// zlibGrains: RFC 1950 streams, compressAlgorithm 1.
func zlibGrains() splice.Transform {
	return splice.Transform{
		Name: "zlib grains 1",
		Grid: grainSize,
		New: func() (splice.Encoder, error) {
			w, err := zlib.NewWriterLevel(nil, zlib.BestCompression)
			return func(b []byte) ([]byte, error) {
				var out bytes.Buffer
				w.Reset(&out)
				if _, err := w.Write(b); err != nil {
					return nil, err
				}
				err := w.Close()
				return out.Bytes(), err
			}, err
		},
		Zeros: func(n int64) ([]byte, error) {
			return nil, fmt.Errorf("internal error: asked to compress %d zeros, which no grain is for", n)
		},
	}
}

// compressor walks the disk's extents and makes grains of them.
type compressor struct {
	disk   splice.Extents
	press  *splice.Press
	blobs  map[extent.Blob][]splice.Piece
	grains []grain
	next   int64 // the first grain that was not looked at
}

func compress(ctx context.Context, raw *extent.Plan, s splice.Splicer) ([]grain, error) {
	c := &compressor{disk: splice.Joined(raw), press: splice.NewPress(s, zlibGrains()), blobs: map[extent.Blob][]splice.Piece{}}
	for _, e := range c.disk {
		end := e.Off + e.Len
		first, behind := (e.Off+grainSize-1)/grainSize, end/grainSize // the grains that lie in the extent
		if e.Literal != nil || first >= behind {
			first, behind = end, end // none of them
		}
		for number := max(c.next, e.Off/grainSize); number*grainSize < end; number++ {
			var err error
			if number == first {
				err = c.inside(ctx, e, first, behind)
				number = behind - 1
			} else {
				err = c.mixed(ctx, number)
			}
			if err != nil {
				return nil, err
			}
			c.next = number + 1
		}
	}
	return c.grains, nil
}

// inside makes grains [first, behind), which are ranges of one blob.
func (c *compressor) inside(ctx context.Context, e extent.Extent, first, behind int64) (err error) {
	off := e.BlobOff + first*grainSize - e.Off
	var pieces []splice.Piece
	if off%grainSize == 0 {
		all, ok := c.blobs[e.Blob]
		if !ok {
			if all, err = c.press.Pieces(ctx, extent.FromBlob(e.Blob)); err != nil {
				return err
			}
			c.blobs[e.Blob] = all
		}
		pieces = all[off/grainSize:]
	} else if pieces, err = c.press.Pieces(ctx, c.disk.Slice(first*grainSize, (behind-first)*grainSize)); err != nil {
		return err
	}
	for i := range behind - first {
		c.grains = append(c.grains, grain{first + i, pieces[i]})
	}
	return nil
}

// mixed makes a grain of whatever lies in it, unless these are literal zeros.
func (c *compressor) mixed(ctx context.Context, number int64) error {
	content := c.disk.Slice(number*grainSize, grainSize)
	zeros := true
	for _, e := range content.Extents() {
		zeros = zeros && e.Literal != nil && len(bytes.Trim(e.Literal, "\x00")) == 0
	}
	if zeros {
		return nil
	}
	pieces, err := c.press.Pieces(ctx, content)
	if err != nil {
		return err
	}
	c.grains = append(c.grains, grain{number, pieces[0]})
	return nil
}
