// Package sandbox runs one command in fresh Linux namespaces, seeing only the directories and files it is given.
//
// The command gets user, mount, pid, net, ipc and uts namespaces of its own, a read-only root, a writable /build, /out and
// /tmp, a small /dev, its own /proc, an environment that is exactly the given one, and no capabilities. Neither root nor a
// setuid helper is needed: the caller's user becomes the sandbox's uid 0 and is its only user.
//
// The first process inside is the calling program itself, started again under the name Name: it must call
// Main first of all then (see IsStub). It sets the namespaces up, starts the command, reaps, and reports.
//
// The package does not decide what is worth running, caches nothing, and does not limit memory or CPU.
package sandbox

import (
	"fmt"
	"io"
	"syscall"
)

// Protocol is the version of what a command finds in the sandbox: paths, devices, limits, what is denied.
// It is part of every ActionID, so it must be raised when any of that changes.
const Protocol = 1

// Name is argv[0] of the stub.
const Name = "talos-factory-stub"

// Directories that every sandbox has and may be written to.
const (
	WorkDir = "/build"
	OutDir  = "/out"
	TmpDir  = "/tmp"
)

// Hostname is what uname says inside.
const Hostname = "factory"

// Isolation is how far a command is kept from the host.
type Isolation string

const (
	// Namespaces is the full set.
	Namespaces Isolation = "namespaces"
	// SharedPID is for hosts that refuse a fresh /proc (containers that mask parts of theirs): the command sees
	// the host's processes, and /proc read-only. Everything else is as in Namespaces.
	SharedPID Isolation = "shared-pid"
)

// ParseIsolation reads the value of an --isolation flag.
func ParseIsolation(s string) (Isolation, error) {
	switch i := Isolation(s); i {
	case Namespaces, SharedPID:
		return i, nil
	case "":
		return Namespaces, nil
	}
	return "", fmt.Errorf("cannot use isolation %q: want %q or %q", s, Namespaces, SharedPID)
}

// Spec is one command and all it may see.
type Spec struct {
	// Scratch is an empty directory on a file system that overlayfs can write to. It holds
	// work, out and tmp of the sandbox afterwards; the caller removes it.
	Scratch   string
	Trees     []Bind // read-only directories; exactly one has the path "/"
	Binds     []Bind // files and directories on top of them
	Argv      []string
	Env       []string // the whole environment, "key=value"
	Dir       string
	Devices   []string // device nodes of the host to show, "/dev/kvm"
	HostNet   bool     // keep the host's network
	Isolation Isolation
	// Foreground keeps the command in the caller's session and process group, so that it may use the terminal. Then the
	// end of the context is a SIGTERM, and only some seconds later a SIGKILL.
	Foreground bool `json:"-"`
}

// Bind shows a file or directory of the host at a path in the sandbox.
type Bind struct {
	Host, Path string
	Writable   bool
}

// Stdio are the streams of a command. A nil Stdin is /dev/null; nil outputs are thrown away.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// ExitError says that the command ran and ended badly.
type ExitError struct {
	Code   int            // exit status, if Signal is 0
	Signal syscall.Signal // that killed it
}

func (e *ExitError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("killed by signal %d (%s)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}
