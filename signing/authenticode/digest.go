package authenticode

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/talos-factory/talos-factory/format/pe"
)

// chunk is how much is read at a time.
const chunk = 256 << 10

// program is what is to know of a program's headers.
type program struct {
	pe.Uncovered
	headers int64
	end     int64 // of what is covered
}

// Digest is the hash of a program that its signature is about. It is the same before and after signing.
func Digest(r io.ReaderAt, size int64) ([sha256.Size]byte, error) {
	p, err := parse(r, size)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	return p.digest(r)
}

// parse refuses programs that have bytes between sections, or sections that share some: tools and firmware disagree on what
// is hashed of them. Of all others every byte is, from the first to the signature.
func parse(r io.ReaderAt, size int64) (*program, error) {
	image, err := pe.Parse(r, size)
	if err != nil {
		return nil, err
	}
	u, ok := image.Uncovered()
	p := &program{Uncovered: u, headers: image.HeadersSize(), end: size}
	if !ok || p.headers < p.Directory+8 || p.headers > min(size, maxHeaders) {
		return nil, errors.New("cannot find a place for the signature in the program's headers")
	}
	if p.Size != 0 {
		if p.Table%entryAlign != 0 || p.Size > maxTable || p.Table+p.Size != size {
			return nil, fmt.Errorf("cannot read a table of %d bytes of signatures at %d in a program of %d bytes", p.Size, p.Table, size)
		}
		p.end = p.Table
	}
	sections := slices.DeleteFunc(image.Sections, func(s pe.Section) bool { return s.RawSize == 0 })
	slices.SortFunc(sections, func(a, b pe.Section) int { return cmp.Compare(a.Offset, b.Offset) })
	at := p.headers
	for _, s := range sections {
		if int64(s.Offset) != at {
			return nil, fmt.Errorf("cannot hash section %q, which begins at %d, not at %d where what is before it ends", s.Name, s.Offset, at)
		}
		at += int64(s.RawSize)
	}
	if at > p.end {
		return nil, errors.New("cannot hash a program whose signature lies in a section")
	}
	return p, nil
}

const (
	maxHeaders = 64 << 10 // more than any program has
	maxTable   = 1 << 20  // likewise
)

// digest leaves out the checksum and the table's place, and takes the padding that signing adds for written.
func (p *program) digest(r io.ReaderAt) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	buf := make([]byte, chunk)
	for _, part := range [][2]int64{{0, p.Checksum}, {p.Checksum + 4, p.Directory}, {p.Directory + 8, p.end}} {
		for at := part[0]; at < part[1]; {
			b := buf[:min(chunk, part[1]-at)]
			if n, err := r.ReadAt(b, at); n < len(b) {
				return sum, fmt.Errorf("hashing the program: %w", err)
			}
			h.Write(b)
			at += int64(len(b))
		}
	}
	h.Write(make([]byte, roundUp(p.end)-p.end))
	h.Sum(sum[:0])
	return sum, nil
}
