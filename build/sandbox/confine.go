package sandbox

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// confine restricts this thread, and by that the command it will start. Name and limits
// belong to the whole process and are inherited as well.
func confine() error {
	if err := unix.Sethostname([]byte(Hostname)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := unix.Setdomainname([]byte("(none)")); err != nil {
		return fmt.Errorf("setting the domain name: %w", err)
	}
	if err := limit(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the reaper: %w", err)
	}
	// uid 0 gains at exec whatever the bounding set leaves: nothing.
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			break // past the last capability of this kernel
		}
		if err != nil {
			return fmt.Errorf("dropping capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	filter := seccompFilter()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("setting the seccomp filter: %w", err)
	}
	return nil
}

// limit sets the limits that would otherwise differ from host to host. They can only
// be lowered, so a host may still have less.
func limit() error {
	limits := []struct {
		name     string
		resource int
		soft     uint64
	}{
		{"core size", unix.RLIMIT_CORE, 0},
		{"open files", unix.RLIMIT_NOFILE, 65536},
		{"stack", unix.RLIMIT_STACK, 8 << 20},
	}
	for _, l := range limits {
		var r syscall.Rlimit
		if err := syscall.Getrlimit(l.resource, &r); err != nil {
			return fmt.Errorf("reading the limit of %s: %w", l.name, err)
		}
		r.Cur = min(l.soft, r.Max)
		if l.resource != unix.RLIMIT_STACK {
			r.Max = r.Cur
		}
		// Not package unix: syscall must know, or it gives children the limit it once found.
		if err := syscall.Setrlimit(l.resource, &r); err != nil {
			return fmt.Errorf("setting the limit of %s: %w", l.name, err)
		}
	}
	return nil
}
