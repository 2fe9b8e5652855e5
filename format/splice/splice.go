// Package splice makes the compressed forms of a planned file - zstd, gzip, xz - as plans themselves: each is put
// together from compressed pieces of the stored blobs the file consists of, made once and remembered in a Cache, from
// pieces that stand for runs of zeros, and from the few literal bytes, compressed anew each time. So the compressed form
// of a disk image that differs from another in its arguments costs some kilobytes.
//
// Pieces depend on nothing around them, neither on where they lie nor on the number of CPUs. The package neither
// decompresses nor runs programs: xz pieces come from a Tool, and where pieces are kept is up to the Cache.
package splice

import (
	"context"
	"fmt"
	"runtime"

	"github.com/talos-factory/talos-factory/format/extent"
)

// maxWorkers bounds memory: a worker holds an encoder and two pieces, 12 MiB at most.
const maxWorkers = 8

// Splicer is where blobs come from and pieces go. It may be used by many goroutines if its fields may.
type Splicer struct {
	Source   extent.Source           // of the blobs of the plans to compress
	Cache    Cache                   // what it returns must be readable where the compressed plan will be read
	Workers  int                     // pieces compressed at the same time; 0 is the number of CPUs, and 8 the most
	Progress func(done, total int64) // told of bytes of input, never concurrently; may be nil
}

func (s Splicer) workers() int {
	if s.Workers > 0 {
		return min(s.Workers, maxWorkers)
	}
	return min(runtime.GOMAXPROCS(0), maxWorkers)
}

// assemble gives every segment's piece, in the plan's order, to put.
func (s Splicer) assemble(ctx context.Context, plan *extent.Plan, t Transform, put func(Piece) error) error {
	if err := plan.Err(); err != nil {
		return err
	}
	segments := cut(plan, t.Grid)
	press := NewPress(s, t)
	known := map[extent.Digest][]Piece{}
	press.expect(segments)
	for _, seg := range segments {
		pieces, ok := known[seg.id]
		if !ok {
			var err error
			if pieces, err = press.Pieces(ctx, seg.content); err != nil {
				return err
			}
			known[seg.id] = pieces
		}
		if seg.index >= len(pieces) {
			return fmt.Errorf("internal error: piece %d of %d", seg.index, len(pieces))
		}
		if err := put(pieces[seg.index]); err != nil {
			return err
		}
	}
	return nil
}

// output is a plan whose size is not known before its end.
type output struct {
	extents []extent.Extent
	size    int64
}

func (o *output) bytes(b []byte) {
	n := len(o.extents)
	if n > 0 && o.extents[n-1].Literal != nil {
		o.extents[n-1].Literal = append(o.extents[n-1].Literal, b...)
	} else {
		o.extents = append(o.extents, extent.Extent{Off: o.size, Literal: append([]byte{}, b...)})
	}
	o.size += int64(len(b))
}

// blob appends a range of a stored blob; one that goes on where the last ended makes one extent with it.
func (o *output) blob(b extent.Blob, off, n int64) {
	if i := len(o.extents) - 1; i >= 0 {
		if e := &o.extents[i]; e.Literal == nil && e.Blob == b && e.BlobOff+e.Len == off {
			e.Len += n
			o.size += n
			return
		}
	}
	o.extents = append(o.extents, extent.Extent{Off: o.size, Len: n, Blob: b, BlobOff: off})
	o.size += n
}

func (o *output) piece(p Piece) {
	if p.Literal != nil {
		o.bytes(p.Literal)
	} else {
		o.blob(p.Blob, p.Off, p.Size)
	}
}

func (o *output) plan() (*extent.Plan, error) {
	p := extent.New(o.size)
	for _, e := range o.extents {
		if e.Literal != nil {
			p.PutBytes(e.Off, e.Literal)
		} else {
			p.PutRange(e.Off, e.Blob, e.BlobOff, e.Len)
		}
	}
	return p, p.Err()
}
