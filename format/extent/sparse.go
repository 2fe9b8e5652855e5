package extent

import (
	"bytes"
	"context"
	"fmt"
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
