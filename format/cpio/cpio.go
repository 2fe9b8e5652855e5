// Package cpio plans cpio archives in the "newc" format, which the kernel unpacks as an initramfs
// (Linux Documentation/driver-api/early-userspace/buffer-format.rst).
//
// Headers are written by u-root's writer into a recorder; contents are plans that nest, so an archive with a root file
// system of any size is a few hundred literal bytes. Entries come in the order of the list, as the kernel makes
// them. It compresses nothing, knows no hard links, and reads no archive.
package cpio

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/u-root/u-root/pkg/cpio"
)

// maxSize is the largest content: the header has 8 hexadecimal digits for it.
const maxSize = 1<<32 - 1

// trailer is the name of the entry that ends an archive.
const trailer = "TRAILER!!!"

// Entry is a file of the archive. What it is follows from the type bits of Mode.
type Entry struct {
	Path     string      // slash-separated, relative: "usr/bin/init"; its directory must come before
	Mode     fs.FileMode // fs.ModeDir, fs.ModeSymlink, fs.ModeDevice with or without fs.ModeCharDevice, fs.ModeNamedPipe, or none
	UID, GID uint32
	Content  *extent.Plan // of a regular file
	Link     string       // target of a symbolic link
	Major    uint32       // of a device
	Minor    uint32
}

// Plan lays out an archive. All entries get the time mtime, and inode numbers in their order from 1.
func Plan(entries []Entry, mtime time.Time) (*extent.Plan, error) {
	var out recorder
	w := cpio.Newc.Writer(&out)
	dirs := map[string]bool{".": true}
	seen := map[string]bool{trailer: true}
	for i, e := range entries {
		if err := e.check(dirs, seen); err != nil {
			return nil, fmt.Errorf("adding %q: %w", e.Path, err)
		}
		seen[e.Path] = true
		if e.Mode.IsDir() {
			dirs[e.Path] = true
		}
		if err := out.add(w, e, uint64(i+1), uint64(max(0, mtime.Unix()))); err != nil {
			return nil, fmt.Errorf("adding %q: %w", e.Path, err)
		}
	}
	if err := w.WriteRecord(cpio.Record{Info: cpio.Info{Name: trailer, NLink: 1}}); err != nil {
		return nil, fmt.Errorf("ending the archive: %w", err)
	}
	return out.plan()
}

// check refuses entries that the kernel would silently drop or put elsewhere.
func (e Entry) check(dirs, seen map[string]bool) error {
	regular := e.Mode.IsRegular()
	switch {
	case !fs.ValidPath(e.Path) || e.Path == ".":
		return errors.New("cannot use this path: want a clean relative one")
	case seen[e.Path]:
		return errors.New("cannot add it twice")
	case !dirs[path.Dir(e.Path)]:
		return fmt.Errorf("cannot add it before its directory %q", path.Dir(e.Path))
	case regular && e.Content == nil:
		return errors.New("internal error: a file without content")
	case !regular && e.Content != nil:
		return fmt.Errorf("cannot give content to %s", e.Mode)
	case regular && e.Content.Size() > maxSize:
		return fmt.Errorf("cannot store %d bytes: the format allows %d", e.Content.Size(), int64(maxSize))
	case (e.Mode.Type() == fs.ModeSymlink) != (e.Link != ""):
		return errors.New("cannot make a link without a target, or a target without a link")
	}
	return nil
}

// unixMode is the mode as stat(2) has it.
func (e Entry) unixMode() (uint64, error) {
	mode := uint64(e.Mode.Perm())
	for bit, unix := range map[fs.FileMode]uint64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if e.Mode&bit != 0 {
			mode |= unix
		}
	}
	kind, ok := map[fs.FileMode]uint64{
		0:                                 cpio.S_IFREG,
		fs.ModeDir:                        cpio.S_IFDIR,
		fs.ModeSymlink:                    cpio.S_IFLNK,
		fs.ModeDevice:                     cpio.S_IFBLK,
		fs.ModeDevice | fs.ModeCharDevice: cpio.S_IFCHR,
		fs.ModeNamedPipe:                  cpio.S_IFIFO,
	}[e.Mode.Type()]
	if !ok {
		return 0, fmt.Errorf("cannot store a file of type %s", e.Mode.Type())
	}
	return mode | kind, nil
}

// recorder is a writer that keeps headers and skips bodies, for which it remembers plans.
type recorder struct {
	pos     int64
	skip    int64 // bytes of body that are still to come
	extents []extent.Extent
	nested  []body
}

type body struct {
	off     int64
	content *extent.Plan
}

func (r *recorder) add(w cpio.RecordWriter, e Entry, inode, mtime uint64) error {
	mode, err := e.unixMode()
	if err != nil {
		return err
	}
	rec := cpio.Record{Info: cpio.Info{Name: e.Path, Ino: inode, Mode: mode, UID: uint64(e.UID), GID: uint64(e.GID),
		NLink: 1, MTime: mtime, Rmajor: uint64(e.Major), Rminor: uint64(e.Minor)}}
	content := e.Content
	if e.Link != "" {
		content = extent.FromBytes([]byte(e.Link))
	}
	if e.Mode.IsDir() {
		rec.NLink = 2
	}
	if content != nil {
		rec.FileSize = uint64(content.Size())
		rec.ReaderAt = &zeros{r, content}
	}
	return w.WriteRecord(rec)
}

// zeros stands for a body of which the writer needs only the length. When it is first read, the
// writer has written all of the header and begins the body.
type zeros struct {
	out     *recorder
	content *extent.Plan
}

func (z *zeros) ReadAt(b []byte, off int64) (int, error) {
	if off == 0 && z.content.Size() > 0 {
		z.out.skip = z.content.Size()
		z.out.nested = append(z.out.nested, body{z.out.pos, z.content})
	}
	n := min(int64(len(b)), z.content.Size()-off)
	clear(b[:n])
	if n < int64(len(b)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// Write keeps what is not body.
func (r *recorder) Write(b []byte) (int, error) {
	n := min(int64(len(b)), r.skip)
	r.skip -= n
	r.pos += n
	if kept := b[n:]; len(kept) > 0 {
		r.extents = append(r.extents, extent.Extent{Off: r.pos, Literal: append([]byte(nil), kept...)})
		r.pos += int64(len(kept))
	}
	return len(b), nil
}

func (r *recorder) plan() (*extent.Plan, error) {
	p := extent.New(r.pos)
	for _, e := range r.joined() {
		p.PutBytes(e.Off, e.Literal)
	}
	for _, b := range r.nested {
		p.Nest(b.off, b.content)
	}
	return p, p.Err()
}

// joined makes one extent of writes that touch: the writer makes several of each header.
func (r *recorder) joined() []extent.Extent {
	var out []extent.Extent
	for _, e := range r.extents {
		if n := len(out); n > 0 && out[n-1].Off+int64(len(out[n-1].Literal)) == e.Off {
			out[n-1].Literal = append(out[n-1].Literal, e.Literal...)
			continue
		}
		out = append(out, e)
	}
	return out
}
