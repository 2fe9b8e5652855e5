package build

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/build/sandbox"
	"golang.org/x/sys/unix"
)

func output(t *testing.T, e *Engine, s *Step) string {
	t.Helper()
	got, err := e.Build(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return content(t, e.Store, got[s].Outputs["o"])
}

func TestSandboxSeesOnlyItsInputs(t *testing.T) {
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Fatal("this test is about a file that this host lacks")
	}
	want := `read /etc/passwd: ENOENT
write /new: EROFS
write /bin/new: EROFS
write /dev/new: EROFS
write /build/new: allowed
write /out/new: allowed
write /tmp/new: allowed
open core_pattern: refused
open /proc/self/comm: EROFS
open /proc/self/oom_score_adj: EROFS
open /proc/mtrr: EROFS
kcore 0 bytes
kpageflags 0 bytes
timer_list 0 bytes
unshare: EPERM
mount: EPERM
ptrace: EPERM
vsock: EPERM
sethostname: EPERM
chown: EINVAL
connect outside: ENETUNREACH
connect loopback: allowed
hostname factory, uid 0, gid 0, ppid 1, umask 022
link lo
/bin
/build
/dev
/out
/proc
/tmp
CapEff:	0000000000000000
CapBnd:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
stdin 0 bytes
`
	leak, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0) // as a shell's "9</etc/passwd" leaves it: open at exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	e := newEngine(t, t.TempDir())
	got := output(t, e, toolStep(toolTree(t), "probe", "probe", "/out/o"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the sandbox from inside (-want +got):\n%s", diff)
	}
}

func TestReadingHostFileFails(t *testing.T) {
	e := newEngine(t, t.TempDir())
	_, err := e.Build(t.Context(), toolStep(toolTree(t), "spy", "cat", "/out/o", "/etc/passwd"))
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 3 || !strings.Contains(err.Error(), "/etc/passwd: no such file") {
		t.Errorf("got %v, want exit status 3 and the tool's own words", err)
	}
}

func TestEnvironmentIsExactlyTheGiven(t *testing.T) {
	t.Setenv("SECRET", "host")
	e := newEngine(t, t.TempDir())
	s := toolStep(toolTree(t), "env", "env", "/out/o")
	s.Env = map[string]string{"PATH": "/bin", "B": "2", "A": "1 = 1"}
	if got, want := output(t, e, s), "A=1 = 1\nB=2\nPATH=/bin"; got != want {
		t.Errorf("environment is %q, want %q", got, want)
	}
}

func TestInputsOfEveryKind(t *testing.T) {
	e := newEngine(t, t.TempDir())
	tree := toolTree(t)
	data := &Tree{Name: "data", Spec: []byte("data"), Make: func(_ context.Context, dir string, _ func(Digest) (*os.File, error)) error {
		// Links in a tree must not lead mount points out of the sandbox.
		return errors.Join(os.WriteFile(filepath.Join(dir, "file"), []byte("tree "), 0o600), os.Symlink("/tmp", filepath.Join(dir, "link")))
	}}
	host := filepath.Join(t.TempDir(), "host")
	if err := os.WriteFile(host, []byte("host "), 0o600); err != nil {
		t.Fatal(err)
	}
	first := toolStep(tree, "first", "write", "/out/o", "step")
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	s := toolStep(tree, "second", "cat", "/out/o", "/data/file", "/build/sub/bytes", "/data/new/host", "/data/fetch", "/tmp/linked", "/step")
	s.Argv[0] = "/build/sub/tool"
	s.Mounts = append(s.Mounts, Mount{"/data", data})
	s.Inputs = []Input{
		{Path: "/build/sub/tool", Bytes: exe, Executable: true},
		{Path: "/build/sub/bytes", Bytes: []byte("bytes ")},
		{Path: "/data/new/host", HostFile: host},
		{Path: "/data/fetch", Fetch: testFetch("fetch ", nil)},
		{Path: "/data/link/linked", Bytes: []byte("linked ")},
		{Path: "/step", Output: &OutputRef{first, "o"}},
	}
	if got, want := output(t, e, s), "tree bytes host fetch linked step"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := os.Stat("/tmp/linked"); err == nil {
		t.Error("a link in a tree led to the host's /tmp")
	}
}

func TestMissingOutputIsNamed(t *testing.T) {
	e := newEngine(t, t.TempDir())
	e.Replay = func(step string) string { return "factory build --only " + step }
	_, err := e.Build(t.Context(), toolStep(toolTree(t), "quiet", "count"))
	var failed *StepError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, want a StepError", err)
	}
	for _, want := range []string{"left no /out/o", "| line 30/30", "| line 11/30", "whole log: " + failed.Log, "run it again: factory build --only quiet"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "line 10/30") {
		t.Errorf("error shows more than %d lines:\n%v", tailLines, err)
	}
	log, err := os.ReadFile(failed.Log)
	if err != nil || !bytes.HasPrefix(log, []byte("line 1/30\n")) {
		t.Errorf("whole log is %q, %v", log, err)
	}
}

func TestTimeLimitKillsGrandchildren(t *testing.T) {
	for _, mode := range []Isolation{sandbox.Namespaces, sandbox.SharedPID} {
		t.Run(string(mode), func(t *testing.T) {
			e := newEngine(t, t.TempDir())
			e.Executor.(*LocalExecutor).Mode = mode
			s := toolStep(toolTree(t), "slow", "sh", "child", "sleep 1h")
			s.Timeout = 500 * time.Millisecond
			_, err := e.Build(t.Context(), s)
			if err == nil || !strings.Contains(err.Error(), "time limit of 500ms exceeded") {
				t.Errorf("got %v", err)
			}
			waitNoTools(t, e.Store.Dir())
		})
	}
}

func TestBackgroundProcessEndsWithItsStep(t *testing.T) {
	for _, mode := range []Isolation{sandbox.Namespaces, sandbox.SharedPID} {
		t.Run(string(mode), func(t *testing.T) {
			e := newEngine(t, t.TempDir())
			e.Executor.(*LocalExecutor).Mode = mode
			s := toolStep(toolTree(t), "daemon", "sh", "child", "write /out/o x")
			got, err := e.Build(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if got[s].Isolation != string(mode) {
				t.Errorf("isolation is recorded as %q", got[s].Isolation)
			}
			waitNoTools(t, e.Store.Dir())
		})
	}
}

// waitNoTools fails if a tool of that store's trees still runs after some seconds.
func waitNoTools(t *testing.T, store string) {
	t.Helper()
	for range 50 {
		if !toolRuns(t, store) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("a process of the step is still there")
}

// toolRuns looks for processes that have the tool of this store's tree mapped.
func toolRuns(t *testing.T, store string) bool {
	t.Helper()
	id := toolTree(t).ID()
	want, err := os.Stat(filepath.Join(store, "trees", id.String(), "bin/tool"))
	if err != nil {
		return false // not made yet
	}
	exes, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range exes {
		// Through an overlay the device differs, the inode does not.
		if info, err := os.Stat(exe); err == nil && inode(info) == inode(want) && info.Size() == want.Size() {
			return true
		}
	}
	return false
}

func TestRunTool(t *testing.T) {
	e := newEngine(t, t.TempDir())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := e.Run(t.Context(), Tool{
		Tree: toolTree(t), Argv: []string{"/bin/tool", "sh", "cat /host/out /host/in", "echo done"},
		Binds: []Bind{{dir, "/host", true}}, Net: true, Devices: []string{"/dev/zero"}, Stdout: &out,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil || string(got) != "hello" || out.String() != "done\n" {
		t.Errorf("got %q, %q, %v", got, out.String(), err)
	}
	err = e.Run(t.Context(), Tool{Tree: toolTree(t), Argv: []string{"/bin/tool", "exit"}})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 7 {
		t.Errorf("got %v, want exit status 7", err)
	}
	err = e.Run(t.Context(), Tool{Tree: toolTree(t), Argv: []string{"/bin/nothing"}})
	if err == nil || !strings.Contains(err.Error(), "starting the command: /bin/nothing") {
		t.Errorf("got %v", err)
	}
}

func TestCachesOutliveAStep(t *testing.T) {
	e := newEngine(t, t.TempDir())
	tree := toolTree(t)
	first := toolStep(tree, "first", "sh", "write /cache/x kept", "write /out/o 1")
	first.Caches = []Cache{{"objects", "/cache"}}
	second := toolStep(tree, "second", "cat", "/out/o", "/cache/x")
	second.Caches = first.Caches
	output(t, e, first)
	if got := output(t, e, second); got != "kept" {
		t.Errorf("cache has %q", got)
	}
	e.NoCaches = true
	third := toolStep(tree, "third", "cat", "/out/o", "/cache/x", "/cache/x")
	third.Caches = first.Caches
	if _, err := e.Build(t.Context(), third); err == nil {
		t.Error("NoCaches left a cache in the sandbox")
	}
}
