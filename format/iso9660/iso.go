// Package iso9660 plans ISO 9660 volumes (ECMA-119, 4th edition, interchange level 3) with Rock Ridge names and modes
// (SUSP 1.10, RRIP 1.10) and an El Torito boot catalog (specification 1.0).
//
// A Volume becomes an extent plan whose literals are descriptors, tables and directories only: file contents are plans
// that nest. Contents of 64 KiB and more start at a multiple of 64 KiB. A file may be a range of another one, so that
// bytes which two boot loaders find by different names are there once. Files of more than 4 GiB take several extents.
//
// The first 32 KiB, ECMA-119's system area, and Volume.Tail bytes at the end stay gaps of the plan: boot code and
// partition tables are the caller's. It reads no volume and relocates no deep directories, makes no links, devices or owners
// other than root, and no second tree for Joliet: Linux, GRUB and the BSDs read Rock Ridge, and what does not still
// finds the upper case names of ECMA-119.
package iso9660

import (
	"errors"
	"fmt"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
)

const (
	// Sector is the unit in which everything is placed (ECMA-119 6.1.2 and 6.2.2: a logical block of 2048).
	Sector = 2048
	// SystemArea is how much at the start is not the file system's (ECMA-119 6.2.1).
	SystemArea = 16 * Sector
	// Align is where contents of files of at least that size start: at multiples of it.
	Align = 64 << 10

	// sizeUnit is what the whole volume is a multiple of: one cylinder of 64 heads and 32 sectors of 512 bytes, the geometry
	// that BIOSes assume of a hybrid image on a USB disk.
	sizeUnit = 1 << 20

	maxSectors = 1<<32 - 1                     // volume space size and locations have 32 bits
	maxExtent  = (1<<32 - 1) / Sector * Sector // of one directory record; the next extent has to start at a sector
)

// Range is a part of another file of the volume.
type Range struct {
	Path   string
	Offset int64 // a multiple of Sector
	Size   int64
}

// File is a file of a volume. Its path is separated by slashes, relative to the root; directories on the way are made.
type File struct {
	Path    string
	Content *extent.Plan
	Align   int64 // where the content starts: at a multiple of it; 0 leaves it to the planner
	Alias   Range // instead of Content: bytes that another file has already
}

// Volume is an ISO 9660 file system to be.
type Volume struct {
	ID          string    // volume identifier: at most 32 of A-Z, 0-9 and _
	Application string    // what it is, for people: at most 128 ASCII characters
	Time        time.Time // of the volume and every file; zero means 1970-01-01
	Files       []File
	Boot        []Boot // El Torito entries; the first is the default. None: no boot catalog
	Tail        int64  // bytes to leave free behind the last file
}

// Layout says where things lie. It depends on names and sizes alone, so that contents which hold addresses may be
// made from it.
type Layout struct {
	Size    int64 // of the whole volume
	root    *node
	dirs    []*node // breadth first: the path table's order
	sectors sectors
}

// sectors are where the volume's own structures lie, in sectors.
type sectors struct {
	primary, boot, terminator, catalog    int64
	pathL, pathM, pathSectors, susp, data int64
}

// Offset is where a file's content begins.
func (l *Layout) Offset(path string) (int64, error) {
	n, err := l.root.file(path)
	if err != nil {
		return 0, err
	}
	return n.off, nil
}

// Plan lays out the volume.
func (v Volume) Plan() (*extent.Plan, error) {
	l, err := v.Layout()
	if err != nil {
		return nil, err
	}
	p := extent.New(l.Size)
	for _, put := range []func(*Layout, *extent.Plan) error{v.putDescriptors, v.putCatalog, v.putPathTables, v.putDirectories, v.putFiles} {
		if err := put(l, p); err != nil {
			return nil, err
		}
	}
	return p, p.Err()
}

func (v Volume) putFiles(l *Layout, p *extent.Plan) error {
	var errs []error
	l.root.walk(func(n *node) {
		if !n.dir && n.content != nil {
			errs = append(errs, p.Nest(n.off, n.content))
		}
	})
	return errors.Join(errs...)
}

// Layout places everything.
func (v Volume) Layout() (*Layout, error) {
	root, err := v.tree()
	if err != nil {
		return nil, err
	}
	l := &Layout{root: root}
	l.placeStructures(len(v.Boot) > 0)
	end := l.placeFiles()
	l.Size = roundUp(end+v.Tail, sizeUnit)
	if v.Tail < 0 || l.Size/Sector > maxSectors {
		return nil, fmt.Errorf("cannot make an ISO 9660 volume of %d bytes: it has at most 2^32 sectors", l.Size)
	}
	return l, l.placeAliases()
}

// placeStructures gives sectors to all but the contents.
func (l *Layout) placeStructures(boots bool) {
	at := int64(SystemArea / Sector)
	take := func(n int64) int64 {
		at += n
		return at - n
	}
	s := &l.sectors
	s.primary = take(1)
	if boots {
		s.boot = take(1) // El Torito 1.0, 2.0: the boot record lies at sector 17
	}
	s.terminator = take(1)
	if boots {
		s.catalog = take(1)
	}
	for queue := []*node{l.root}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		l.dirs = append(l.dirs, n)
		n.number = len(l.dirs)
		for _, e := range n.entries {
			if e.dir {
				queue = append(queue, e)
			}
		}
	}
	s.pathSectors = roundUp(int64(len(l.pathTable(false))), Sector) / Sector
	s.pathL, s.pathM = take(s.pathSectors), take(s.pathSectors)
	s.susp = take(1)
	for _, d := range l.dirs {
		d.size = int64(len(d.records(attributes{})))
		d.off = take(d.size/Sector) * Sector
	}
	s.data = at
}

// placeFiles places small contents first and the aligned ones behind them, each in the order of the tree, so that
// no small thing sits between two large ones. It returns the end.
func (l *Layout) placeFiles() int64 {
	at := l.sectors.data * Sector
	place := func(large bool) {
		l.root.walk(func(n *node) {
			if n.dir || n.content == nil || n.size == 0 || large != (n.align > Sector) {
				return
			}
			n.off = roundUp(at, n.align)
			at = roundUp(n.off+n.size, Sector)
		})
	}
	place(false)
	place(true)
	return at
}

// placeAliases resolves the files that are ranges of others.
func (l *Layout) placeAliases() (err error) {
	l.root.walk(func(n *node) {
		if n.dir || n.content != nil || err != nil {
			return
		}
		if err = l.resolve(n); err != nil {
			err = fmt.Errorf("placing file %q: %w", n.path(), err)
		}
	})
	return err
}

func (l *Layout) resolve(n *node) error {
	r := n.alias
	target, err := l.root.file(r.Path)
	switch {
	case err != nil:
		return err
	case target.content == nil:
		return fmt.Errorf("cannot make it a part of %q, which is a part of another file", r.Path)
	case r.Offset < 0 || r.Offset%Sector != 0:
		return fmt.Errorf("cannot make it a part of %q from byte %d on: not at a sector", r.Path, r.Offset)
	case r.Size < 0 || r.Offset > target.size-r.Size:
		return fmt.Errorf("cannot make it %d bytes of %q from byte %d on: that one has %d", r.Size, r.Path, r.Offset, target.size)
	}
	n.off = target.off + r.Offset
	return nil
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
