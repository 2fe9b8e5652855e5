// Package fat plans FAT32 volumes (Microsoft "FAT: General Overview of On-Disk Format" 1.03) with long file names.
//
// A Volume becomes an extent plan whose literals are the tables and directories only: file contents are plans
// that nest. Files of 64 KiB and more start at a multiple of 64 KiB from the volume's start, so that formats with
// larger units (qcow2 clusters, VMDK grains) can share them. Nothing depends on a clock, and the same volume gives
// the same bytes. It makes no FAT12 or FAT16, reads no volume, and changes none.
//
// It is our own because go-diskfs 1.9.4's FAT32 does not pass fsck.vfat (bad ".." in first-level directories,
// wrong free count, serial number 0): see docs/adr/0003-own-fat32-planner.md.
package fat

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
)

const (
	// Align is where contents of files of at least that size start: at multiples of it.
	Align = 64 << 10

	minClusters = 65525      // fewer are FAT16, by specification 1.03, "FAT Type Determination"
	maxClusters = 0x0FFFFFF5 // entries from 0x0FFFFFF7 on are reserved
	maxFileSize = 1<<32 - 1  // DIR_FileSize has 32 bits
	maxCluster  = 32 << 10   // bytes; larger ones are not portable (specification 1.03, BPB_SecPerClus)

	backupSector = 6 // BPB_BkBootSec, the only recommended value
	minReserved  = 32
	rootCluster  = 2 // the first one
)

// ErrNoSpace is wrapped by Plan's error when the files do not fit; the error says how much is missing.
var ErrNoSpace = errors.New("no space left on the volume")

// File is a file of a volume. Its path is separated by slashes, relative to the root; directories on the way are made.
type File struct {
	Path    string
	Content *extent.Plan
}

// Volume is a FAT32 file system to be.
type Volume struct {
	Size       int64
	SectorSize int       // 0 means 512
	Label      string    // at most 11 characters, upper case
	ID         uint32    // the volume's serial number
	Hidden     uint32    // sectors of the disk before the volume; only old BIOS loaders look
	Time       time.Time // of every file; zero means 1980-01-01, the earliest FAT can say
	Dirs       []string  // directories that exist even when no file is in them
	Files      []File
}

// geometry is how a volume is divided; lengths in sectors unless they say bytes.
type geometry struct {
	sector     int64 // bytes
	perCluster int64
	reserved   int64
	fat        int64 // of one of the two tables
	total      int64
	clusters   int64
}

func (g geometry) clusterBytes() int64 { return g.perCluster * g.sector }

// fatOff is where table i begins, in bytes.
func (g geometry) fatOff(i int64) int64 { return (g.reserved + i*g.fat) * g.sector }

// offset is where a cluster begins, in bytes; the data area begins with cluster 2.
func (g geometry) offset(cluster uint32) int64 {
	return (g.reserved + 2*g.fat + int64(cluster-2)*g.perCluster) * g.sector
}

// measure chooses the largest clusters with which the volume is still FAT32: the fewer clusters,
// the shorter the tables, which are literal bytes of every plan.
func measure(size, sector int64) (geometry, error) {
	if sector != 512 && sector != 4096 {
		return geometry{}, fmt.Errorf("cannot make a FAT32 volume with sectors of %d bytes: want 512 or 4096", sector)
	}
	if size/sector > 1<<32-1 {
		return geometry{}, fmt.Errorf("cannot make a FAT32 volume of %d bytes: more than 2^32 sectors", size)
	}
	for cluster := int64(maxCluster); cluster >= sector; cluster /= 2 {
		g := divide(size, sector, cluster/sector)
		if g.clusters >= minClusters && g.clusters < maxClusters {
			return g, nil
		}
	}
	return geometry{}, fmt.Errorf("cannot make a FAT32 volume of %d bytes: it would not have %d to %d clusters", size, minClusters, maxClusters)
}

// divide lays out a volume with clusters of a given number of sectors. The reserved sectors are enlarged so that
// the data area begins at a multiple of Align.
func divide(size, sector, perCluster int64) geometry {
	g := geometry{sector: sector, perCluster: perCluster, reserved: minReserved, total: size / sector}
	// The table has to describe at most the clusters there would be without any table.
	most := (g.total - minReserved) / perCluster
	g.fat = (4*(most+2) + sector - 1) / sector
	unit := int64(Align) / sector
	if over := (g.reserved + 2*g.fat) % unit; over != 0 {
		g.reserved += unit - over
	}
	g.clusters = max(0, (g.total-g.reserved-2*g.fat)/perCluster)
	return g
}

// Plan lays out the volume.
func (v Volume) Plan() (*extent.Plan, error) {
	label, err := volumeLabel(v.Label)
	if err != nil {
		return nil, err
	}
	root, a, err := v.allocate()
	if err != nil {
		return nil, err
	}
	p := extent.New(v.Size)
	v.putReserved(p, a.geometry, label, a)
	a.putTables(p)
	stamp := dosTime(v.Time)
	root.walk(func(n *node) {
		switch {
		case n.dir:
			p.PutBytes(a.offset(n.cluster), n.records(label, stamp))
		case n.clusters > 0:
			p.Nest(a.offset(n.cluster), n.content)
		}
	})
	return p, p.Err()
}

// Offset is where the content of a file that is not empty begins; it lies in one run. Whoever nests the volume
// may so refer to the content from elsewhere.
func (v Volume) Offset(file string) (int64, error) {
	n, a, err := v.allocate()
	if err != nil {
		return 0, err
	}
	for _, name := range strings.Split(path.Clean(file), "/") {
		if n = n.find(name); n == nil {
			return 0, fmt.Errorf("cannot find file %q on the volume", file)
		}
	}
	if n.dir || n.clusters == 0 {
		return 0, fmt.Errorf("cannot tell where %q lies: a directory, or empty", file)
	}
	return a.offset(n.cluster), nil
}

// allocate gives each file and directory its place.
func (v Volume) allocate() (*node, *allocator, error) {
	sector := int64(v.SectorSize)
	if sector == 0 {
		sector = 512
	}
	g, err := measure(v.Size, sector)
	if err != nil {
		return nil, nil, err
	}
	root, err := v.tree()
	if err != nil {
		return nil, nil, err
	}
	a := &allocator{geometry: g, next: rootCluster}
	return root, a, a.place(root)
}
