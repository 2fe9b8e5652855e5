package build

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/talos-factory/talos-factory/build/sandbox"
)

// Tool is a program that a person runs (QEMU) or a test's foreign reader, run in a tree. It has
// the same namespaces as a step, but it may see chosen parts of the host, and nothing is cached.
type Tool struct {
	Tree           *Tree
	Argv           []string
	Env            map[string]string // the whole environment
	Dir            string            // working directory, /build if empty
	Binds          []Bind
	Net            bool     // keep the host's network
	Devices        []string // device nodes of the host: "/dev/kvm"
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Bind shows a file or directory of the host in a tool's sandbox.
type Bind struct {
	Host, Path string
	Writable   bool
}

// Run runs a tool and waits for it. The error is an *ExitError if the tool ended badly. When ctx ends the
// tool gets a SIGTERM and, some seconds later, a SIGKILL.
func (e *Engine) Run(ctx context.Context, t Tool) (err error) {
	dir, release, err := e.MakeTree(ctx, t.Tree)
	if err != nil {
		return err
	}
	defer release()
	scratch, err := os.MkdirTemp(e.Store.path("tmp"), "tool-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeTree(scratch)) }()
	spec := sandbox.Spec{
		Scratch: scratch, Trees: []sandbox.Bind{{Host: dir, Path: "/"}}, Argv: t.Argv, Env: environ(t.Env), Dir: t.Dir,
		Devices: t.Devices, HostNet: t.Net, Foreground: true, Isolation: sandbox.Namespaces,
	}
	if x, ok := e.Executor.(*LocalExecutor); ok {
		spec.Isolation = x.mode()
	}
	if spec.Dir == "" {
		spec.Dir = sandbox.WorkDir
	}
	for _, b := range t.Binds {
		host, err := filepath.Abs(b.Host)
		if err != nil {
			return err
		}
		spec.Binds = append(spec.Binds, sandbox.Bind{Host: host, Path: b.Path, Writable: b.Writable})
	}
	return sandbox.Run(ctx, spec, sandbox.Stdio{In: t.Stdin, Out: t.Stdout, Err: t.Stderr})
}
