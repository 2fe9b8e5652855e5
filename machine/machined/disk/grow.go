//go:build linux

package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/format/gpt"
	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

// Growth is what Grow did.
type Growth struct {
	Grown      bool
	Before     int64 // of the last partition
	After      int64
	FromBackup bool // the primary table was damaged and has been written again
}

// Grow enlarges EPHEMERAL, the disk's last partition, to the end of the disk, on the disk and in the kernel. It changes nothing if
// the partition reaches the end already, and refuses a disk on which another partition is the last.
func Grow(class string, s System) (Growth, error) {
	bytes, err := size(class, s.Name)
	if err != nil {
		return Growth{}, err
	}

	sector, err := sectorSize(class, s.Name)
	if err != nil {
		return Growth{}, err
	}

	dev, err := os.OpenFile(s.Device(), os.O_RDWR, 0)
	if err != nil {
		return Growth{}, err
	}
	defer dev.Close()

	g, grown, err := growTable(dev, bytes, int(sector))
	if err != nil || !g.Grown {
		return g, err
	}

	return g, resizeInKernel(dev, s.Partitions[layout.EPHEMERAL].Number, grown)
}

// growTable does it to a partition table in a file or device.
func growTable(dev interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}, size int64, sector int,
) (g Growth, grown gpt.Partition, err error) {
	table, err := gpt.Read(dev, size, sector)
	if err != nil {
		return g, grown, fmt.Errorf("reading the partition table: %w", err)
	}

	before, ok := table.Find(layout.EPHEMERAL)
	if !ok {
		return g, grown, fmt.Errorf("cannot grow partition %s: there is none", layout.EPHEMERAL)
	}

	next, writes, err := table.GrowLast(size)
	if err != nil {
		return g, grown, err
	}

	grown, _ = next.Find(layout.EPHEMERAL)
	g = Growth{Grown: grown.Size > before.Size, Before: before.Size, After: grown.Size, FromBackup: table.FromBackup}

	if last := lastOf(table); last.Name != layout.EPHEMERAL {
		return Growth{}, grown, fmt.Errorf("cannot grow partition %s: %s lies behind it", layout.EPHEMERAL, last.Name)
	}

	for _, w := range writes {
		if _, err := dev.WriteAt(w.Literal, w.Off); err != nil {
			return g, grown, fmt.Errorf("writing the partition table: %w", err)
		}
	}

	return g, grown, dev.Sync()
}

func lastOf(t *gpt.Table) gpt.Partition {
	var last gpt.Partition

	for _, p := range t.Partitions {
		if p.Type != "" && p.Start > last.Start {
			last = p
		}
	}

	return last
}

// resizeInKernel tells the kernel, which does not read the table again while other partitions of the disk are in use
// (BLKPG in linux/blkpg.h; BLKRRPART would be refused).
func resizeInKernel(dev *os.File, number int, p gpt.Partition) error {
	part := unix.BlkpgPartition{Start: p.Start, Length: p.Size, Pno: int32(number)}
	arg := unix.BlkpgIoctlArg{Op: unix.BLKPG_RESIZE_PARTITION, Datalen: int32(unsafe.Sizeof(part)), Data: (*byte)(unsafe.Pointer(&part))}

	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dev.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&arg)))
	if errno != 0 {
		return fmt.Errorf("telling the kernel the new size of %s: %w", p.Name, errno)
	}

	return nil
}

// Runner starts a program and returns what it printed.
type Runner interface {
	Run(ctx context.Context, path string, args ...string) (string, error)
}

var errForeign = errors.New("it holds data that is not XFS")
