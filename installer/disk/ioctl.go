//go:build linux

package disk

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctlRange calls an ioctl whose argument is an offset and a length.
func ioctlRange(fd int, request uint, off, n int64) error {
	arg := [2]uint64{uint64(off), uint64(n)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(&arg[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
