package splice

import (
	"crypto/sha256"
	"encoding/binary"
	"sort"

	"github.com/talos-factory/talos-factory/format/extent"
)

// Runs of zeros are made of pieces whose sizes are powers of two in this range. Shorter runs are compressed
// together with the literals around them.
const (
	MinZeros = 16 << 10
	maxZeros = 64 << 20
)

// maxLoose is how many bytes of literals and short runs of zeros make one piece.
const maxLoose = 1 << 20

// segment is a part of a file that becomes one piece: the index-th of the content's. Segments that share a content,
// which id stands for, are those of one blob.
type segment struct {
	content *extent.Plan
	id      extent.Digest
	index   int
}

// cutter walks a plan from start to end.
type cutter struct {
	in    Extents
	grid  int64
	out   []segment
	loose int64 // where the bytes begin that are no segment yet
	ids   map[*extent.Plan]extent.Digest
	blobs map[extent.Blob]*extent.Plan
	zeros map[int64]*extent.Plan
}

// cut splits a plan into segments. Blobs are cut at multiples of grid of their own offsets, so that
// wherever a blob lies, its segments are the same; what is not whole is a content by itself.
func cut(plan *extent.Plan, grid int64) []segment {
	c := &cutter{in: Joined(plan), grid: grid, ids: map[*extent.Plan]extent.Digest{},
		blobs: map[extent.Blob]*extent.Plan{}, zeros: map[int64]*extent.Plan{}}
	pos := int64(0)
	for _, e := range c.in {
		c.skip(pos, e.Off)
		pos = e.Off + e.Len
		if e.Literal == nil {
			c.flush(e.Off)
			c.blob(e)
			c.loose = pos
		}
	}
	c.skip(pos, plan.Size())
	c.flush(plan.Size())
	if len(c.out) == 0 {
		c.add(extent.New(0), 0) // no bytes compress to something, too
	}
	return c.out
}

// skip makes segments of the zeros in [from, to) as far as they are long enough.
func (c *cutter) skip(from, to int64) {
	if to-from < MinZeros {
		return
	}
	c.flush(from)
	for n := int64(maxZeros); n >= MinZeros; {
		if to-from < n {
			n /= 2
			continue
		}
		if c.zeros[n] == nil {
			c.zeros[n] = extent.New(n)
		}
		c.add(c.zeros[n], 0)
		from += n
	}
	c.loose = from
}

// flush makes segments of the loose bytes before end.
func (c *cutter) flush(end int64) {
	for c.loose < end {
		n := min(end-c.loose, maxLoose)
		c.add(c.in.Slice(c.loose, n), 0)
		c.loose += n
	}
}

func (c *cutter) blob(e extent.Extent) {
	for off, end := e.BlobOff, e.BlobOff+e.Len; off < end; {
		start := off / c.grid * c.grid
		whole := min(start+c.grid, e.Blob.Size)
		if next := min(whole, end); off != start || next != whole {
			c.add(c.in.Slice(e.Off+off-e.BlobOff, next-off), 0)
			off = next
			continue
		}
		if c.blobs[e.Blob] == nil {
			c.blobs[e.Blob] = extent.FromBlob(e.Blob)
		}
		c.add(c.blobs[e.Blob], int(off/c.grid))
		off = whole
	}
}

func (c *cutter) add(content *extent.Plan, index int) {
	id, ok := c.ids[content]
	if !ok {
		id = Identity(content)
		c.ids[content] = id
	}
	c.out = append(c.out, segment{content, id, index})
}

// Identity hashes what a plan says, so that plans of one identity have the same bytes.
func Identity(p *extent.Plan) extent.Digest {
	h := sha256.New()
	number := func(n int64) { h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	number(p.Size())
	for _, e := range Joined(p) {
		number(e.Off)
		number(e.Len)
		if e.Literal != nil {
			h.Write([]byte{'L'})
			h.Write(e.Literal)
			continue
		}
		h.Write([]byte{'B'})
		h.Write(e.Blob.SHA256[:])
		number(e.BlobOff)
	}
	return extent.Digest(h.Sum(nil))
}

// Extents is a plan's extents in order.
type Extents []extent.Extent

// Joined is the plan's extents, with neighbours that are consecutive ranges of one blob as one.
func Joined(p *extent.Plan) Extents {
	var out Extents
	for _, e := range p.Extents() {
		if i := len(out) - 1; i >= 0 && e.Literal == nil && out[i].Literal == nil && out[i].Blob == e.Blob &&
			out[i].Off+out[i].Len == e.Off && out[i].BlobOff+out[i].Len == e.BlobOff {
			out[i].Len += e.Len
			continue
		}
		out = append(out, e)
	}
	return out
}

// Slice is the n bytes at off as a plan.
func (x Extents) Slice(off, n int64) *extent.Plan {
	s := extent.New(n)
	first := sort.Search(len(x), func(i int) bool { return x[i].Off+x[i].Len > off })
	for _, e := range x[first:] {
		from, to := max(e.Off, off), min(e.Off+e.Len, off+n)
		switch {
		case from >= to:
			return s
		case e.Literal != nil:
			s.PutBytes(from-off, e.Literal[from-e.Off:to-e.Off])
		default:
			s.PutRange(from-off, e.Blob, e.BlobOff+from-e.Off, to-from)
		}
	}
	return s
}
