//go:build linux

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Content is what a partition holds, as far as it matters for formatting.
type Content int

// The contents.
const (
	Empty      Content = iota // nothing but zeros at its start: may be formatted
	XFS                       // mount it
	Foreign                   // never touch it
	Unfinished                // an XFS whose making was cut short, by a power failure say: nothing was ever on it
)

func (c Content) String() string { return [...]string{"empty", "xfs", "foreign", "unfinished"}[c] }

// probeSize is how much of the start of a partition must be zero for it to count as empty. The superblocks of all common file
// systems, LUKS and LVM headers lie in the first MiB. The image's own partition entries are zero there, while what lies behind the
// image may be left from an earlier use of the disk; mkfs.xfs, which looks there too, refuses what it recognizes.
const probeSize = 1 << 20

// xfsMagic is sb_magicnum (XFS Algorithms & Data Structures, "Superblocks").
var xfsMagic = []byte("XFSB")

// xfsInProgress is the offset of sb_inprogress, a byte that mkfs.xfs sets first and clears when all else is written (likewise). The
// kernel does not mount such a file system.
const xfsInProgress = 126

// Probe looks at the start of a partition.
func Probe(r io.Reader) (Content, error) {
	buf := make([]byte, probeSize)

	n, err := io.ReadFull(r, buf)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Foreign, fmt.Errorf("reading its start: %w", err)
	}

	buf = buf[:n]

	switch {
	case !bytes.HasPrefix(buf, xfsMagic):
	case len(buf) > xfsInProgress && buf[xfsInProgress] != 0:
		return Unfinished, nil
	default:
		return XFS, nil
	}

	if !allZero(buf) {
		return Foreign, nil
	}

	return Empty, nil
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// Format makes an XFS on a partition that is empty, or on which that was begun and not finished. It reports whether it did; a partition with other data is refused.
func Format(ctx context.Context, run Runner, device, label string) (bool, error) {
	dev, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer dev.Close()

	content, err := Probe(dev)
	if err != nil {
		return false, fmt.Errorf("looking at %s: %w", device, err)
	}

	switch content {
	case XFS:
		return false, nil
	case Foreign:
		return false, fmt.Errorf("cannot format %s (%s): %w", device, label, errForeign)
	}

	// -K: no discard of the whole device, which is slow on some disks and was done when the image was written.
	args := []string{"-q", "-K", "-L", label}
	if content == Unfinished {
		args = append(args, "-f") // it would take it for a file system
	}

	if _, err := run.Run(ctx, "/usr/sbin/mkfs.xfs", append(args, device)...); err != nil {
		return false, fmt.Errorf("formatting %s (%s): %w", device, label, err)
	}

	return true, nil
}

// Mount mounts an XFS. A file system that the kernel finds damaged is repaired once; its log is never thrown away.
func Mount(ctx context.Context, run Runner, device, target string, flags uintptr) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}

	err := unix.Mount(device, target, "xfs", flags, "")
	if errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EIO) {
		if _, rerr := run.Run(ctx, "/usr/sbin/xfs_repair", device); rerr != nil {
			return fmt.Errorf("mounting %s at %s: %w; repairing it: %w", device, target, err, rerr)
		}

		err = unix.Mount(device, target, "xfs", flags, "")
	}

	if err != nil {
		return fmt.Errorf("mounting %s at %s: %w", device, target, err)
	}

	return nil
}

// Fill enlarges a mounted XFS to its partition; it does nothing if it fills it.
func Fill(ctx context.Context, run Runner, target string) error {
	if _, err := run.Run(ctx, "/usr/sbin/xfs_growfs", target); err != nil {
		return fmt.Errorf("enlarging the file system at %s: %w", target, err)
	}

	return nil
}
