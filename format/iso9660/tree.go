package iso9660

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/talos-factory/talos-factory/format/extent"
)

const (
	maxDepth = 8         // levels, with the root (ECMA-119 6.8.2.1)
	maxDirs  = 1<<16 - 1 // a directory's number has 16 bits (ECMA-119 9.4.4)
)

// node is a file or directory.
type node struct {
	name    string
	id      string // its ECMA-119 identifier; empty for the root
	dir     bool
	parent  *node   // nil for the root
	entries []*node // of a directory, in the order of their identifiers
	number  int     // of a directory: its place in the path table, from 1

	content *extent.Plan // of a file; nil if it is an alias
	alias   Range
	align   int64

	off, size int64 // where it lies, in bytes
}

// walk visits n and all below it, parents first, in the order of identifiers.
func (n *node) walk(visit func(*node)) {
	visit(n)
	for _, e := range n.entries {
		e.walk(visit)
	}
}

func (n *node) path() string {
	if n.parent == nil {
		return ""
	}
	return path.Join(n.parent.path(), n.name)
}

func (n *node) find(name string) *node {
	for _, e := range n.entries {
		if e.name == name {
			return e
		}
	}
	return nil
}

// file returns the file of that path.
func (n *node) file(name string) (*node, error) {
	for _, part := range strings.Split(path.Clean(name), "/") {
		if n = n.find(part); n == nil {
			return nil, fmt.Errorf("cannot find file %q on the volume", name)
		}
	}
	if n.dir {
		return nil, fmt.Errorf("cannot use %q as a file: it is a directory", name)
	}
	return n, nil
}

// tree makes nodes of the volume's list, gives them identifiers and sorts them.
func (v Volume) tree() (*node, error) {
	root := &node{dir: true}
	for _, f := range v.Files {
		if err := root.add(f); err != nil {
			return nil, fmt.Errorf("adding file %q: %w", f.Path, err)
		}
	}
	var errs []error
	dirs := 0
	root.walk(func(n *node) {
		if n.dir {
			dirs++
			errs = append(errs, n.identify())
		}
	})
	if dirs > maxDirs {
		return nil, fmt.Errorf("cannot make %d directories: an ISO 9660 volume has at most %d", dirs, maxDirs)
	}
	return root, errors.Join(errs...)
}

func (n *node) add(f File) error {
	clean := path.Clean(f.Path)
	dir, err := n.mkdir(path.Dir(clean))
	if err != nil {
		return err
	}
	e := &node{name: path.Base(clean), parent: dir, content: f.Content, alias: f.Alias, align: f.Align, size: f.Alias.Size}
	if err := checkName(e.name); err != nil {
		return err
	}
	if (f.Content == nil) == (f.Alias == Range{}) {
		return errors.New("internal error: want either content or a range of another file")
	}
	if f.Content != nil {
		e.size = f.Content.Size()
	}
	if e.align == 0 && e.size >= Align {
		e.align = Align
	}
	e.align = max(e.align, Sector)
	if e.align%Sector != 0 {
		return fmt.Errorf("cannot place it at a multiple of %d: not whole sectors", e.align)
	}
	if dir.find(e.name) != nil {
		return errors.New("cannot add it twice")
	}
	dir.entries = append(dir.entries, e)
	return nil
}

// mkdir returns the directory of that path and makes what is missing.
func (n *node) mkdir(dir string) (*node, error) {
	if dir == "." {
		return n, nil
	}
	names := strings.Split(dir, "/")
	if len(names) >= maxDepth {
		return nil, fmt.Errorf("cannot make %d levels of directories: ISO 9660 has %d", len(names)+1, maxDepth)
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, err
		}
		next := n.find(name)
		if next == nil {
			next = &node{name: name, dir: true, parent: n}
			n.entries = append(n.entries, next)
		}
		if !next.dir {
			return nil, fmt.Errorf("cannot make directory %q: it is a file", name)
		}
		n = next
	}
	return n, nil
}

// identify gives the directory's entries their identifiers and sorts the entries by them (ECMA-119 9.3).
func (n *node) identify() error {
	slices.SortFunc(n.entries, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	taken := map[string]bool{}
	for _, e := range n.entries {
		id, err := identifier(e.name, e.dir, taken)
		if err != nil {
			return fmt.Errorf("naming %q: %w", e.path(), err)
		}
		e.id = id
		taken[id] = true
	}
	slices.SortFunc(n.entries, func(a, b *node) int { return compareIdentifiers(a.id, b.id) })
	return nil
}
