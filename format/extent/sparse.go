package extent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	chunk = 1 << 20 // bytes moved at once
	block = 4 << 10 // a file system's usual block: shorter runs of zeros save nothing
)

var zeros [block]byte

// WriteSparse writes the planned file into f, which must be an empty regular file, and leaves holes where
// the plan has zeros. It neither syncs nor renames: that is the caller's.
func (p *Plan) WriteSparse(ctx context.Context, f *os.File, src Source) (err error) {
	if p.err != nil {
		return p.err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != 0 {
		return fmt.Errorf("cannot write %s sparsely: not an empty regular file", f.Name())
	}
	if err := f.Truncate(p.size); err != nil {
		return err
	}
	r := p.NewReader(src)
	defer func() {
		if cerr := r.Close(); err == nil {
			err = cerr
		}
	}()
	buf := make([]byte, chunk)
	for _, e := range p.extents {
		if done, err := r.copyFile(ctx, f, e); done || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		// Chunks end at multiples of block in the file, so that runs of zeros become whole holes.
		for off := e.Off; off < e.end(); {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min((off+chunk)/block*block, e.end()) - off
			if err := r.fill(buf[:n], off, e); err != nil {
				return err
			}
			if err := writeNonZero(f, buf[:n], off); err != nil {
				return err
			}
			off += n
		}
	}
	return nil
}

// copyFile copies a range of a blob that is a file. The kernel does it, without a copy in between, or without any where the
// file system can share blocks. Blobs are compressed, as a rule: it does not look for zeros in them.
func (r *Reader) copyFile(ctx context.Context, f *os.File, e Extent) (done bool, err error) {
	if e.Literal != nil || e.Len < chunk {
		return false, nil
	}
	blob, err := r.blob(e.Blob.SHA256)
	if err != nil {
		return false, err
	}
	from, ok := blob.(*os.File)
	if !ok {
		return false, nil
	}
	if _, err := from.Seek(e.BlobOff, io.SeekStart); err != nil {
		return false, err
	}
	if _, err := f.Seek(e.Off, io.SeekStart); err != nil {
		return false, err
	}
	const turn = 64 * chunk // between looks at ctx
	for left := e.Len; left > 0; left -= min(left, turn) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if _, err := io.CopyN(f, from, min(left, turn)); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return false, fmt.Errorf("copying blob %x: %w", e.Blob.SHA256, err)
		}
	}
	return true, nil
}

// writeNonZero writes b at off except for its blocks of zeros.
func writeNonZero(f *os.File, b []byte, off int64) error {
	for len(b) > 0 {
		run := 0 // bytes up to the next block of zeros
		for run < len(b) && !isZero(b[run:min(run+block, len(b))]) {
			run = min(run+block, len(b))
		}
		if run > 0 {
			if _, err := f.WriteAt(b[:run], off); err != nil {
				return err
			}
		} else {
			run = min(block, len(b))
		}
		b, off = b[run:], off+int64(run)
	}
	return nil
}

func isZero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }
