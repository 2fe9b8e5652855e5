package build

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/talos-factory/talos-factory/build/sandbox"
	"golang.org/x/sys/unix"
)

// LocalExecutor runs actions on this machine, in sandboxes of user namespaces.
type LocalExecutor struct {
	Store *Store
	Mode  Isolation // the zero value is sandbox.Namespaces
}

// Isolation names how actions are kept apart from the host.
func (x *LocalExecutor) Isolation() string { return string(x.mode()) }

func (x *LocalExecutor) mode() Isolation {
	if x.Mode == "" {
		return sandbox.Namespaces
	}
	return x.Mode
}

// Preflight tells whether this host lets sandboxes be made; the engine asks before it fetches for hours.
func (x *LocalExecutor) Preflight(ctx context.Context) (err error) {
	scratch, err := os.MkdirTemp(x.Store.path("tmp"), "preflight-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeTree(scratch)) }()
	return sandbox.Preflight(ctx, scratch, x.mode())
}

// Execute runs the action and stores its outputs.
func (x *LocalExecutor) Execute(ctx context.Context, a *Action, log io.Writer) (_ map[string]Blob, err error) {
	scratch, err := os.MkdirTemp(x.Store.path("tmp"), "run-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, removeTree(scratch)) }()
	spec, err := x.spec(a, scratch)
	if err != nil {
		return nil, err
	}
	if a.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.Timeout, fmt.Errorf("time limit of %s exceeded", a.Timeout))
		defer cancel()
	}
	if err := sandbox.Run(ctx, spec, sandbox.Stdio{Out: log, Err: log}); err != nil {
		return nil, err
	}
	return x.collect(filepath.Join(spec.Scratch, filepath.Base(sandbox.OutDir)), a.Outputs)
}

func (x *LocalExecutor) spec(a *Action, scratch string) (sandbox.Spec, error) {
	spec := sandbox.Spec{
		Scratch: filepath.Join(scratch, "sandbox"), Argv: a.Argv, Env: environ(a.Env), Dir: a.Dir, Isolation: x.mode(),
	}
	if err := os.Mkdir(spec.Scratch, 0o755); err != nil {
		return spec, err
	}
	for _, m := range a.Mounts {
		spec.Trees = append(spec.Trees, sandbox.Bind{Host: x.Store.treeDir(m.Tree), Path: m.Path})
	}
	for i, in := range a.Inputs {
		host := x.Store.entry("blobs", in.Blob.Digest)
		if in.Executable {
			// A blob is never executable and its mode is shared by all who see it, so this input is a copy.
			copied := filepath.Join(scratch, "exec"+strconv.Itoa(i))
			if err := x.copyExecutable(in.Blob.Digest, copied); err != nil {
				return spec, fmt.Errorf("input %s: %w", in.Path, err)
			}
			host = copied
		}
		spec.Binds = append(spec.Binds, sandbox.Bind{Host: host, Path: in.Path})
	}
	for _, c := range a.Caches {
		dir := x.Store.path("caches", c.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return spec, err
		}
		if err := x.Store.writeFile(dir+".used", nil); err != nil {
			return spec, err
		}
		spec.Binds = append(spec.Binds, sandbox.Bind{Host: dir, Path: c.Path, Writable: true})
	}
	return spec, nil
}

func (x *LocalExecutor) copyExecutable(d Digest, path string) error {
	from, err := x.Store.Open(d)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Chmod(0o555), to.Close()); err != nil {
		return err
	}
	return os.Chtimes(path, Epoch, Epoch)
}

// environ is an environment in the order of its names.
func environ(env map[string]string) []string {
	list := []string{}
	for _, key := range slices.Sorted(maps.Keys(env)) {
		list = append(list, key+"="+env[key])
	}
	return list
}

// collect moves the declared outputs into the store. Nothing runs in the sandbox any more.
func (x *LocalExecutor) collect(dir string, names []string) (map[string]Blob, error) {
	outputs := map[string]Blob{}
	for _, name := range names {
		b, err := x.collectFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the step ended well but left no %s/%s", sandbox.OutDir, name)
		}
		if err != nil {
			return nil, fmt.Errorf("storing output %s: %w", name, err)
		}
		outputs[name] = b
	}
	return outputs, nil
}

func (x *LocalExecutor) collectFile(path string) (Blob, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Blob{}, err
	}
	if !info.Mode().IsRegular() {
		return Blob{}, fmt.Errorf("cannot use it: it is a %s, not a regular file", info.Mode().Type())
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return Blob{}, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Blob{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Blob{}, err
	}
	if st.Nlink > 1 {
		return x.Store.Put(f) // another name might be an output, too
	}
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return Blob{}, err
	}
	b := Blob{Digest(h.Sum(nil)), size}
	return b, x.Store.adopt(f, b)
}
