package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary plays three more parts: the stub, the tool that steps run, and other processes that build.
func TestMain(m *testing.M) {
	switch {
	case IsStub():
		StubMain()
	case filepath.Base(os.Args[0]) == "tool":
		os.Exit(toolMain(os.Args[1:]))
	case os.Getenv("BUILD_TEST_HELPER") != "":
		os.Exit(helperMain(os.Getenv("BUILD_TEST_HELPER")))
	}
	os.Exit(m.Run())
}

// toolMain is the only program in the sandboxes of these tests.
func toolMain(args []string) int {
	if err := tool(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

func tool(args []string) error {
	switch args[0] {
	case "sh": // several commands
		for _, cmd := range args[1:] {
			if err := tool(strings.Fields(cmd)); err != nil {
				return err
			}
		}
		return nil
	case "cat":
		var all []byte
		for _, name := range args[2:] {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			all = append(all, b...)
		}
		return os.WriteFile(args[1], all, 0o644)
	case "write":
		return os.WriteFile(args[1], []byte(strings.Join(args[2:], " ")), 0o644)
	case "env":
		return os.WriteFile(args[1], []byte(strings.Join(os.Environ(), "\n")), 0o644)
	case "echo":
		fmt.Println(strings.Join(args[1:], " "))
		return nil
	case "count":
		for i := range 30 {
			fmt.Printf("line %d/30\n", i+1)
		}
		return nil
	case "fill":
		n := 0
		fmt.Sscan(args[2], &n)
		return os.WriteFile(args[1], make([]byte, n), 0o644)
	case "sleep":
		d, err := time.ParseDuration(args[1])
		time.Sleep(d)
		return err
	case "child": // a grandchild that would outlive its parent
		cmd := exec.Command("/proc/self/exe", "sleep", "1h")
		cmd.Args[0] = "tool"
		return cmd.Start()
	case "exit":
		os.Exit(7)
	case "probe":
		return probe(args[1])
	}
	return fmt.Errorf("no command %q", args[0])
}

// probe writes down what the sandbox looks like from inside.
func probe(out string) error {
	var b strings.Builder
	say := func(what string, err error) {
		text := "allowed"
		if err != nil {
			var errno syscall.Errno
			text = err.Error()
			if errors.As(err, &errno) {
				text = unix.ErrnoName(errno)
			}
		}
		fmt.Fprintf(&b, "%s: %s\n", what, text)
	}
	_, err := os.ReadFile("/etc/passwd")
	say("read /etc/passwd", err)
	for _, name := range []string{"/new", "/bin/new", "/dev/new", "/build/new", "/out/new", "/tmp/new"} {
		say("write "+name, os.WriteFile(name, nil, 0o644))
	}
	if _, err = os.OpenFile("/proc/sys/kernel/core_pattern", os.O_WRONLY, 0); err != nil {
		err = errors.New("refused") // EROFS for root, EACCES for others
	}
	say("open core_pattern", err)
	for _, name := range []string{"self/comm", "self/oom_score_adj", "mtrr"} {
		f, err := os.OpenFile("/proc/"+name, os.O_WRONLY, 0)
		if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
			err = unix.EROFS // an ordinary user, or a kernel without it
		} else if err == nil {
			f.Close()
		}
		say("open /proc/"+name, err)
	}
	for _, name := range []string{"kcore", "kpageflags", "timer_list"} {
		text, _ := os.ReadFile("/proc/" + name)
		fmt.Fprintf(&b, "%s %d bytes\n", name, len(text))
	}
	say("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	say("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	_, _, errno := unix.Syscall(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0)
	say("ptrace", errno)
	_, err = unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	say("vsock", err)
	say("sethostname", unix.Sethostname([]byte("x")))
	say("chown", os.Chown("/build/new", 1, 1))
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	say("connect outside", unix.Connect(fd, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{192, 0, 2, 1}}))
	say("connect loopback", unix.Connect(fd, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{127, 0, 0, 1}}))
	host, _ := os.Hostname()
	fmt.Fprintf(&b, "hostname %s, uid %d, gid %d, ppid %d, umask %03o\n", host, os.Getuid(), os.Getgid(), os.Getppid(), unix.Umask(0))
	links, err := os.ReadDir("/proc/self/net/dev_snmp6")
	if err == nil {
		for _, l := range links {
			fmt.Fprintf(&b, "link %s\n", l.Name())
		}
	}
	root, err := os.ReadDir("/")
	for _, e := range root {
		fmt.Fprintf(&b, "/%s\n", e.Name())
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "CapEff") || strings.HasPrefix(line, "CapBnd") || strings.HasPrefix(line, "NoNewPrivs") || strings.HasPrefix(line, "Seccomp:") {
			b.WriteString(line)
		}
	}
	stdin, _ := io.ReadAll(os.Stdin)
	fmt.Fprintf(&b, "stdin %d bytes\n", len(stdin))
	for fd := 3; fd < 256; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			fmt.Fprintf(&b, "fd %d is a file of the host\n", fd)
		}
	}
	return errors.Join(err, os.WriteFile(out, []byte(b.String()), 0o644))
}

// toolTree is a tree with nothing but the tool, which is this test binary.
func toolTree(t testing.TB) *Tree {
	t.Helper()
	return &Tree{Name: "tool", Spec: []byte("tool 1"), Make: makeToolTree}
}

func makeToolTree(_ context.Context, dir string, _ func(Digest) (*os.File, error)) error {
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		return err
	}
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "bin/tool"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

func toolStep(tree *Tree, name string, args ...string) *Step {
	return &Step{
		Name: name, Argv: append([]string{"tool"}, args...), Env: map[string]string{"PATH": "/bin"},
		Host: "amd64", Target: "amd64", Mounts: []Mount{{"/", tree}}, Outputs: []string{"o"},
	}
}

func openTestStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newEngine(t testing.TB, dir string) *Engine {
	s := openTestStore(t, dir)
	return &Engine{Store: s, Executor: &LocalExecutor{Store: s}}
}

// recorder keeps the events of a build.
type recorder struct {
	mu     sync.Mutex
	events []Event
}

func (r *recorder) Event(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) ran(kind Kind) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind && e.State == Started && !e.Cached {
			names = append(names, e.Name)
		}
	}
	return names
}

func content(t testing.TB, s *Store, b Blob) string {
	t.Helper()
	f, err := s.Open(b.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}
