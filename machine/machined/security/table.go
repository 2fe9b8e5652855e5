//go:build linux

package security

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mappedRoot is the name that /init gives the root's device.
const mappedRoot = "root"

// request is what device-mapper's calls take and fill in: a header, a target and its parameters
// (Linux include/uapi/linux/dm-ioctl.h).
type request struct {
	header unix.DmIoctl
	target unix.DmTargetSpec
	params [2048]byte
}

// table asks for the parameters of a device's one target, which must be of a kind. Without such a device it returns an fs.ErrNotExist.
func table(device, kind string) (params string, err error) {
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()

	var r request
	r.header.Version = [3]uint32{unix.DM_VERSION_MAJOR, 0, 0}
	r.header.Data_size, r.header.Data_start = uint32(unsafe.Sizeof(r)), uint32(unsafe.Offsetof(r.target))
	r.header.Flags = unix.DM_STATUS_TABLE_FLAG
	copy(r.header.Name[:], device)

	_, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), unix.DM_TABLE_STATUS, uintptr(unsafe.Pointer(&r)))

	switch {
	case errno == unix.ENXIO:
		return "", fmt.Errorf("finding mapped device %s: %w", device, fs.ErrNotExist)
	case errno != 0:
		return "", fmt.Errorf("reading the table of mapped device %s: %w", device, errno)
	case r.header.Target_count != 1 || unix.ByteSliceToString(r.target.Target_type[:]) != kind || r.header.Flags&unix.DM_BUFFER_FULL_FLAG != 0:
		return "", fmt.Errorf("cannot use mapped device %s: %d targets, the first is %s", device, r.header.Target_count,
			bytes.TrimRight(r.target.Target_type[:], "\x00"))
	}

	return unix.ByteSliceToString(r.params[:]), nil
}
