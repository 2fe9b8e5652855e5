// Package vhd plans Virtual Hard Disks, fixed and dynamic, from the plan of a raw disk (Microsoft's Virtual Hard Disk
// Image Format Specification, version 1.0, October 2006; the names below are its names).
//
// A fixed one is the raw disk, rounded up to whole MiB as Azure wants it, and a footer. A dynamic one holds the blocks of
// 2 MiB in which the raw disk has an extent. Readers take the footer's current size for the disk's, not the
// geometry, which can express few sizes.
//
// It plans no differencing disk, reads no image, and opens no blob. A dynamic disk's allocation table is 4 bytes for
// each 2 MiB of the disk, used or not: 4 KiB for 2 GiB, but 1 MiB of literals for 512 GiB.
package vhd

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
)

const (
	sector  = 512
	round   = 1 << 20    // Azure refuses a fixed disk of other than whole MiB
	maxSize = 2040 << 30 // bytes of a disk; the allocation table's sector numbers have 32 bits
)

// Kind is how the disk's content is laid out. The values are those of the footer's field disk type.
type Kind uint32

const (
	Fixed   Kind = 2
	Dynamic Kind = 3
)

// Options are what may be chosen of an image.
type Options struct {
	Kind Kind
	// Time is the creation time. The format counts from the year 2000; what is before counts as its first second.
	Time time.Time
	// UniqueID tells images apart: some hypervisors refuse a second one of the same ID. Zero means a
	// UUID of version 8 made from the kind, the disk's plan and its size, so that the same disk has the same ID.
	UniqueID [16]byte
}

// Plan returns the image of a raw disk. The same plan and options give the same image.
func Plan(raw *extent.Plan, opts Options) (*extent.Plan, error) {
	if err := raw.Err(); err != nil {
		return nil, fmt.Errorf("planning a VHD of a broken disk plan: %w", err)
	}
	size := raw.Size()
	if size <= 0 || size%sector != 0 {
		return nil, fmt.Errorf("cannot make a VHD of a disk of %d bytes: not whole sectors of %d", size, sector)
	}
	if size > maxSize {
		return nil, fmt.Errorf("cannot make a VHD of a disk of %d bytes: the format has at most %d", size, int64(maxSize))
	}
	stamp, err := timestamp(opts.Time)
	if err != nil {
		return nil, err
	}
	id := opts.UniqueID
	if id == [16]byte{} {
		id = uniqueID(raw, opts.Kind)
	}
	switch opts.Kind {
	case Fixed:
		return fixed(raw, stamp, id)
	case Dynamic:
		return dynamic(raw, stamp, id)
	}
	return nil, fmt.Errorf("cannot make a VHD of disk type %d: want fixed (%d) or dynamic (%d)", opts.Kind, Fixed, Dynamic)
}

// timestamp is the seconds since the year 2000, in UTC.
func timestamp(t time.Time) (uint32, error) {
	n := t.Unix() - time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	if n > math.MaxUint32 {
		return 0, errors.New("cannot make a VHD of " + t.UTC().Format(time.DateOnly) + ": its time ends in 2136")
	}
	return uint32(max(n, 0)), nil
}

func fixed(raw *extent.Plan, stamp uint32, id [16]byte) (*extent.Plan, error) {
	size := (raw.Size() + round - 1) / round * round
	p := extent.New(size + sector)
	p.Nest(0, raw)
	p.PutBytes(size, footer(Fixed, size, stamp, id))
	return p, p.Err()
}
