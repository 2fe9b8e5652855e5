//go:build linux

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/machine/machined/reaper"
)

// TestMain also is the services' program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "serve":
			fmt.Println("serving")
			time.Sleep(time.Minute)
			os.Exit(0)
		case "fail":
			fmt.Println("cannot serve: no port")
			os.Exit(2)
		case "stubborn":
			signal.Ignore(syscall.SIGTERM)
			fmt.Println("stubborn")
			time.Sleep(time.Minute)
		}
	}

	os.Exit(m.Run())
}

func spec(id, word string, deps ...string) Spec {
	return Spec{
		ID: id, DependsOn: deps, StopTimeout: 200 * time.Millisecond,
		Command: Command{Path: "/proc/self/exe", Argv: []string{id, word}},
	}
}

func newSupervisor(t *testing.T) *Supervisor {
	t.Helper()

	r := reaper.New()
	t.Cleanup(r.Close)

	s := New(r, slog.New(slog.DiscardHandler), nil)
	t.Cleanup(func() { _ = s.StopAll(context.Background()) })

	return s
}

func await(t *testing.T, s *Supervisor, id string, ok func(Status) bool) Status {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	err := s.Await(ctx, ok, id)
	st, _ := s.Status(id)
	if err != nil {
		t.Fatalf("%v; status %+v", err, st)
	}

	return st
}

type found struct{ want, got string }

var errFound = errors.New("found")

func (f *found) Write(p []byte) (int, error) {
	if f.got += string(p); f.got == f.want {
		return 0, errFound
	}

	return len(p), nil
}

func awaitOutput(t *testing.T, s *Supervisor, id, want string) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	output, err := s.Output(id)
	if err != nil {
		t.Fatal(err)
	}

	f := &found{want: want}
	if err := output.Copy(ctx, f, -1, true); !errors.Is(err, errFound) {
		t.Fatalf("output of %s: got %q, want %q", id, f.got, want)
	}
}

func messages(st Status) []string {
	var out []string
	for _, e := range st.Events {
		out = append(out, string(e.State)+": "+e.Message)
	}

	return out
}

func TestKilledServiceIsRestartedWithItsReasonKept(t *testing.T) {
	s := newSupervisor(t)
	s.Add(spec("apid", "serve"))
	if err := s.Start("apid"); err != nil {
		t.Fatal(err)
	}

	first := await(t, s, "apid", Up)
	awaitOutput(t, s, "apid", "serving\n")
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	second := await(t, s, "apid", func(st Status) bool { return st.up() && st.PID != first.PID })
	awaitOutput(t, s, "apid", "serving\nserving\n")
	if second.Restarts != 1 || second.LastExit != "signal: killed" {
		t.Errorf("got %d restarts, last exit %q", second.Restarts, second.LastExit)
	}

	if err := s.Stop(t.Context(), "apid"); err != nil {
		t.Fatal(err)
	}

	st, _ := s.Status("apid")
	want := []string{
		"Initialized: known, not started",
		"Starting: starting apid serve",
		fmt.Sprintf("Running: Process apid started with PID %d", first.PID),
		"Running: Health check successful",
		"Waiting: exited: signal: killed, restarting in 1s (restart 1)",
		"Starting: starting apid serve",
		fmt.Sprintf("Running: Process apid started with PID %d", second.PID),
		"Running: Health check successful",
		fmt.Sprintf("Stopping: stopping PID %d", second.PID),
		"Finished: stopped",
	}
	if diff := cmp.Diff(want, messages(st)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestLimit(t *testing.T) {
	s := newSupervisor(t)
	failing := spec("x", "fail")
	failing.RestartLimit = 1
	s.Add(failing)
	if err := s.Start("x"); err != nil {
		t.Fatal(err)
	}

	st := await(t, s, "x", func(st Status) bool { return st.State == Failed })
	if got, want := messages(st)[len(st.Events)-1], "Failed: exited: exit status 2, not restarted: 1 restarts in a row"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	if err := s.Start("nothing"); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

func TestDependentsWaitForHealth(t *testing.T) {
	s := newSupervisor(t)

	var healthy atomic.Bool

	base := spec("containerd", "serve")
	base.Health = func(context.Context) error {
		if !healthy.Load() {
			return errors.New("no socket")
		}

		return nil
	}
	s.Add(base)
	s.Add(spec("apid", "serve", "containerd"))

	for _, id := range []string{"apid", "containerd"} {
		if err := s.Start(id); err != nil {
			t.Fatal(err)
		}
	}

	await(t, s, "containerd", func(st Status) bool { return st.State == Running })
	if st, _ := s.Status("apid"); st.State != Waiting {
		t.Errorf("apid is %s, want Waiting", st.State)
	}

	healthy.Store(true)
	await(t, s, "apid", Up)
}

func TestStubbornIsKilled(t *testing.T) {
	s := newSupervisor(t)
	s.Add(spec("x", "stubborn"))
	if err := s.Start("x"); err != nil {
		t.Fatal(err)
	}

	await(t, s, "x", Up)
	awaitOutput(t, s, "x", "stubborn\n") // it ignores the signal only from here on
	if err := s.StopAll(t.Context()); err != nil {
		t.Fatal(err)
	}

	st, _ := s.Status("x")
	if !slices.ContainsFunc(messages(st), func(m string) bool { return strings.HasPrefix(m, "Stopping: killing PID") }) || st.State != Finished {
		t.Errorf("got %q", messages(st))
	}
	if err := s.Start("x"); err == nil {
		t.Error("started while the machine is stopping")
	}
}

func TestBackoff(t *testing.T) {
	for n, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1000: time.Minute} {
		if got := backoff(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}

	if restart, delay, now := decide(2*time.Minute, 9, 9); !restart || delay != time.Second || now != 1 {
		t.Error("a healthy time does not reset the count")
	}
	if restart, _, _ := decide(time.Second, 9, 9); restart {
		t.Error("the limit does not hold")
	}
	if restart, _, _ := decide(time.Second, 900, 0); !restart {
		t.Error("without a limit there is one")
	}
}

func TestStopOrder(t *testing.T) {
	got := stopOrder([]Spec{{ID: "containerd"}, {ID: "apid", DependsOn: []string{"containerd"}}, {ID: "trustd", DependsOn: []string{"containerd"}}})
	if diff := cmp.Diff([]string{"trustd", "apid", "containerd"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
