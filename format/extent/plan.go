// Package extent describes a file that does not exist yet: a list of extents, each literal bytes or a range
// of a stored blob, with zeros in the gaps. Every writer under format/ is a planner that returns such a list.
//
// It copies bytes only when somebody reads (Plan.NewReader) or writes the file (Plan.WriteSparse). It knows
// no file format, opens no blob while a plan is made, and compresses nothing.
package extent

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Digest is a blob's sha256.
type Digest = [32]byte

// Blob is content known by its digest and size, kept elsewhere.
type Blob struct {
	SHA256 Digest
	Size   int64
}

// Extent is a part of a planned file that is not (necessarily) zeros.
type Extent struct {
	Off, Len int64
	Literal  []byte // nil: the extent is a range of Blob
	Blob     Blob
	BlobOff  int64
}

// end is the offset of the first byte behind the extent.
func (e Extent) end() int64 { return e.Off + e.Len }

// ErrOverlap is wrapped by the errors of Put calls that would cover bytes already planned.
var ErrOverlap = errors.New("overlaps what is already there")

// Plan is a file of a known size made of extents. The extents are sorted and never overlap.
//
// Each Put returns its error and also keeps the first one for Err, so that a planner may check once at its end.
// Bytes given to a plan are kept, not copied: they must not change afterwards. Not safe for concurrent changes;
// a finished plan may be read by many.
type Plan struct {
	size    int64
	extents []Extent
	err     error
}

// New returns a plan of size zero bytes.
func New(size int64) *Plan {
	p := &Plan{size: size}
	if size < 0 {
		p.size, p.err = 0, fmt.Errorf("internal error: plan of negative size %d", size)
	}
	return p
}

// FromBytes returns a plan that is b.
func FromBytes(b []byte) *Plan {
	p := New(int64(len(b)))
	p.PutBytes(0, b)
	return p
}

// FromBlob returns a plan that is the whole blob.
func FromBlob(b Blob) *Plan {
	p := New(b.Size)
	p.PutBlob(0, b)
	return p
}

// PutBytes places literal bytes.
func (p *Plan) PutBytes(off int64, b []byte) error {
	return p.put(Extent{Off: off, Len: int64(len(b)), Literal: b})
}

// PutBlob places a whole blob.
func (p *Plan) PutBlob(off int64, b Blob) error { return p.PutRange(off, b, 0, b.Size) }

// PutRange places n bytes of a blob, from blobOff on.
func (p *Plan) PutRange(off int64, b Blob, blobOff, n int64) error {
	if blobOff < 0 || n < 0 || blobOff > b.Size-n {
		return p.fail(fmt.Errorf("cannot take %d bytes at %d of blob %x, which has %d", n, blobOff, b.SHA256[:6], b.Size))
	}
	return p.put(Extent{Off: off, Len: n, Blob: b, BlobOff: blobOff})
}

// Nest places another plan as it is now; gaps of the nested plan remain gaps, which later calls may fill.
func (p *Plan) Nest(off int64, q *Plan) error {
	if q.err != nil {
		return p.fail(fmt.Errorf("nesting at %d: %w", off, q.err))
	}
	if off < 0 || off > p.size-q.size {
		return p.fail(fmt.Errorf("cannot nest %d bytes at %d of a plan of %d bytes", q.size, off, p.size))
	}
	for _, e := range q.extents {
		e.Off += off
		if err := p.put(e); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) put(e Extent) error {
	if e.Off < 0 || e.Off > p.size-e.Len {
		return p.fail(fmt.Errorf("cannot put %d bytes at %d of a plan of %d bytes", e.Len, e.Off, p.size))
	}
	if e.Len == 0 {
		return nil
	}
	i := p.after(e.Off)
	if i > 0 && p.extents[i-1].end() > e.Off || i < len(p.extents) && p.extents[i].Off < e.end() {
		return p.fail(fmt.Errorf("cannot put %d bytes at %d: %w", e.Len, e.Off, ErrOverlap))
	}
	p.extents = slices.Insert(p.extents, i, e)
	return nil
}

// after is the index of the first extent that starts behind off.
func (p *Plan) after(off int64) int {
	return sort.Search(len(p.extents), func(i int) bool { return p.extents[i].Off > off })
}

func (p *Plan) fail(err error) error {
	if p.err == nil {
		p.err = err
	}
	return err
}

// Err is the first error of any Put or Nest.
func (p *Plan) Err() error { return p.err }

// Size is the planned file's size.
func (p *Plan) Size() int64 { return p.size }

// Extents returns the extents in order; what lies between them is zeros.
func (p *Plan) Extents() []Extent { return slices.Clone(p.extents) }

// Literals is how many literal bytes the plan holds.
func (p *Plan) Literals() int64 {
	var n int64
	for _, e := range p.extents {
		if e.Literal != nil {
			n += e.Len
		}
	}
	return n
}

// String lists the extents, one a line, for people and golden tests: offset, length, and the blob's digest
// (shortened) and offset, or "literal".
func (p *Plan) String() string {
	var b strings.Builder
	for _, e := range p.extents {
		what := "literal"
		if e.Literal == nil {
			what = fmt.Sprintf("%s+%d", hex.EncodeToString(e.Blob.SHA256[:4]), e.BlobOff)
		}
		fmt.Fprintf(&b, "%12d %10d %s\n", e.Off, e.Len, what)
	}
	fmt.Fprintf(&b, "%12d end\n", p.size)
	return b.String()
}
