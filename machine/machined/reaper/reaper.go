//go:build linux

// Package reaper is the one place where a PID 1 starts processes and waits for them.
//
// PID 1 must wait for every orphan of the machine, and a wait for "any child" also takes the exit status of children that someone
// else in the program waits for. So machined starts nothing by os/exec: it starts through a Reaper, which knows its own children
// by pid, hands each its status and discards the rest.
//
// It does not restart, log or time out anything.
package reaper

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper waits for all children of this process. Only one may run in a process.
type Reaper struct {
	// mu is held while a child is started, so that its end is never seen before it is in children, and while one is
	// waited for, so that a signal never goes to a pid that was given to another process.
	mu       sync.Mutex
	children map[int]*Child

	orphans atomic.Int64
	wake    chan os.Signal
	stop    chan struct{}
	stopped chan struct{}
}

// Child is a process started by a Reaper.
type Child struct {
	PID int

	reaper *Reaper
	done   chan struct{}
	status syscall.WaitStatus // valid once done is closed
}

// New starts waiting. Close ends it.
func New() *Reaper {
	r := &Reaper{
		children: map[int]*Child{},
		wake:     make(chan os.Signal, 1),
		stop:     make(chan struct{}),
		stopped:  make(chan struct{}),
	}

	signal.Notify(r.wake, unix.SIGCHLD)

	go r.run()

	return r
}

// Close stops waiting; children that still run are nobody's then.
func (r *Reaper) Close() {
	signal.Stop(r.wake)
	close(r.stop)
	<-r.stopped
}

// Orphans is how many processes were waited for that this reaper did not start.
func (r *Reaper) Orphans() int64 { return r.orphans.Load() }

func (r *Reaper) run() {
	defer close(r.stopped)

	for {
		r.reap()

		select {
		case <-r.wake: // signals merge, so reap takes all that ended
		case <-r.stop:
			return
		}
	}
}

func (r *Reaper) reap() {
	for {
		r.mu.Lock()

		var status syscall.WaitStatus

		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			r.mu.Unlock()

			continue
		}

		child := r.children[pid]
		if child != nil {
			delete(r.children, pid)
			child.status = status
			close(child.done)
		}

		r.mu.Unlock()

		if err != nil || pid <= 0 {
			return // no child, or none that ended
		}

		if child == nil {
			r.orphans.Add(1)
		}
	}
}

// Options are what os.ProcAttr has no field for.
type Options struct {
	// NoNewPrivileges sets the process attribute of that name (Documentation/userspace-api/no_new_privs.rst) and empties the
	// capability bounding set, so that neither a setuid file nor file capabilities give anything back.
	NoNewPrivileges bool
}

// Start starts a program.
func (r *Reaper) Start(path string, argv []string, attr *os.ProcAttr, opts Options) (*Child, error) {
	if !opts.NoNewPrivileges {
		return r.start(path, argv, attr)
	}

	type result struct {
		child *Child
		err   error
	}

	results := make(chan result)

	go func() {
		// These attributes belong to a thread and the child takes them from the thread that forks. The goroutine ends without
		// UnlockOSThread, so the runtime throws the restricted thread away.
		runtime.LockOSThread()

		if err := restrictThread(); err != nil {
			results <- result{nil, err}

			return
		}

		child, err := r.start(path, argv, attr)
		results <- result{child, err}
	}()

	res := <-results

	return res.child, res.err
}

func (r *Reaper) start(path string, argv []string, attr *os.ProcAttr) (*Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	process, err := os.StartProcess(path, argv, attr)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}

	child := &Child{PID: process.Pid, reaper: r, done: make(chan struct{})}
	r.children[child.PID] = child

	return child, process.Release()
}

func restrictThread() error {
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("dropping capability %d: %w", c, err)
		}
	}

	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}

	return nil
}

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Signal sends a signal; os.ErrProcessDone if the process has ended.
func (c *Child) Signal(s syscall.Signal) error {
	c.reaper.mu.Lock()
	defer c.reaper.mu.Unlock()

	select {
	case <-c.done:
		return os.ErrProcessDone
	default:
	}

	return syscall.Kill(c.PID, s)
}

// Err says, once Done is closed, how the process ended: nil for exit status 0.
func (c *Child) Err() error {
	switch status := c.status; {
	case status.Signaled():
		return fmt.Errorf("signal: %s", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", status.ExitStatus())
	default:
		return nil
	}
}
