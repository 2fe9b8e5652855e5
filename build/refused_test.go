package build

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/build/sandbox"
)

// refusals are things that hosts do to sandboxes, done to a namespace of this test's own.
var refusals = map[string]struct {
	spoil func() error
	mode  Isolation
	want  string
}{
	"proc":           {spoil: maskProc, want: "this host refuses a fresh /proc"},
	"proc, accepted": {spoil: maskProc, mode: sandbox.SharedPID},
	"user namespaces": {
		spoil: func() error { return os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0) },
		want:  "this host refuses user namespaces: fork/exec /proc/self/exe: no space left on device\nsysctl user.max_user_namespaces is 0; it must be 15000.",
	},
}

// maskProc hides a part of /proc, as container engines do.
func maskProc() error { return unix.Mount("mask", "/proc/tty", "tmpfs", unix.MS_RDONLY, "") }

func TestRefusalsAreNamed(t *testing.T) {
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			cmd, out := helperCmd(t, "refused "+name, t.TempDir())
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			err := cmd.Run()
			if r.want == "" && err != nil {
				t.Errorf("got %v:\n%s", err, out)
			}
			if !strings.Contains(out.String(), r.want) {
				t.Errorf("want %q:\n%s", r.want, out)
			}
		})
	}
}
