//go:build linux

package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Message is one record of the kernel log.
type Message struct {
	Facility, Priority int
	Sequence           int64
	Since              time.Duration // since boot
	Text               string
}

// priorities and facilities as dmesg(1) names them (RFC 5424 6.2.1).
var (
	priorities = [...]string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}
	facilities = [...]string{"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"}
)

// Parse reads one record as /dev/kmsg gives it (Documentation/ABI/testing/dev-kmsg):
// "prefix,sequence,microseconds,flags[,...];text\n KEY=value\n".
func Parse(record string) (Message, error) {
	head, text, ok := strings.Cut(record, ";")
	if !ok {
		return Message{}, fmt.Errorf("kernel log record %.40q has no text", record)
	}

	fields := strings.Split(head, ",")
	if len(fields) < 3 {
		return Message{}, fmt.Errorf("kernel log record %.40q has %d fields, want at least 3", record, len(fields))
	}

	var n [3]int64

	for i := range n {
		v, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil || v < 0 {
			return Message{}, fmt.Errorf("kernel log record %.40q: field %d is not a number", record, i+1)
		}

		n[i] = v
	}

	text, _, _ = strings.Cut(text, "\n")

	return Message{
		Facility: int(n[0] >> 3), Priority: int(n[0] & 7), Sequence: n[1],
		Since: time.Duration(n[2]) * time.Microsecond, Text: text,
	}, nil
}

// Format is the line the API's Dmesg gives, with the time of day reckoned from the time of boot.
func (m Message) Format(boot time.Time) string {
	facility := strconv.Itoa(m.Facility)
	if m.Facility < len(facilities) {
		facility = facilities[m.Facility]
	}

	return fmt.Sprintf("%s: %7s: [%s]: %s\n", facility, priorities[m.Priority], boot.Add(m.Since).UTC().Format(time.RFC3339Nano), m.Text)
}

// BootTime reckons when the kernel's log clock was zero.
func BootTime() (time.Time, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return time.Time{}, fmt.Errorf("reading the monotonic clock: %w", err)
	}

	return time.Now().Add(-time.Duration(now.Nano())), nil
}

// Read gives every record of the kernel log to f: those that exist and, with follow, those to come until ctx ends. With tail, only
// records written after the call.
func Read(ctx context.Context, follow, tail bool, f func(Message) error) error {
	dev, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer dev.Close()

	if tail {
		if _, err := dev.Seek(0, io.SeekEnd); err != nil {
			return fmt.Errorf("going to the end of the kernel log: %w", err)
		}
	}

	raw, err := dev.SyscallConn()
	if err != nil {
		return err
	}

	stop := context.AfterFunc(ctx, func() { _ = dev.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	buf := make([]byte, 8192) // CONSOLE_EXT_LOG_MAX

	for ctx.Err() == nil {
		n, err := readRecord(raw, buf, follow)

		switch {
		case errors.Is(err, unix.EPIPE): // records were overwritten before they were read; the next read goes on with the oldest
			continue
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("reading the kernel log: %w", err)
		}

		m, err := Parse(string(buf[:n]))
		if err != nil {
			return err
		}

		if err := f(m); err != nil {
			return err
		}
	}

	return nil
}

// readRecord reads by system call, because every read is one record and os.File turns EAGAIN into a wait.
func readRecord(raw interface {
	Read(f func(fd uintptr) bool) error
}, buf []byte, follow bool,
) (n int, err error) {
	rerr := raw.Read(func(fd uintptr) bool {
		n, err = unix.Read(int(fd), buf)

		return !follow || !errors.Is(err, unix.EAGAIN)
	})
	if rerr != nil {
		return 0, rerr
	}

	return n, err
}
