package pkgs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/pkgs/debian"
	"github.com/talos-factory/talos-factory/pkgs/gomod"
)

// TreeOption adds to a tree of packages.
type TreeOption func(*treeSpec)

// WithGo adds the Go toolchain at /usr/local/go.
func WithGo() TreeOption { return func(t *treeSpec) { t.withGo = true } }

// treeSpec is everything a tree's content depends on; its JSON is the tree's Spec. Unpacker is raised whenever
// unpacking or finishing changes what a tree looks like.
type treeSpec struct {
	Unpacker int       `json:"unpacker"`
	Debs     []treeDeb `json:"debs"`
	Go       *treeDeb  `json:"go,omitempty"`
	withGo   bool
}

type treeDeb struct {
	Name   string       `json:"name"`
	SHA256 build.Digest `json:"sha256"`
}

const unpacker = 1

// DebTree is the tree of a set: its packages unpacked into one folder in the order of their names, base-files first,
// with the links and the CA bundle that maintainer scripts would have made.
func (l *Lock) DebTree(set, arch string, opts ...TreeOption) (*build.Tree, error) {
	s, ok := l.Sets[set][arch]
	if !ok {
		return nil, fmt.Errorf("cannot find set %q for %s in the lock: %w", set, arch, ErrStale)
	}
	spec := treeSpec{Unpacker: unpacker}
	for _, o := range opts {
		o(&spec)
	}
	tree := &build.Tree{Name: set + " " + arch}
	for _, name := range baseFirst(s.Packages) {
		p, err := l.Package(name, arch)
		if err != nil {
			return nil, err
		}
		spec.Debs = append(spec.Debs, treeDeb{p.Name, p.SHA256})
		tree.Fetches = append(tree.Fetches, *l.Fetcher.Fetch(p))
	}
	if spec.withGo {
		t, err := l.toolchain(arch)
		if err != nil {
			return nil, err
		}
		spec.Go = &treeDeb{t.Version, t.SHA256}
		tree.Fetches = append(tree.Fetches, *l.Fetcher.FetchToolchain(t))
	}
	var err error
	if tree.Spec, err = json.Marshal(spec); err != nil {
		return nil, err
	}
	tree.Make = spec.make
	return tree, nil
}

func baseFirst(names []string) []string {
	var first, rest []string
	for _, n := range names {
		if n == "base-files" {
			first = append(first, n)
		} else {
			rest = append(rest, n)
		}
	}
	return append(first, rest...)
}

func (s treeSpec) make(ctx context.Context, dir string, open func(build.Digest) (*os.File, error)) error {
	var debs []debian.Deb
	for _, d := range s.Debs {
		debs = append(debs, debian.Deb{Name: d.Name, Open: func() (*os.File, error) { return open(d.SHA256) }})
	}
	if err := debian.Unpack(ctx, dir, debs); err != nil {
		return err
	}
	if err := debian.Finish(dir); err != nil {
		return err
	}
	if s.Go == nil {
		return nil
	}
	f, err := open(s.Go.SHA256)
	if err != nil {
		return err
	}
	defer f.Close()
	return gomod.UnpackToolchain(f, dir)
}

func (l *Lock) toolchain(arch string) (Toolchain, error) {
	for _, t := range l.Go {
		if t.Architecture == arch {
			return t, nil
		}
	}
	return Toolchain{}, fmt.Errorf("cannot find a Go toolchain for %s in the lock: %w", arch, ErrStale)
}

// FetchToolchain describes how to get a Go toolchain: from the bundle, or by the host's go command.
func (f *Fetcher) FetchToolchain(t Toolchain) *build.Fetch {
	return &build.Fetch{
		Name: "go " + t.Version,
		Blob: t.Blob(),
		Open: func(ctx context.Context) (io.ReadCloser, error) {
			if ref := orEnv(f.Bundle, BundleEnv); ref != "" {
				if body, err := openBundle(ctx, ref, t.Blob(), f.Client); err == nil {
					return body, nil
				}
			}
			d, err := gomod.Fetch(ctx, t.Module, t.Version)
			if err != nil {
				return nil, err
			}
			return os.Open(d.Zip)
		},
	}
}
