//go:build linux

package reaper

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain also is the children's program: the test binary with one of these words.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "ok":
			os.Exit(0)
		case "three":
			os.Exit(3)
		case "sleep":
			time.Sleep(time.Minute)
			os.Exit(0)
		case "status":
			b, _ := os.ReadFile("/proc/self/status")
			_, _ = os.Stdout.Write(b)
			os.Exit(0)
		case "orphan": // a child that outlives its parent
			_, _ = os.StartProcess("/proc/self/exe", []string{"x", "ok"}, &os.ProcAttr{})
			os.Exit(0)
		}
	}

	os.Exit(m.Run())
}

func newReaper(t *testing.T) *Reaper {
	t.Helper()

	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}

	r := New()
	t.Cleanup(r.Close)

	return r
}

func TestStatus(t *testing.T) {
	r := newReaper(t)

	for word, want := range map[string]string{"ok": "", "three": "exit status 3"} {
		got := ""
		if _, err := r.Run(t.Context(), "/proc/self/exe", word); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

func TestKilled(t *testing.T) {
	r := newReaper(t)

	child, err := r.Start("/proc/self/exe", []string{"x", "sleep"}, &os.ProcAttr{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-child.Done()
	if got, want := child.Err().Error(), "signal: killed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := child.Signal(0); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal after the end: got %v", err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Run(ctx, "/proc/self/exe", "sleep"); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("run with an ended context: got %v", err)
	}
}

func TestOrphansAreReapedAndOwnStatusesKept(t *testing.T) {
	r := newReaper(t)

	const n = 20

	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := r.Run(t.Context(), "/proc/self/exe", "orphan"); err != nil {
				t.Error(err)
			}
			if _, err := r.Run(t.Context(), "/proc/self/exe", "three"); err == nil || !strings.Contains(err.Error(), "exit status 3") {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()

	deadline := time.Now().Add(10 * time.Second)
	for r.Orphans() < n && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if got := r.Orphans(); got < n {
		t.Errorf("got %d orphans waited for, want %d", got, n)
	}
}

func TestNoNewPrivileges(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("dropping the bounding set needs root")
	}

	r := newReaper(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	child, err := r.Start("/proc/self/exe", []string{"x", "status"}, &os.ProcAttr{
		Files: []*os.File{nil, write, nil},
		Sys:   &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 50, Gid: 50}},
	}, Options{NoNewPrivileges: true})
	if err != nil {
		t.Fatal(err)
	}
	write.Close()

	buf := make([]byte, 8192)
	n, _ := read.Read(buf)
	<-child.Done()

	for _, want := range []string{"NoNewPrivs:\t1", "CapBnd:\t0000000000000000", "CapEff:\t0000000000000000", "Uid:\t50\t50"} {
		if !strings.Contains(string(buf[:n]), want) {
			t.Errorf("the child's status has no %q:\n%s", want, buf[:n])
		}
	}

	own, _ := os.ReadFile("/proc/thread-self/status")
	if strings.Contains(string(own), "NoNewPrivs:\t1") {
		t.Error("the restriction leaked to this process")
	}
}
