//go:build linux

package disk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Wait is Find that, as long as there is no such disk, waits for one to appear until ctx ends. Drivers find disks at their own
// pace; the kernel tells of each through its device events.
func Wait(ctx context.Context, class string) (System, error) {
	events, err := newDeviceEvents()
	if err != nil {
		return System{}, err
	}
	defer events.close()

	for {
		s, err := Find(class)
		if !errors.Is(err, ErrNone) {
			return s, err
		}

		if ctx.Err() != nil {
			return s, err
		}

		if err := events.next(ctx); err != nil {
			return s, err
		}
	}
}

// deviceEvents receives the kernel's uevents (netlink(7), NETLINK_KOBJECT_UEVENT). What they say does not matter here.
type deviceEvents struct{ fd int }

func newDeviceEvents() (*deviceEvents, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("opening the device event socket: %w", err)
	}

	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		unix.Close(fd)

		return nil, fmt.Errorf("binding the device event socket: %w", err)
	}

	return &deviceEvents{fd}, nil
}

func (d *deviceEvents) close() { unix.Close(d.fd) }

// next waits for an event and takes those that came with it; it returns without an error at the end of ctx too.
func (d *deviceEvents) next(ctx context.Context) error {
	timeout := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(0, time.Until(deadline))
	}

	fds := []unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, int(timeout.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("waiting for device events: %w", err)
	}

	buf := make([]byte, 8192)

	for {
		_, _, err := unix.Recvfrom(d.fd, buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}

		if err != nil && !errors.Is(err, unix.ENOBUFS) { // events were lost; the scan that follows sees all
			return fmt.Errorf("reading device events: %w", err)
		}
	}
}
