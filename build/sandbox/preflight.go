package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Preflight makes a sandbox that runs nothing, in the empty directory scratch, to see whether the
// host allows it. The error is a *RefusedError if it does not.
func Preflight(ctx context.Context, scratch string, mode Isolation) error {
	root := filepath.Join(scratch, "empty")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	return Run(ctx, Spec{Scratch: scratch, Trees: []Bind{{Host: root, Path: "/"}}, Dir: WorkDir, Isolation: mode}, Stdio{})
}

// RefusedError says that the host does not let the sandbox be made, which part it refuses, and
// where to look. It is a property of the host, not of the command.
type RefusedError struct {
	What string // "user namespaces", "overlayfs", "a fresh /proc"
	Hint string
	Err  error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("cannot make a sandbox: this host refuses %s: %v\n%s", e.What, e.Err, e.Hint)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// explainStart explains why the first process could not be started in its namespaces.
func explainStart(err error) error {
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EUSERS) && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("starting the sandbox: %w", err)
	}
	return &RefusedError{"user namespaces", userNamespaceHint(), err}
}

// explainStage explains a step of the set-up that failed.
func explainStage(r report) error {
	err := error(r.Errno)
	if r.Errno == 0 {
		err = errors.New(r.Error)
	}
	refused := r.Errno == syscall.EPERM || r.Errno == syscall.EACCES
	switch {
	case r.Stage == stagePrivate && refused:
		// Ubuntu's AppArmor lets the namespace be made and then takes all capabilities in it away.
		return &RefusedError{"user namespaces their capabilities", userNamespaceHint(), err}
	case r.Stage == stageOverlay && (refused || r.Errno == syscall.ENODEV || r.Errno == syscall.EINVAL):
		return &RefusedError{"overlayfs in a user namespace", "It needs Linux 5.12 or newer with overlayfs, and a store on ext4, xfs, btrfs or tmpfs (not on an overlay itself, as in a container: put the store on a volume).", err}
	case r.Stage == stageProc && refused:
		return &RefusedError{"a fresh /proc", "Something masks parts of this /proc, as container engines do. Run outside the container, let it unmask /proc (docker: --security-opt systempaths=unconfined), or accept less with --isolation=" + string(SharedPID) + ".", err}
	}
	return fmt.Errorf("%s: %w", r.Stage, &stageError{r.Error, r.Errno})
}

// stageError keeps the errno of an error that came as text.
type stageError struct {
	text  string
	errno syscall.Errno
}

func (e *stageError) Error() string { return e.text }

func (e *stageError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// switches are the files that turn user namespaces off, with the value that does.
var switches = []struct{ name, off, on string }{
	{"kernel.apparmor_restrict_unprivileged_userns", "1", "0, or an AppArmor profile with \"userns,\" for this program"},
	{"kernel.unprivileged_userns_clone", "0", "1"},
	{"user.max_user_namespaces", "0", "15000"},
}

// userNamespaceHint names the switch that is off.
func userNamespaceHint() string {
	var hints []string
	for _, s := range switches {
		value, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(s.name, ".", "/"))
		if err == nil && strings.TrimSpace(string(value)) == s.off {
			hints = append(hints, fmt.Sprintf("sysctl %s is %s; it must be %s.", s.name, s.off, s.on))
		}
	}
	if len(hints) == 0 {
		return "Look at sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns, and at the seccomp profile if this is a container."
	}
	return strings.Join(hints, "\n")
}
