package splice

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/talos-factory/talos-factory/format/extent"
)

// Encoder compresses one piece. The bytes it returns stay valid; it is used by one goroutine at a time.
type Encoder func(piece []byte) ([]byte, error)

// Transform is a way to compress pieces. What its encoders return must depend on nothing but their input.
type Transform struct {
	Name  string                        // with its version: the cache remembers by it
	Grid  int64                         // bytes of input a piece, the last one's aside
	New   func() (Encoder, error)       // encoders are used again, for piece after piece
	Zeros func(n int64) ([]byte, error) // a piece of n zeros, whatever the grid
}

// Piece is compressed bytes: literal, or a range of a stored blob.
type Piece struct {
	Raw  int64  // bytes of input
	CRC  uint32 // of the input: CRC-32 as gzip (RFC 1952) has it
	Size int64  // bytes compressed

	Literal []byte // nil: the Size bytes at Off of Blob
	Blob    extent.Blob
	Off     int64
}

// maxLiterals is how many bytes of literal pieces a press makes; then it has them stored like others, for what it makes
// to stay below the MiB of literals a plan may have even if literals do not compress.
const maxLiterals = 512 << 10

// Press makes pieces by one transform. It may be used by many goroutines.
type Press struct {
	s Splicer
	t Transform

	mu          sync.Mutex // guards what follows
	idle        []Encoder
	done, total int64
	literals    int64 // bytes of literal pieces so far
}

// NewPress returns a press for one transform.
func NewPress(s Splicer, t Transform) *Press { return &Press{s: s, t: t} }

// expect tells the press what it will be asked for, for its reports of progress.
func (p *Press) expect(segments []segment) {
	seen := map[extent.Digest]bool{}
	for _, seg := range segments {
		if !seen[seg.id] {
			p.total += seg.content.Size()
		}
		seen[seg.id] = true
	}
}

func (p *Press) advance(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	p.total = max(p.total, p.done)
	if p.s.Progress != nil {
		p.s.Progress(p.done, p.total)
	}
}

// Pieces cuts the content into pieces of the transform's grid and compresses them. Content in which there is a blob is
// remembered, as are long runs of zeros, which are one piece; literals are compressed each time and, as long as they are few, stay literals.
func (p *Press) Pieces(ctx context.Context, content *extent.Plan) ([]Piece, error) {
	if err := content.Err(); err != nil {
		return nil, err
	}
	extents := content.Extents()
	zeros, blobs := len(extents) == 0 && content.Size() >= MinZeros, false
	for _, e := range extents {
		blobs = blobs || e.Literal == nil
	}
	pieces, name := p.layout(content.Size()), p.t.Name
	write := func(w io.Writer) error { return p.encodeAll(ctx, content, pieces, w) }
	if zeros {
		pieces, name = []Piece{{Raw: content.Size()}}, p.t.Name+" zeros"
		write = func(w io.Writer) error { return p.encodeZeros(&pieces[0], w) }
	}
	if !zeros && !blobs && p.allow(content.Size()) {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return nil, err
		}
		for i := range pieces {
			pieces[i].Literal = b.Next(int(pieces[i].Size))
		}
		return pieces, nil
	}
	made := false
	blob, note, err := p.s.Cache.Recall(name, Identity(content), func(w io.Writer) ([]byte, error) {
		made = true
		err := write(w)
		return encodeNote(pieces), err
	})
	if err != nil {
		return nil, fmt.Errorf("compressing %d bytes (%s): %w", content.Size(), p.t.Name, err)
	}
	if !made {
		p.advance(content.Size())
	}
	return pieces, decodeNote(note, pieces, blob)
}

// allow reports whether so many bytes of literals may stay literals.
func (p *Press) allow(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.literals+n > maxLiterals {
		return false
	}
	p.literals += n
	return true
}

// layout is the pieces of so many bytes, of which no more is known yet. No bytes are one empty piece.
func (p *Press) layout(size int64) []Piece {
	pieces := []Piece{{Raw: min(size, p.t.Grid)}}
	for off := p.t.Grid; off < size; off += p.t.Grid {
		pieces = append(pieces, Piece{Raw: min(size-off, p.t.Grid)})
	}
	return pieces
}

// encodeNote is the size and the CRC of each piece: what a stored blob of pieces does not say itself.
func encodeNote(pieces []Piece) []byte {
	var note []byte
	for _, piece := range pieces {
		note = binary.LittleEndian.AppendUint32(note, uint32(piece.Size))
		note = binary.LittleEndian.AppendUint32(note, piece.CRC)
	}
	return note
}

func decodeNote(note []byte, pieces []Piece, blob extent.Blob) error {
	if len(note) != 8*len(pieces) {
		return fmt.Errorf("internal error: a note of %d bytes for %d pieces", len(note), len(pieces))
	}
	off := int64(0)
	for i := range pieces {
		piece := &pieces[i]
		piece.Size = int64(binary.LittleEndian.Uint32(note[8*i:]))
		piece.CRC = binary.LittleEndian.Uint32(note[8*i+4:])
		piece.Blob, piece.Off = blob, off
		off += piece.Size
	}
	if off != blob.Size {
		return fmt.Errorf("internal error: pieces of %d bytes in a blob of %d", off, blob.Size)
	}
	return nil
}

func (p *Press) encodeZeros(piece *Piece, w io.Writer) error {
	b, err := p.t.Zeros(piece.Raw)
	if err != nil {
		return err
	}
	piece.Size, piece.CRC = int64(len(b)), zerosCRC(piece.Raw)
	p.advance(piece.Raw)
	_, err = w.Write(b)
	return err
}

// encodeAll compresses the pieces on several CPUs and writes them in order. At most workers of them exist at a time.
func (p *Press) encodeAll(ctx context.Context, content *extent.Plan, pieces []Piece, w io.Writer) (err error) {
	r := content.NewReader(p.s.Source)
	defer func() { err = errors.Join(err, r.Close()) }()
	if len(pieces) == 1 {
		b, err := p.encode(ctx, r, 0, &pieces[0])
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	results := make([]chan []byte, len(pieces)) // each is made when its piece begins
	slots := make(chan struct{}, p.s.workers())
	started := make(chan int)
	g.Go(func() error {
		defer close(started)
		for i := range pieces {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			result := make(chan []byte, 1)
			results[i] = result
			g.Go(func() error {
				b, err := p.encode(ctx, r, int64(i)*p.t.Grid, &pieces[i])
				result <- b
				return err
			})
			select {
			case started <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	g.Go(func() error {
		for i := range started {
			b := <-results[i]
			if b == nil {
				return nil // the encoder has returned the error
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
			<-slots
		}
		return nil
	})
	return g.Wait()
}

// encode compresses the bytes at off that the piece stands for, and says in it what came of them.
func (p *Press) encode(ctx context.Context, r io.ReaderAt, off int64, piece *Piece) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	raw := make([]byte, piece.Raw)
	if n, err := r.ReadAt(raw, off); n < len(raw) {
		return nil, fmt.Errorf("reading %d bytes to compress: %w", len(raw), err)
	}
	encoder, err := p.encoder()
	if err != nil {
		return nil, err
	}
	b, err := encoder(raw)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.idle = append(p.idle, encoder)
	p.mu.Unlock()
	piece.Size, piece.CRC = int64(len(b)), crc32.ChecksumIEEE(raw)
	p.advance(piece.Raw)
	return b, nil
}

// encoder returns one that is not in use.
func (p *Press) encoder() (Encoder, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		encoder := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return encoder, nil
	}
	return p.t.New()
}
