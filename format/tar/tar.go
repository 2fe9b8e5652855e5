// Package tar plans tar archives (POSIX.1-1988 ustar, GNU and POSIX.1-2001 pax) of planned files: the disk.raw of a
// cloud image, an OVA, the layers of a container image.
//
// Headers are archive/tar's; the package adds where bodies lie, so a body is neither opened nor copied. It writes files,
// directories and symbolic links with fixed owners and one time for all. It compresses nothing, knows no devices, hard
// links, sparse maps or extended attributes, and reads no archive.
package tar

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
)

const (
	block   = 512       // POSIX.1-1988 10.1.1: everything is a multiple of it
	trailer = 2 * block // two blocks of zeros end the archive
)

// Options are what all headers of an archive share.
type Options struct {
	// Format is the header format. GNU stores sizes above 8 GiB in base 256; USTAR refuses what it has no room for;
	// unknown (the zero value) takes the first of USTAR, PAX and GNU that can hold the header.
	Format tar.Format
	// Time is every file's modification time, in whole seconds; the zero Time is stored as 0.
	Time time.Time
}

// File is a file, a directory or a symbolic link, as Mode says.
type File struct {
	Path     string      // relative and clean, without a slash at the end
	Mode     fs.FileMode // permissions, setuid, setgid, sticky; fs.ModeDir or fs.ModeSymlink
	UID, GID int
	Link     string       // target of a symbolic link
	Content  *extent.Plan // of a regular file
}

// Plan lays the files out in their order. Directories are not made up: who wants an entry for one gives it.
func Plan(files []File, opts Options) (*extent.Plan, error) {
	headers, size := make([][]byte, len(files)), int64(trailer)
	seen := map[string]bool{}
	for i, f := range files {
		if err := f.check(seen); err != nil {
			return nil, fmt.Errorf("adding %q: %w", f.Path, err)
		}
		seen[f.Path] = true
		header, err := f.header(opts)
		if err != nil {
			return nil, fmt.Errorf("adding %q: %w", f.Path, err)
		}
		headers[i] = header
		size += int64(len(header)) + roundUp(f.size())
	}
	p, pos := extent.New(size), int64(0)
	for i, f := range files {
		p.PutBytes(pos, headers[i])
		pos += int64(len(headers[i]))
		if f.Content != nil {
			p.Nest(pos, f.Content)
		}
		pos += roundUp(f.size())
	}
	return p, p.Err()
}

func roundUp(n int64) int64 { return (n + block - 1) / block * block }

func (f File) size() int64 {
	if f.Content == nil {
		return 0
	}
	return f.Content.Size()
}

func (f File) check(seen map[string]bool) error {
	regular, link := f.Mode.IsRegular(), f.Mode.Type() == fs.ModeSymlink
	switch {
	case !fs.ValidPath(f.Path) || f.Path == ".":
		return errors.New("cannot use this path: want a clean relative one")
	case seen[f.Path]:
		return errors.New("cannot add it twice")
	case !regular && !link && !f.Mode.IsDir():
		return fmt.Errorf("cannot store a file of type %s", f.Mode.Type())
	case regular && f.Content == nil:
		return errors.New("internal error: a file without content")
	case !regular && f.Content != nil:
		return fmt.Errorf("cannot give content to %s", f.Mode)
	case link != (f.Link != ""):
		return errors.New("cannot make a link without a target, or a target without a link")
	}
	return nil
}

// header is the file's blocks before its body: one, or several if the format keeps long names apart. A fresh
// writer makes each, since a writer would want to see the previous body before the next header.
func (f File) header(opts Options) ([]byte, error) {
	h := &tar.Header{
		Name: f.Path, Typeflag: tar.TypeReg, Linkname: f.Link, Size: f.size(), Mode: int64(f.Mode.Perm()),
		Uid: f.UID, Gid: f.GID, ModTime: opts.Time.Truncate(time.Second), Format: opts.Format,
	}
	switch {
	case f.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, f.Path+"/"
	case f.Link != "":
		h.Typeflag = tar.TypeSymlink
	}
	for _, b := range []struct {
		bit  fs.FileMode
		unix int64 // POSIX.1-1988 10.1.1: TSUID, TSGID, TSVTX
	}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}} {
		if f.Mode&b.bit != 0 {
			h.Mode |= b.unix
		}
	}
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(h); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
