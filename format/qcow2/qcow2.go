// Package qcow2 plans QEMU disk images, version 3, from the plan of a raw disk (QEMU's docs/interop/qcow2.txt; the
// names below are its names).
//
// Guest clusters that hold an extent of the raw disk are allocated, in guest order behind all tables; the others are not,
// and read as zeros. So a blob range of the raw disk is one blob range of the image, at the same offset modulo 64 KiB.
// Tables are planned only where they say something: 8 bytes an allocated cluster, plus its reference count. A
// count is 16 bits wide, QEMU's default, so that the image can take internal snapshots, or 1 bit where the wide ones would
// carry the plan's literals beyond 1 MiB; with clusters of 8 KiB that is from about 800 MiB of content on.
//
// It compresses and encrypts nothing, has no backing file, snapshot, bitmap or extended L2 entry, reads no image, and opens no blob.
package qcow2

import (
	"fmt"
	"math/bits"

	"github.com/talos-factory/talos-factory/format/extent"
)

const (
	defaultCluster = 64 << 10 // QEMU's default
	minCluster     = 512      // cluster_bits must not be less than 9
	maxCluster     = 2 << 20  // QEMU opens no image with larger ones
	maxL1          = 32 << 20 // bytes; QEMU opens no image with a larger L1 table
	sector         = 512

	maxLiterals = 1 << 20 // what a plan should hold at most
	blobAlign   = 64 << 10
)

// Options are what may be chosen of an image. The zero value is QEMU's own choice.
type Options struct {
	ClusterSize int64 // a power of two from 512 to 2 MiB; 0 is 64 KiB
}

// Plan returns the image of a raw disk. The same plan and options give the same image.
func Plan(raw *extent.Plan, opts Options) (*extent.Plan, error) {
	if err := raw.Err(); err != nil {
		return nil, fmt.Errorf("planning a qcow2 image of a broken disk plan: %w", err)
	}
	size := opts.ClusterSize
	if size == 0 {
		size = defaultCluster
	}
	if size < minCluster || size > maxCluster || bits.OnesCount64(uint64(size)) != 1 {
		return nil, fmt.Errorf("cannot make a qcow2 image with clusters of %d bytes: want a power of two from %d to %d", size, minCluster, maxCluster)
	}
	if raw.Size() <= 0 || raw.Size()%sector != 0 {
		return nil, fmt.Errorf("cannot make a qcow2 image of a disk of %d bytes: not whole sectors of %d", raw.Size(), sector)
	}
	if limit := maxL1 / entrySize * (size / entrySize) * size; raw.Size() > limit {
		return nil, fmt.Errorf("cannot make a qcow2 image of a disk of %d bytes: with clusters of %d it may have %d, with larger ones more", raw.Size(), size, limit)
	}
	extents := raw.Extents()
	l := newLayout(extents, raw.Size(), size, wideCounts)
	if raw.Literals()+l.tableBytes() > maxLiterals {
		l = newLayout(extents, raw.Size(), size, narrowCounts)
	}
	p := extent.New(l.clusters * size)
	l.putTables(p, raw.Size())
	l.putContent(p, extents)
	return p, p.Err()
}
