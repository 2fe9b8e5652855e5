//go:build linux

// Package kmsg writes the machine's own log lines to the kernel log and reads the kernel log for those who ask for dmesg.
//
// The kernel log is also what the console shows, so there is no other console writer, unless the console's level hides information
// lines (the `quiet` kernel argument): then they go to /dev/console as well. It keeps no history itself.
package kmsg

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
)

// maxLine is below the kernel's limit for one record with its prefix (PRINTK_MESSAGE_MAX, kernel/printk/printk.c: longer writes
// to /dev/kmsg are refused with EINVAL).
const maxLine = 900

// syslog levels, RFC 5424 6.2.1.
const (
	levelError = 3
	levelWarn  = 4
	levelInfo  = 6
	levelDebug = 7
)

// Open returns a handler that writes records to the kernel log under the given program name.
func Open(name string) (*Handler, error) {
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}

	h := &Handler{shared: &sink{kmsg: f}, name: name}

	if consoleHides(levelInfo) {
		if h.shared.console, err = os.OpenFile("/dev/console", os.O_WRONLY, 0); err != nil {
			h.shared.console = nil // a machine without a console is fine
		}
	}

	return h, nil
}

// New returns a handler that writes to w what Open's writes to the kernel log.
func New(w io.Writer, name string) *Handler { return &Handler{shared: &sink{kmsg: w}, name: name} }

func consoleHides(level int) bool {
	b, err := os.ReadFile("/proc/sys/kernel/printk")
	if err != nil {
		return false
	}

	fields := strings.Fields(string(b))
	if len(fields) == 0 {
		return false
	}

	shown, err := strconv.Atoi(fields[0])

	return err == nil && level >= shown
}

type sink struct {
	mu      sync.Mutex
	kmsg    io.Writer
	console io.Writer
}

// Handler is a slog.Handler whose lines are "name: message key=value ...", one kernel record each.
type Handler struct {
	shared *sink
	name   string
	attrs  string
}

// Enabled leaves out debugging lines: the console is slow.
func (h *Handler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	for _, a := range attrs {
		next.attrs += formatAttr(a)
	}

	return &next
}

// WithGroup implements slog.Handler; groups are not shown, because nobody here uses them.
func (h *Handler) WithGroup(string) slog.Handler { return h }

// Handle implements slog.Handler.
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder

	text.WriteString(h.name + ": " + r.Message + h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		text.WriteString(formatAttr(a))

		return true
	})

	return h.shared.write(severity(r.Level), text.String())
}

func (s *sink) write(level int, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, line := range split(text) {
		if _, err := fmt.Fprintf(s.kmsg, "<%d>%s\n", level, line); err != nil {
			return err
		}

		if s.console != nil {
			fmt.Fprintf(s.console, "%s\r\n", line)
		}
	}

	return nil
}

func severity(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return levelError
	case l >= slog.LevelWarn:
		return levelWarn
	case l >= slog.LevelInfo:
		return levelInfo
	default:
		return levelDebug
	}
}

func formatAttr(a slog.Attr) string {
	v := a.Value.Resolve().String()
	if v == "" || strings.ContainsAny(v, " \t\n\"") {
		v = strconv.Quote(v)
	}

	return " " + a.Key + "=" + v
}

// split makes kernel records of a text: one a line, long lines cut.
func split(text string) []string {
	var out []string

	for _, line := range bytes.Split(bytes.TrimRight([]byte(text), "\n"), []byte("\n")) {
		for len(line) > maxLine {
			out = append(out, string(line[:maxLine]))
			line = line[maxLine:]
		}

		out = append(out, string(line))
	}

	return out
}
