package pack

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Limits of what an image may make us keep: a layer of some kilobytes can be any number of zeros.
const (
	maxBytes    = 4 << 30
	maxEntries  = 1 << 20
	maxManifest = 64 << 10
)

// merge is an image's layers laid over each other (OCI image-spec, layer.md), with all contents in one spool file.
//
// mutate.Extract of go-containerregistry does the same but leaves out links that escape without a word; here each is
// an error that names it.
type merge struct {
	entries map[string]*entry // by clean path without a leading slash
	spool   *os.File
	size    int64

	// What the layer that is being read takes away of those below: a path and all below it, or only what is below it.
	gone, emptied map[string]bool
}

// entry is a file of the merged image.
type entry struct {
	kind     byte // of archive/tar: TypeReg, TypeDir, TypeSymlink
	mode     fs.FileMode
	link     string // of a symbolic link
	off, len int64  // of a file, in the spool; hard links share it
	layer    int    // that it came from
}

func newMerge() *merge {
	return &merge{entries: map[string]*entry{}, gone: map[string]bool{}, emptied: map[string]bool{}}
}

func (m *merge) close() {
	if m.spool != nil {
		m.spool.Close() // it has no name any more: this removes it
	}
}

// layer lays one more layer over what is there, and checks that it is what the image's configuration names.
func (m *merge) layer(l layer) (err error) {
	raw, err := l.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	plain, err := decompress(raw)
	if err != nil {
		return err
	}
	h := sha256.New()
	r := io.TeeReader(plain, h)
	if err := m.tar(tar.NewReader(r), l.number); err != nil {
		return err
	}
	m.takeAway(l.number)
	// What follows the archive's end belongs to the layer's digest, too.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != l.diffID {
		return fmt.Errorf("its content hashes to %s, and the image's configuration says %s", got, l.diffID)
	}
	return nil
}

// decompress goes by the first bytes: media types are often wrong.
func decompress(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case strings.HasPrefix(string(magic), "\x1f\x8b"): // RFC 1952, 2.3.1
		return gzip.NewReader(b)
	case string(magic) == "\x28\xb5\x2f\xfd": // RFC 8878, 3.1.1
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return b, nil
}

// Names with which a layer takes away what lower ones have (OCI image-spec, layer.md, "Whiteouts").
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

func (m *merge) tar(r *tar.Reader, number int) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := inside(h.Name)
		if err != nil {
			return err
		}
		dir, base := path.Split(name)
		switch {
		case name == ".":
		case base == opaque:
			m.emptied[path.Clean(dir)] = true
		case strings.HasPrefix(base, whiteout):
			m.gone[dir+strings.TrimPrefix(base, whiteout)] = true
		default:
			if err := m.add(name, h, r, number); err != nil {
				return err
			}
		}
	}
}

// inside makes a path of an archive relative to the image's root, and refuses one that climbs out of it.
func inside(name string) (string, error) {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", fmt.Errorf("cannot accept path %q: it leads out of the image", name)
	}
	return clean, nil
}

// takeAway removes what the layer has taken away of lower ones. It is done once a layer: an image may have a million
// files, and as many whiteouts.
func (m *merge) takeAway(number int) {
	for p, e := range m.entries {
		if e.layer < number && m.takenAway(p) {
			delete(m.entries, p)
		}
	}
	clear(m.gone)
	clear(m.emptied)
}

func (m *merge) takenAway(p string) bool {
	if m.gone[p] {
		return true
	}
	for p != "." {
		if p = path.Dir(p); m.gone[p] || m.emptied[p] {
			return true
		}
	}
	return false
}

func (m *merge) add(name string, h *tar.Header, r io.Reader, number int) error {
	e := &entry{kind: h.Typeflag, mode: fs.FileMode(h.Mode & 0o7777), layer: number}
	for key := range h.PAXRecords {
		if strings.HasSuffix(key, ".xattr.security.capability") { // of GNU tar and of libarchive
			return fmt.Errorf("cannot accept /%s: it has file capabilities", name)
		}
	}
	switch h.Typeflag {
	case tar.TypeReg:
		if err := m.keep(e, r, h.Size); err != nil {
			return fmt.Errorf("reading /%s: %w", name, err)
		}
	case tar.TypeDir:
	case tar.TypeSymlink:
		e.link = h.Linkname
	case tar.TypeLink:
		to, err := inside(h.Linkname)
		if err != nil {
			return fmt.Errorf("following hard link /%s: %w", name, err)
		}
		target, ok := m.entries[to]
		if !ok || target.kind != tar.TypeReg {
			return fmt.Errorf("cannot accept hard link /%s: its target /%s is no file of the image", name, to)
		}
		copied := *target
		copied.layer = number
		e = &copied
	default:
		return fmt.Errorf("cannot accept /%s: it is a %s", name, kindName(h.Typeflag))
	}
	if e.kind != tar.TypeDir {
		m.emptied[name] = true
	}
	if m.entries[name] = e; len(m.entries) > maxEntries {
		return fmt.Errorf("cannot accept more than %d files", maxEntries)
	}
	return nil
}

func kindName(flag byte) string {
	switch flag {
	case tar.TypeChar, tar.TypeBlock:
		return "device node"
	case tar.TypeFifo:
		return "named pipe"
	}
	return fmt.Sprintf("tar entry of type %q", flag)
}

// keep puts a file's content into the spool, which is made when first needed and unlinked at once.
func (m *merge) keep(e *entry, r io.Reader, size int64) (err error) {
	if m.spool == nil {
		if m.spool, err = os.CreateTemp("", "extension-"); err != nil {
			return err
		}
		if err := os.Remove(m.spool.Name()); err != nil {
			return err
		}
	}
	if m.size+size > maxBytes {
		return fmt.Errorf("cannot accept more than %d bytes of files", int64(maxBytes))
	}
	e.off, e.len = m.size, size
	m.size += size
	_, err = io.CopyN(m.spool, r, size)
	return err
}

func (m *merge) open(e *entry) io.Reader {
	if e.len == 0 {
		return strings.NewReader("")
	}
	return io.NewSectionReader(m.spool, e.off, e.len)
}

// What an extension's image consists of.
const (
	manifestName = "manifest.yaml"
	rootfsName   = "rootfs"
)

// manifest returns the text of manifest.yaml.
func (m *merge) manifest() (string, error) {
	e, ok := m.entries[manifestName]
	switch root := m.entries[rootfsName]; {
	case !ok:
		return "", fmt.Errorf("it has no %s", manifestName)
	case e.kind != tar.TypeReg:
		return "", fmt.Errorf("its %s is no file", manifestName)
	case e.len > maxManifest:
		return "", fmt.Errorf("its %s has %d bytes, more than %d", manifestName, e.len, maxManifest)
	case root != nil && root.kind != tar.TypeDir:
		return "", fmt.Errorf("its %s is no directory", rootfsName)
	}
	text, err := io.ReadAll(m.open(e))
	return string(text), err
}
