package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/xi2/xz"
)

// The ar layout of deb(5): a magic line, then members with a 60-byte header each, padded to even offsets.
// Read here and not with pault.ag/go/debian/deb because that reader goes backwards on a negative size.
const (
	arMagic      = "!<arch>\n"
	arHeaderSize = 60
)

// member is one file of an ar archive.
type member struct {
	name string
	data *io.SectionReader
}

// readAr lists the members of an ar archive of the given size.
func readAr(in io.ReaderAt, size int64) ([]member, error) {
	magic := make([]byte, len(arMagic))
	if _, err := in.ReadAt(magic, 0); err != nil || string(magic) != arMagic {
		return nil, errors.New("not an ar archive")
	}
	var all []member
	for off := int64(len(arMagic)); off < size; {
		var h [arHeaderSize]byte
		if _, err := in.ReadAt(h[:], off); err != nil {
			return nil, fmt.Errorf("reading the header at %d: %w", off, err)
		}
		if h[58] != '`' || h[59] != '\n' {
			return nil, fmt.Errorf("bad header at %d", off)
		}
		n, err := strconv.ParseUint(strings.TrimRight(string(h[48:58]), " "), 10, 63)
		off += arHeaderSize
		if err != nil || int64(n) > size-off {
			return nil, fmt.Errorf("bad size of the member at %d", off-arHeaderSize)
		}
		name := strings.TrimSuffix(strings.TrimRight(string(h[:16]), " "), "/")
		all = append(all, member{name, io.NewSectionReader(in, off, int64(n))})
		off += int64(n) + int64(n)%2
	}
	return all, nil
}

// dataTar returns the decompressed file tree of a .deb.
func dataTar(in io.ReaderAt, size int64) (io.ReadCloser, error) {
	members, err := readAr(in, size)
	if err != nil {
		return nil, err
	}
	if len(members) == 0 || members[0].name != "debian-binary" {
		return nil, errors.New("not a Debian package: no debian-binary member")
	}
	for _, m := range members {
		if kind, ok := strings.CutPrefix(m.name, "data.tar"); ok {
			return decompress(m.data, kind)
		}
	}
	return nil, errors.New("not a Debian package: no data.tar member")
}

func decompress(in io.Reader, kind string) (io.ReadCloser, error) {
	switch kind {
	case "":
		return io.NopCloser(in), nil
	case ".gz":
		return gzip.NewReader(in)
	case ".xz":
		// A third faster than ulikunitz/xz; xz -9's dictionary of 64 MiB is the most we accept.
		r, err := xz.NewReader(in, 1<<26)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(r), nil
	case ".zst":
		r, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<28))
		if err != nil {
			return nil, err
		}
		return r.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("cannot read a data.tar%s", kind)
}

// entry is one file of a package's tree, with its content in memory.
type entry struct {
	header *tar.Header
	body   []byte
}

// readEntries decompresses the whole tree of a .deb. Everything is kept in memory, so that several packages can be
// decompressed at once and still be written in one fixed order.
//
// A tree larger than the limit is refused: a few bytes can unpack to any number, a sparse file to more than the archive has.
func readEntries(in io.ReaderAt, size, limit int64) ([]entry, error) {
	data, err := dataTar(in, size)
	if err != nil {
		return nil, err
	}
	defer data.Close()
	var all []entry
	left := limit
	tr := tar.NewReader(io.LimitReader(data, limit))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		e := entry{header: h}
		if left -= h.Size; left < 0 {
			return nil, fmt.Errorf("cannot unpack more than %d bytes", limit)
		}
		if h.Typeflag == tar.TypeReg && h.Size > 0 {
			var body bytes.Buffer
			body.Grow(int(min(h.Size, 1<<22))) // a lying header must not make us allocate before there is data
			if _, err := io.Copy(&body, tr); err != nil {
				return nil, fmt.Errorf("reading %s: %w", h.Name, err)
			}
			e.body = body.Bytes()
		}
		all = append(all, e)
	}
}
