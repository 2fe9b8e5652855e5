package debian

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Deb is a package file to unpack.
type Deb struct {
	Name string // of the package
	Open func() (*os.File, error)
}

// maxUnpacked is far above the largest package we use (300 MB) and fits in memory.
const maxUnpacked = 2 << 30

// Unpack puts the files of all packages into the directory, which must be empty, in the order given; a
// file two packages have is the later one's. Device nodes and setuid and setgid bits are left out. base-files, when it is
// among them, must come first: it has the links /bin, /lib ... that the others' files go through.
func Unpack(ctx context.Context, dir string, debs []Deb) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	w := &treeWriter{root: root, dirs: map[string]string{".": "."}}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type unpacked struct {
		entries []entry
		err     error
	}
	ready := make([]chan unpacked, len(debs))
	for i := range ready {
		ready[i] = make(chan unpacked, 1)
	}
	var g errgroup.Group
	// A slot is given back when the package has been written, so at most this many are in memory.
	slots := make(chan struct{}, runtime.GOMAXPROCS(0)+1)
	g.Go(func() error {
		for i := range debs {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			g.Go(func() error {
				entries, err := debs[i].read()
				ready[i] <- unpacked{entries, err}
				return nil
			})
		}
		return nil
	})
	defer func() { cancel(); _ = g.Wait() }() // the goroutines report by channel
	for i, deb := range debs {
		var u unpacked
		select {
		case u = <-ready[i]:
		case <-ctx.Done():
			return ctx.Err()
		}
		if u.err == nil {
			u.err = w.write(u.entries)
		}
		if u.err != nil {
			return fmt.Errorf("unpacking %s: %w", deb.Name, u.err)
		}
		<-slots
	}
	return nil
}

func (d Deb) read() ([]entry, error) {
	f, err := d.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return readEntries(f, st.Size(), maxUnpacked)
}

// treeWriter writes entries below a root. os.Root is what confines it; the names it resolves itself
// are only for packages whose links to folders are absolute, which os.Root would refuse to follow.
type treeWriter struct {
	root *os.Root
	dirs map[string]string // folder as named by a package -> where it really is
}

func (w *treeWriter) write(entries []entry) error {
	for _, e := range entries {
		name, err := localName(e.header.Name)
		if err != nil {
			return err
		}
		if name == "." {
			continue
		}
		parent, err := w.dir(path.Dir(name))
		if err != nil {
			return err
		}
		if err := w.put(path.Join(parent, path.Base(name)), e); err != nil {
			return err
		}
	}
	return nil
}

func localName(name string) (string, error) {
	clean := path.Clean(name)
	if path.IsAbs(name) || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("cannot create %q outside of the tree", name)
	}
	return clean, nil
}

func (w *treeWriter) put(name string, e entry) error {
	mode := fs.FileMode(e.header.Mode) & 0o777
	switch e.header.Typeflag {
	case tar.TypeDir:
		return w.mkdir(name, mode|0o700)
	case tar.TypeReg:
		return w.file(name, mode|0o400, e.body)
	case tar.TypeSymlink:
		if err := w.remove(name); err != nil {
			return err
		}
		return w.root.Symlink(e.header.Linkname, name)
	case tar.TypeLink:
		target, err := localName(e.header.Linkname)
		if err != nil {
			return err
		}
		dir, err := w.dir(path.Dir(target))
		if err != nil {
			return err
		}
		if err := w.remove(name); err != nil {
			return err
		}
		return w.root.Link(path.Join(dir, path.Base(target)), name)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return nil
	}
	return fmt.Errorf("cannot unpack %q: unknown type %q", name, e.header.Typeflag)
}

// mkdir keeps a link to a folder where another package wants a real one, as dpkg does.
func (w *treeWriter) mkdir(name string, mode fs.FileMode) error {
	if _, err := w.follow(name, 0); err == nil {
		return nil
	}
	return w.root.Mkdir(name, mode)
}

func (w *treeWriter) file(name string, mode fs.FileMode, body []byte) error {
	if err := w.remove(name); err != nil {
		return err
	}
	f, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

func (w *treeWriter) remove(name string) error {
	err := w.root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// dir says where a folder really is, making it if a package forgot to list it.
func (w *treeWriter) dir(name string) (string, error) {
	if real, ok := w.dirs[name]; ok {
		return real, nil
	}
	real, err := w.follow(name, 0)
	if errors.Is(err, fs.ErrNotExist) {
		var parent string
		if parent, err = w.dir(path.Dir(name)); err != nil {
			return "", err
		}
		real = path.Join(parent, path.Base(name))
		err = w.root.Mkdir(real, 0o755)
	}
	if err != nil {
		return "", err
	}
	w.dirs[name] = real
	return real, nil
}

// follow resolves a name to an existing folder without symbolic links, taking an absolute link as
// starting at the tree's root.
func (w *treeWriter) follow(name string, depth int) (string, error) {
	if depth > 40 { // as many as the Linux kernel follows
		return "", fmt.Errorf("cannot follow %q: too many links", name)
	}
	at := "."
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			if at == "." {
				return "", fmt.Errorf("cannot follow %q outside of the tree", name)
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		st, err := w.root.Lstat(next)
		if err != nil {
			return "", err
		}
		switch {
		case st.IsDir():
			at = next
		case st.Mode()&fs.ModeSymlink != 0:
			target, err := w.root.Readlink(next)
			if err != nil {
				return "", err
			}
			if !path.IsAbs(target) {
				target = at + "/" + target
			}
			return w.follow(target+"/"+strings.Join(parts[i+1:], "/"), depth+1)
		default:
			return "", fmt.Errorf("cannot use %q as a folder: it is a file", next)
		}
	}
	return at, nil
}
