//go:build vm || long

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/talos-factory/talos-factory/factory/vm"
)

// machine is a virtual machine under test.
type machine struct {
	t       *testing.T
	console *console
	address string // of the API on this host
	config  string // folder with what talosctl gen config wrote
	done    chan error
	started time.Time
}

// start boots the image file with the firmware on a disk of its own, and prints the console if the test fails. forward
// adds ports of this host to the API's.
func start(t *testing.T, firmware vm.Firmware, diskSize int64, forward map[int]int) *machine {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk")
	if err := vm.NewDisk(disk, imageFile(t), diskSize); err != nil {
		t.Fatal(err)
	}
	return boot(t, vm.Machine{Firmware: firmware, Drives: []vm.Drive{{File: disk}}, Forward: forward})
}

// boot starts a machine that has nothing but the drives named; beside the forwarded ports its API is reached.
func boot(t *testing.T, hardware vm.Machine) *machine {
	t.Helper()
	port := freePort(t)
	m := &machine{t: t, console: newConsole(), address: fmt.Sprintf("127.0.0.1:%d", port), config: t.TempDir(), done: make(chan error, 1), started: time.Now()}
	ports := map[int]int{port: 50000}
	maps.Copy(ports, hardware.Forward)
	hardware.Forward, hardware.Console = ports, m.console
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		m.done <- m.power(ctx, hardware)
		m.console.close()
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-m.done:
		case <-time.After(30 * time.Second):
			t.Error("QEMU did not end within 30 s of being told to")
		}
		if t.Failed() {
			t.Logf("console of the machine:\n%s", m.console)
		}
	})
	return m
}

// power runs the machine until it is off. QEMU's emulation on several threads now and then loses the timer interrupt of a halted
// CPU (the kernel says so, and nothing goes on from there), or aborts itself. Such a machine is switched on again: it says nothing about
// the image.
func (m *machine) power(ctx context.Context, hardware vm.Machine) error {
	for attempt := 1; ; attempt++ {
		run, off := context.WithCancel(ctx)
		m.console.onLostTimer(off)
		err := vm.Run(run, engine, qemu, hardware)
		broken := ctx.Err() == nil && (run.Err() != nil || err != nil && emulatorAborted.MatchString(m.console.String()))
		off()
		if !broken || attempt == 3 {
			return err
		}
		fmt.Fprintf(m.console, "\ne2e: the emulator failed (attempt %d): switching the machine on again\n", attempt)
	}
}

// emulatorAborted is what QEMU prints last when one of its own assertions fails.
var emulatorAborted = regexp.MustCompile(`qemu-system-\S+: \S+: \S+: Assertion .* failed\.\s*$`)

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// talosctl runs the client against the machine and returns what it printed.
func (m *machine) talosctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, talosctlFile, args...)
	cmd.Env = append(os.Environ(), "TALOSCONFIG="+filepath.Join(m.config, "talosconfig"))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("talosctl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), err
}

// insecure are the flags of a call in maintenance mode.
func (m *machine) insecure(args ...string) []string {
	return append([]string{"--nodes", m.address, "--insecure"}, args...)
}

// secure are the flags of a call over mutual TLS.
func (m *machine) secure(args ...string) []string {
	return append([]string{"--endpoints", m.address, "--nodes", "127.0.0.1"}, args...)
}

// must runs a call that has to succeed.
func (m *machine) must(args []string) string {
	m.t.Helper()
	out, err := m.talosctl(args...)
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// refused runs a call that has to fail with a text.
func (m *machine) refused(want string, args []string) {
	m.t.Helper()
	out, err := m.talosctl(args...)
	if err == nil {
		m.t.Fatalf("talosctl %q was answered: %s", args, out)
	}
	if !strings.Contains(err.Error(), want) {
		m.t.Errorf("talosctl %q failed with %v, want a text with %q", args, err, want)
	}
}

// eventually repeats a call until it succeeds and its output satisfies ok. It gives up at the deadline, or at once when
// the kernel panics or the machine stops.
func (m *machine) eventually(limit time.Duration, what string, args []string, ok func(string) bool) string {
	m.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		out, err := m.talosctl(args...)
		if err == nil && ok(out) {
			return out
		}
		m.alive(what)
		if time.Now().After(deadline) {
			m.t.Fatalf("waiting %v for %s: last answer %q, error %v", limit, what, out, err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func (m *machine) alive(what string) {
	m.t.Helper()
	if reason := m.console.panicked(); reason != "" {
		m.t.Fatalf("waiting for %s: the machine failed: %s", what, reason)
	}
	select {
	case err := <-m.done:
		m.done <- err
		m.t.Fatalf("waiting for %s: the machine stopped: %v", what, err)
	default:
	}
}

// waitOff waits for the machine to power off by itself.
func (m *machine) waitOff(limit time.Duration) {
	m.t.Helper()
	select {
	case err := <-m.done:
		m.done <- err
		if err != nil {
			m.t.Errorf("QEMU ended with %v", err)
		}
	case <-time.After(limit):
		m.t.Fatalf("the machine did not power off within %v", limit)
	}
}

// console collects what the machine prints.
type console struct {
	mu     sync.Mutex
	text   bytes.Buffer
	change chan struct{} // closed and renewed on each write
	closed bool
	lost   func() // called when the kernel misses its timer
}

func newConsole() *console { return &console{change: make(chan struct{})} }

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.change)
	c.change = make(chan struct{})
	n, err := c.text.Write(b)
	if tail := c.text.Bytes(); c.lost != nil && bytes.Contains(tail[max(0, len(tail)-n-len(lostTimer)):], []byte(lostTimer)) {
		c.lost()
		c.lost = nil
	}
	return n, err
}

// lostTimer is what the kernel says when a timer it has set does not fire (Linux kernel/rcu/tree_stall.h).
const lostTimer = "kthread timer wakeup didn't happen"

// onLostTimer has f called once when the kernel misses its timer.
func (c *console) onLostTimer(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = f
}

func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		close(c.change)
	}
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

var panics = regexp.MustCompile(`Kernel panic - not syncing.*|machined: fatal.*|init: fatal.*`)

func (c *console) panicked() string { return panics.FindString(c.String()) }

// wait returns the submatches of the first match of pattern in what was printed after position from.
func (c *console) wait(pattern *regexp.Regexp, from int, limit time.Duration) ([]string, error) {
	timeout := time.After(limit)
	for {
		c.mu.Lock()
		match, change, closed := pattern.FindStringSubmatch(c.text.String()[from:]), c.change, c.closed
		c.mu.Unlock()
		switch {
		case match != nil:
			return match, nil
		case c.panicked() != "":
			return nil, errors.New(c.panicked())
		case closed:
			return nil, fmt.Errorf("the console ended without %q", pattern)
		}
		select {
		case <-change:
		case <-timeout:
			return nil, fmt.Errorf("nothing like %q on the console within %v", pattern, limit)
		}
	}
}
