package fat

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
)

// maxDirBytes is a directory's limit (specification 1.03, "FAT Directory Structure"): 65,536 records.
const maxDirBytes = 65536 * recordSize

// node is a file or directory.
type node struct {
	name    string
	short   [11]byte
	long    bool // the short name does not say it all
	dir     bool
	content *extent.Plan // of a file
	parent  *node        // nil for the root
	entries []*node      // of a directory, sorted by name

	cluster, clusters uint32
}

// bytes is how much of the data area the node needs.
func (n *node) bytes() int64 {
	if !n.dir {
		return n.content.Size()
	}
	return n.dirBytes()
}

// walk visits n and all below it, parents first, in the order of names.
func (n *node) walk(visit func(*node)) {
	visit(n)
	for _, e := range n.entries {
		e.walk(visit)
	}
}

// find returns the entry of that name; FAT does not distinguish cases.
func (n *node) find(name string) *node {
	for _, e := range n.entries {
		if strings.EqualFold(e.name, name) {
			return e
		}
	}
	return nil
}

// tree makes nodes of the volume's lists, sorts them and gives them short names.
func (v Volume) tree() (*node, error) {
	root := &node{dir: true}
	for _, d := range v.Dirs {
		if _, err := root.mkdir(path.Clean(d)); err != nil {
			return nil, fmt.Errorf("adding directory %q: %w", d, err)
		}
	}
	for _, f := range v.Files {
		if err := root.add(f); err != nil {
			return nil, fmt.Errorf("adding file %q: %w", f.Path, err)
		}
	}
	var err error
	root.walk(func(n *node) {
		slices.SortFunc(n.entries, func(a, b *node) int { return strings.Compare(a.name, b.name) })
		if err == nil {
			err = n.shorten()
		}
		if err == nil && n.dir && n.dirBytes() > maxDirBytes {
			err = fmt.Errorf("cannot make directory %q: too many entries", n.name)
		}
	})
	return root, err
}

func (n *node) add(f File) error {
	if f.Content == nil {
		return fmt.Errorf("internal error: no content")
	}
	if f.Content.Size() > maxFileSize {
		return fmt.Errorf("cannot store %d bytes in one file: FAT32 allows %d", f.Content.Size(), int64(maxFileSize))
	}
	clean := path.Clean(f.Path)
	dir, err := n.mkdir(path.Dir(clean))
	if err != nil {
		return err
	}
	name := path.Base(clean)
	if err := checkName(name); err != nil {
		return err
	}
	if old := dir.find(name); old != nil {
		return fmt.Errorf("cannot add it twice: %q exists (FAT ignores case)", old.name)
	}
	dir.entries = append(dir.entries, &node{name: name, content: f.Content, parent: dir})
	return nil
}

// mkdir returns the directory of that path and makes what is missing.
func (n *node) mkdir(dir string) (*node, error) {
	if dir == "." {
		return n, nil
	}
	for _, name := range strings.Split(dir, "/") {
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
		if next.name != name {
			return nil, fmt.Errorf("cannot use directory %q also as %q: FAT ignores case", next.name, name)
		}
		n = next
	}
	return n, nil
}

// dosTime is a date and time as FAT writes them (specification 1.03, "Date and Time Formats"), in UTC and
// within what the format can say: 1980 to 2107, even seconds.
func dosTime(t time.Time) [2]uint16 {
	t = t.UTC()
	if t.Year() < 1980 {
		t = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if t.Year() > 2107 {
		t = time.Date(2107, 12, 31, 23, 59, 58, 0, time.UTC)
	}
	return [2]uint16{
		uint16(t.Year()-1980)<<9 | uint16(t.Month())<<5 | uint16(t.Day()),
		uint16(t.Hour())<<11 | uint16(t.Minute())<<5 | uint16(t.Second()/2),
	}
}
