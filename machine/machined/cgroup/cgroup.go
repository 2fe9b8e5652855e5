//go:build linux

// Package cgroup lays out the machine's cgroup v2 tree: PID 1 in a leaf of its own, the services below system, and the controllers
// handed down so that containers can be limited.
//
// It sets no limits.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is where the one hierarchy is mounted; System and Init are below it.
const (
	Root   = "/sys/fs/cgroup"
	System = "system" // services, and containers of containerd's namespace of that name
	Init   = "init"   // machined; a group with children may hold no processes (cgroup-v2.rst, "No Internal Process Constraint")
)

// Setup makes the tree and moves this process to its place. Controllers that the kernel does not hand down are named in refused.
func Setup(root string) (refused []error, err error) {
	for _, dir := range []string{Init, System} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return nil, err
		}
	}

	if err := os.WriteFile(filepath.Join(root, Init, "cgroup.procs"), []byte("0"), 0); err != nil {
		return nil, fmt.Errorf("moving to cgroup %s: %w", Init, err)
	}

	for _, dir := range []string{root, filepath.Join(root, System)} {
		available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return refused, err
		}

		for _, c := range strings.Fields(string(available)) { // one by one: a refused one would refuse all of a list
			if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
				refused = append(refused, fmt.Errorf("handing %s down from %s: %w", c, dir, err))
			}
		}
	}

	return refused, nil
}

// KillExcept ends all processes of the tree except those of machined and of the services to keep: other services, what they left
// behind, and containers (cgroup.kill, cgroup-v2.rst). It waits until they are gone, or ctx ends: a killed process holds its files
// until then, and what they are on cannot be unmounted.
func KillExcept(ctx context.Context, root string, keep ...string) error {
	var errs []error

	dirs := killable(root, keep)
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil {
			errs = append(errs, fmt.Errorf("killing cgroup %s: %w", dir, err))
		}
	}

	for _, dir := range dirs {
		if err := awaitEmpty(ctx, dir); err != nil {
			errs = append(errs, fmt.Errorf("waiting for the end of cgroup %s: %w", dir, err))
		}
	}

	return errors.Join(errs...)
}

// awaitEmpty waits until a group and those below it have no living process. The kernel tells of changes of cgroup.events by poll(2),
// POLLPRI, to whoever has read it (cgroup-v2.rst, "populated").
func awaitEmpty(ctx context.Context, dir string) error {
	const look = time.Second // at ctx

	f, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the group itself is gone
	}

	if err != nil {
		return err
	}
	defer f.Close()

	buf := make([]byte, 256)

	for {
		n, err := f.ReadAt(buf, 0)
		if errors.Is(err, unix.ENODEV) {
			return nil // removed meanwhile
		}

		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}

		if !strings.Contains(string(buf[:n]), "populated 1") {
			return nil
		}

		if ctx.Err() != nil {
			return ctx.Err()
		}

		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(fds, int(look.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// killable are the groups to kill: all at the top but machined's and the services', and the services that are not kept.
func killable(root string, keep []string) []string {
	var out []string

	for _, parent := range []string{root, filepath.Join(root, System)} {
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue
		}

		for _, e := range entries {
			ours := parent == root && (e.Name() == Init || e.Name() == System)
			if e.IsDir() && !ours && !slices.Contains(keep, e.Name()) {
				out = append(out, filepath.Join(parent, e.Name()))
			}
		}
	}

	return out
}
