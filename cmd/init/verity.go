//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/format/verity/superblock"
)

// mapped is the name of the verified root among device-mapper's devices.
const mapped = "root"

// rootHash finds the root hash among the kernel's arguments. Whoever could add a second one could say what is believed, so there
// may be one; words inside of quotes count, too.
func rootHash(cmdline string) (hash [superblock.HashSize]byte, given bool, err error) {
	for _, word := range strings.Fields(cmdline) {
		value, ok := strings.CutPrefix(strings.Trim(word, `"`), superblock.Argument+"=")
		if !ok {
			continue
		}

		if given {
			return hash, true, errors.New("cannot tell what to believe: " + superblock.Argument + " is given twice")
		}

		given = true
		if hash, err = superblock.ParseHash(value); err != nil {
			return hash, true, err
		}
	}

	return hash, given, nil
}

// readSuperblock finds the superblock of the hash tree behind a squashfs, which says its own size at byte 40
// (Linux fs/squashfs/squashfs_fs.h, struct squashfs_super_block). Nothing read here is believed before the kernel
// has verified it by the root hash.
func readSuperblock(image io.ReaderAt) (superblock.Superblock, error) {
	head := make([]byte, 48)
	if _, err := image.ReadAt(head, 0); err != nil {
		return superblock.Superblock{}, err
	}

	used := binary.LittleEndian.Uint64(head[40:])
	if string(head[:4]) != "hsqs" || used == 0 || used > 1<<40 {
		return superblock.Superblock{}, errors.New("it is no squashfs")
	}

	at := superblock.Offset(int64(used))

	b := make([]byte, superblock.Size)
	if _, err := image.ReadAt(b, at); err != nil {
		return superblock.Superblock{}, fmt.Errorf("reading the hash tree: %w", err)
	}

	s, err := superblock.Parse(b)
	if err != nil {
		return s, err
	}

	if s.DataBlocks != uint64(at/superblock.BlockSize) {
		return s, fmt.Errorf("cannot use a hash tree over %d blocks for a squashfs of %d bytes", s.DataBlocks, used)
	}

	return s, nil
}

// verify makes a device of which every block is what the root hash vouches for: reading another panics the kernel.
func verify(file, loop string, hash [superblock.HashSize]byte) (device string, err error) {
	image, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer image.Close()

	s, err := readSuperblock(image)
	if err != nil {
		return "", fmt.Errorf("verifying %s: %w", file, err)
	}

	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()

	minor, err := mapDevice(control, "verity", s.Target(loop, hash))
	if err != nil {
		return "", fmt.Errorf("verifying %s: %w", file, err)
	}

	return fmt.Sprintf("/dev/dm-%d", minor), nil
}

// request is what device-mapper's calls take: a header, a target and its parameters (Linux include/uapi/linux/dm-ioctl.h).
type request struct {
	header unix.DmIoctl
	target unix.DmTargetSpec
	params [2048]byte
}

// mapDevice creates a read-only device of one target: it is created, given its table, and resumed, since it begins suspended.
func mapDevice(control *os.File, kind string, target superblock.Target) (minor uint32, err error) {
	for _, call := range []struct {
		name    string
		number  uintptr
		flags   uint32
		targets uint32
	}{
		{"creating a mapped device", unix.DM_DEV_CREATE, 0, 0},
		{"loading its table", unix.DM_TABLE_LOAD, unix.DM_READONLY_FLAG, 1},
		{"resuming it", unix.DM_DEV_SUSPEND, 0, 0},
	} {
		var r request
		r.header.Version = [3]uint32{unix.DM_VERSION_MAJOR, 0, 0}
		r.header.Data_size, r.header.Data_start = uint32(unsafe.Sizeof(r)), uint32(unsafe.Offsetof(r.target))
		r.header.Flags, r.header.Target_count = call.flags, call.targets
		r.target.Length = target.Sectors

		if len(target.Params) >= len(r.params) {
			return 0, fmt.Errorf("%s: cannot pass %d bytes of parameters", call.name, len(target.Params))
		}

		copy(r.header.Name[:], mapped)
		copy(r.target.Target_type[:], kind)
		copy(r.params[:], target.Params)

		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), call.number, uintptr(unsafe.Pointer(&r))); errno != 0 {
			return 0, fmt.Errorf("%s: %w", call.name, errno)
		}

		minor = unix.Minor(r.header.Dev)
	}

	return minor, nil
}
