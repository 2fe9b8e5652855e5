//go:build linux

// Package cgroup lays out the machine's cgroup v2 tree: PID 1 in a leaf of its own, the services below system, and the controllers
// handed down so that containers can be limited.
//
// It sets no limits.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// KillExcept ends, at once, all processes of the tree except those of machined and of the services to keep: other services,
// what they left behind, and containers (cgroup.kill, cgroup-v2.rst).
func KillExcept(root string, keep ...string) error {
	var errs []error

	for _, dir := range killable(root, keep) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0); err != nil {
			errs = append(errs, fmt.Errorf("killing cgroup %s: %w", dir, err))
		}
	}

	return errors.Join(errs...)
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
