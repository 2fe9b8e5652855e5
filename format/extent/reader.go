package extent

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
)

// ReaderAtCloser is an opened blob.
type ReaderAtCloser interface {
	io.ReaderAt
	io.Closer
}

// Source opens blobs by digest. It must return exactly the blob's bytes; a plan does not hash them again.
type Source interface {
	OpenBlob(sha256 Digest) (ReaderAtCloser, error)
}

// Memory is a Source of blobs held in memory.
type Memory map[Digest][]byte

// Add stores b and says what it is.
func (m Memory) Add(b []byte) Blob {
	d := sha256.Sum256(b)
	m[d] = b
	return Blob{SHA256: d, Size: int64(len(b))}
}

// OpenBlob implements Source.
func (m Memory) OpenBlob(d Digest) (ReaderAtCloser, error) {
	b, ok := m[d]
	if !ok {
		return nil, fmt.Errorf("cannot find blob %x", d)
	}
	return nopCloser{bytes.NewReader(b)}, nil
}

type nopCloser struct{ io.ReaderAt }

func (nopCloser) Close() error { return nil }

// Reader reads a planned file. ReadAt may be called concurrently, Read and Seek not.
// Blobs are opened when first needed and stay open until Close.
type Reader struct {
	plan *Plan
	src  Source
	pos  int64

	mu   sync.Mutex // guards open
	open map[Digest]ReaderAtCloser
}

// NewReader returns a reader of the planned file. src may be nil if the plan has only literals.
func (p *Plan) NewReader(src Source) *Reader {
	return &Reader{plan: p, src: src, open: map[Digest]ReaderAtCloser{}}
}

// Size is the file's size.
func (r *Reader) Size() int64 { return r.plan.size }

// ReadAt implements io.ReaderAt.
func (r *Reader) ReadAt(b []byte, off int64) (int, error) {
	if err := r.plan.err; err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fmt.Errorf("cannot read at %d", off)
	}
	if off >= r.plan.size {
		return 0, io.EOF
	}
	var eof error
	if rest := r.plan.size - off; int64(len(b)) > rest {
		b, eof = b[:rest], io.EOF
	}
	clear(b)
	i := max(r.plan.after(off)-1, 0) // the extent that may cover off
	for ; i < len(r.plan.extents) && r.plan.extents[i].Off < off+int64(len(b)); i++ {
		if err := r.fill(b, off, r.plan.extents[i]); err != nil {
			return 0, err
		}
	}
	return len(b), eof
}

// fill copies what e has of [off, off+len(b)) into b.
func (r *Reader) fill(b []byte, off int64, e Extent) error {
	from, to := max(off, e.Off), min(off+int64(len(b)), e.end())
	if from >= to {
		return nil
	}
	dst := b[from-off : to-off]
	if e.Literal != nil {
		copy(dst, e.Literal[from-e.Off:])
		return nil
	}
	blob, err := r.blob(e.Blob.SHA256)
	if err != nil {
		return err
	}
	if n, err := blob.ReadAt(dst, e.BlobOff+from-e.Off); n < len(dst) {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("reading blob %x: %w", e.Blob.SHA256, err)
	}
	return nil
}

func (r *Reader) blob(d Digest) (io.ReaderAt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.open[d]; ok {
		return b, nil
	}
	if r.src == nil {
		return nil, fmt.Errorf("cannot open blob %x: no source of blobs was given", d)
	}
	b, err := r.src.OpenBlob(d)
	if err != nil {
		return nil, fmt.Errorf("opening blob %x: %w", d, err)
	}
	r.open[d] = b
	return b, nil
}

// Read implements io.Reader.
func (r *Reader) Read(b []byte) (int, error) {
	n, err := r.ReadAt(b, r.pos)
	r.pos += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Seek implements io.Seeker.
func (r *Reader) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += r.pos
	case io.SeekEnd:
		off += r.plan.size
	}
	if off < 0 {
		return 0, fmt.Errorf("cannot seek to %d", off)
	}
	r.pos = off
	return off, nil
}

// Close closes the blobs that were opened.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for d, b := range r.open {
		errs = append(errs, b.Close())
		delete(r.open, d)
	}
	return errors.Join(errs...)
}
