package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// helperMain is another process that builds in the store named by BUILD_TEST_STORE.
func helperMain(what string) int {
	if err := helper(what, os.Getenv("BUILD_TEST_STORE")); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func helper(what, dir string) error {
	var size int64
	if n, _ := fmt.Sscanf(what, "full %d", &size); n == 1 {
		if err := unix.Mount("small", dir, "tmpfs", 0, "size=24m"); err != nil {
			return err
		}
	}
	s, err := OpenStore(dir)
	if err != nil {
		return err
	}
	x := &LocalExecutor{Store: s}
	if name, ok := strings.CutPrefix(what, "refused "); ok {
		x.Mode = refusals[name].mode
		if err := refusals[name].spoil(); err != nil {
			return err
		}
	}
	e := &Engine{Store: s, Executor: x}
	tree := &Tree{Name: "tool", Spec: []byte("tool 1"), Make: makeToolTree}
	step := toolStep(tree, "shared", "sh", "echo begun", "sleep 700ms", "write /out/o done")
	if size > 0 {
		step = toolStep(tree, "fat", "fill", "/out/o", fmt.Sprint(size))
		step.Inputs = []Input{{Path: "/in", Fetch: testFetch(strings.Repeat("x", 1<<20), nil)}}
		if size == 1 {
			step.Inputs[0].Fetch = testFetch(strings.Repeat("x", 26<<20), nil)
		}
	}
	e.Progress = printer{}
	_, err = e.Build(context.Background(), step)
	fmt.Printf("ran %d cached %d\n", e.Stats().Ran, e.Stats().Cached)
	return err
}

// printer tells the test how far the helper is.
type printer struct{}

func (printer) Event(e Event) { fmt.Printf("%s %s %s\n", e.State, e.Name, e.Log) }

func helperCmd(t *testing.T, what, store string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "BUILD_TEST_HELPER="+what, "BUILD_TEST_STORE="+store)
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

func TestTwoProcessesRunAnActionOnce(t *testing.T) {
	dir := t.TempDir()
	openTestStore(t, dir)
	a, outA := helperCmd(t, "build", dir)
	b, outB := helperCmd(t, "build", dir)
	if err := errors.Join(a.Start(), b.Start()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Wait(), b.Wait()); err != nil {
		t.Fatalf("%v\n%s\n%s", err, outA, outB)
	}
	both := outA.String() + outB.String()
	for _, want := range []string{"ran 1 cached 0", "ran 0 cached 1"} {
		if strings.Count(both, want) != 1 {
			t.Errorf("want one process to have %q:\n%s", want, both)
		}
	}
}

func TestKilledBuildLeavesNothingHalfDone(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := helperCmd(t, "build", dir)
	cmd.Stdout, cmd.Stderr = nil, nil
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen []byte
	for buf := make([]byte, 256); !bytes.Contains(seen, []byte("begun")); {
		n, err := stdout.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen = append(seen, buf[:n]...)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	waitNoTools(t, dir)
	e := newEngine(t, dir)
	left, err := filepath.Glob(filepath.Join(dir, "tmp", "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left in tmp: %v, %v", left, err)
	}
	records, _ := filepath.Glob(filepath.Join(dir, "actions", "*", "*"))
	if len(records) != 0 {
		t.Errorf("a killed action has a record: %v", records)
	}
	s := toolStep(toolTree(t), "shared", "sh", "echo begun", "sleep 700ms", "write /out/o done")
	if got := output(t, e, s); got != "done" {
		t.Errorf("the build after it gives %q", got)
	}
}

func TestFullDiskIsOneClearError(t *testing.T) {
	for name, size := range map[string]int64{"step output": 1 << 30, "fetch": 1} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd, out := helperCmd(t, fmt.Sprintf("full %d", size), dir)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			if err := cmd.Run(); err == nil {
				t.Error("the build did not fail")
			}
			got := out.String()
			got = got[strings.Index(got, "ran 0"):]
			if strings.Count(got, "no space left on device") != 1 {
				t.Errorf("want the reason once:\n%s", got)
			}
		})
	}
}

func TestInterruptedBuild(t *testing.T) {
	e := newEngine(t, t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		// Also shows that toolRuns, which other tests rely on to be false, can be true.
		for ctx.Err() == nil && !toolRuns(t, e.Store.Dir()) {
			time.Sleep(50 * time.Millisecond)
		}
		cancel(errors.New("interrupted"))
	}()
	_, err := e.Build(ctx, toolStep(toolTree(t), "slow", "sh", "child", "sleep 1h"))
	if err == nil || err.Error() != "interrupted" {
		t.Errorf("got %v, want the cause alone", err)
	}
	waitNoTools(t, e.Store.Dir())
	left, err := os.ReadDir(e.Store.path("tmp"))
	if err != nil || len(left) != 0 {
		t.Errorf("left in tmp: %v, %v", left, err)
	}
}

func TestGCTakesNothingThatIsHeld(t *testing.T) {
	dir := t.TempDir()
	e := newEngine(t, dir)
	_, second := chain(toolTree(t), nil)
	output(t, e, second)
	e.Store.Close()

	building := openTestStore(t, dir)
	other := openTestStore(t, dir)
	if _, err := other.GC(t.Context(), GCOptions{MaxSize: 1}); !errors.Is(err, ErrBusy) {
		t.Errorf("gc beside a build gives %v, want ErrBusy", err)
	}
	building.Close()
	_, release, err := (&Engine{Store: other}).MakeTree(t.Context(), toolTree(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.GC(t.Context(), GCOptions{MaxSize: 1}); !errors.Is(err, ErrBusy) {
		t.Errorf("gc beside a build of its own process gives %v, want ErrBusy", err)
	}
	release()
	report, err := other.GC(t.Context(), GCOptions{MaxAge: time.Hour})
	if err != nil || report.Removed != 0 || report.Kept == 0 {
		t.Errorf("gc of a fresh store: %+v, %v", report, err)
	}
	report, err = other.GC(t.Context(), GCOptions{MaxSize: 1})
	if err != nil || report.Kept != 0 || report.RemovedBytes == 0 {
		t.Errorf("gc of everything: %+v, %v", report, err)
	}
	if got := output(t, &Engine{Store: other, Executor: &LocalExecutor{Store: other}}, second); got != "fetchedfetched" {
		t.Errorf("build after gc gives %q", got)
	}
}

func TestGCKeepsWhatWasUsedLast(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	old, err := s.Put(strings.NewReader("old"))
	if err != nil {
		t.Fatal(err)
	}
	recent, err := s.Put(strings.NewReader("recent"))
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-48 * time.Hour)
	for _, b := range []Blob{old, recent} {
		if err := os.Chtimes(s.sealPath(b.Digest), past, past); err != nil {
			t.Fatal(err)
		}
	}
	s.verified = map[Digest]stamp{} // as in a later process
	if f, err := s.Open(recent.Digest); err != nil {
		t.Fatal(err)
	} else {
		f.Close()
	}
	if _, err := s.GC(t.Context(), GCOptions{MaxAge: 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	if s.Has(old) || !s.Has(recent) {
		t.Errorf("has old: %v, has recent: %v", s.Has(old), s.Has(recent))
	}
}

func TestStoreOfAnotherVersionIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "version"), []byte("talos-factory store 9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(dir); err == nil || !strings.Contains(err.Error(), "cannot use it: its version is") {
		t.Errorf("got %v", err)
	}
}

func TestRememberAsksOnce(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	asked := 0
	for i := range 3 {
		if i == 2 { // damage is a miss
			paths, _ := filepath.Glob(s.path("memo", "*", "*"))
			for _, p := range paths {
				if err := os.Truncate(p, 70); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := s.Remember("double 1", Sum([]byte("x")), func() ([]byte, error) {
			asked++
			return []byte("a fact of some length"), nil
		})
		if err != nil || string(got) != "a fact of some length" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want once and once after the damage", asked)
	}
}

func TestBytesReadCountsOpenedBlobs(t *testing.T) {
	s := openTestStore(t, t.TempDir())
	b, err := s.Put(io.LimitReader(bytes.NewReader(make([]byte, 5000)), 5000))
	if err != nil {
		t.Fatal(err)
	}
	if f, err := s.Open(b.Digest); err == nil {
		f.Close()
	}
	if got := s.BytesRead(); got != b.Size {
		t.Errorf("%d bytes read, want %d", got, b.Size)
	}
	if _, err := s.Open(Sum([]byte("nothing"))); !errors.Is(err, ErrMissing) {
		t.Errorf("got %v, want ErrMissing", err)
	}
}
