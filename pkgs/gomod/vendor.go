package gomod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/talos-factory/talos-factory/build"
)

// Modules are the packages of other modules that a program needs, and the go.mod and go.sum that pin them.
type Modules struct {
	name     string
	mod, sum []byte
	imports  []string
}

// Proxy brings a folder of module files in the layout of a GOPROXY, for when the host's module cache lacks some; "" is
// none. It is asked before the host's own proxy. release may remove it.
type Proxy func(ctx context.Context) (dir string, release func(), err error)

// Read takes go.mod and go.sum out of a folder. Main packages may be among the imports.
func Read(name, dir string, imports []string) (*Modules, error) {
	imports = slices.Clone(imports)
	slices.Sort(imports)
	v := &Modules{name: name, imports: slices.Compact(imports)}
	var err error
	if v.mod, err = os.ReadFile(filepath.Join(dir, "go.mod")); err != nil {
		return nil, err
	}
	if v.sum, err = os.ReadFile(filepath.Join(dir, "go.sum")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return v, nil
}

// Tree describes the tree from which the packages can be built offline: go.mod and go.sum as they are, and beside them
// vendor/ with the packages and all they import. "go build -mod=vendor" in that tree builds main packages by their import paths.
//
// go.sum pins every byte, whoever brings them, so the tree's identity is go.mod, go.sum and the imports. A tree is made by the
// host's go command, which is the one that downloads and checks modules. proxy may be nil.
func (v *Modules) Tree(proxy Proxy) (*build.Tree, error) {
	spec, err := json.Marshal(struct {
		Vendor  int          `json:"vendor"`
		Mod     build.Digest `json:"go.mod"`
		Sum     build.Digest `json:"go.sum"`
		Imports []string     `json:"imports"`
	}{1, build.Sum(v.mod), build.Sum(v.sum), v.imports})
	if err != nil {
		return nil, err
	}
	fill := func(ctx context.Context, dir string, _ func(build.Digest) (*os.File, error)) error {
		return v.fill(ctx, dir, proxy)
	}
	return &build.Tree{Name: v.name, Spec: spec, Make: fill}, nil
}

func (v *Modules) fill(ctx context.Context, dir string, proxy Proxy) error {
	for name, data := range map[string][]byte{"go.mod": v.mod, "go.sum": v.sum} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	vendor := filepath.Join(dir, "vendor")
	if proxy == nil || v.vendor(ctx, vendor, "GOPROXY=off") == nil {
		return v.vendor(ctx, vendor)
	}
	files, release, err := proxy(ctx)
	if err != nil {
		return err
	}
	defer release()
	env, err := proxyFirst(ctx, files)
	if err != nil {
		return err
	}
	return v.vendor(ctx, vendor, env)
}

// vendor has the host's go command fill the folder dir anew, with additions to the environment.
func (v *Modules) vendor(ctx context.Context, dir string, env ...string) error {
	tmp, err := os.MkdirTemp("", "vendor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for name, data := range map[string][]byte{"go.mod": v.mod, "go.sum": v.sum} {
		if err := os.WriteFile(filepath.Join(tmp, name), data, 0o644); err != nil {
			return err
		}
	}
	if len(v.imports) == 0 {
		return os.MkdirAll(dir, 0o755)
	}
	// "go mod vendor" follows files whatever their build tags. The tag keeps this one from ever being
	// compiled, which would refuse to import a main package.
	var text strings.Builder
	text.WriteString("//go:build vendoring\n\npackage vendoring\n\n")
	for _, path := range v.imports {
		fmt.Fprintf(&text, "import _ %q\n", path)
	}
	if err := os.WriteFile(filepath.Join(tmp, "imports.go"), []byte(text.String()), 0o644); err != nil {
		return err
	}
	if _, err := goCommand(ctx, tmp, env, "mod", "vendor", "-o", dir); err != nil {
		return fmt.Errorf("vendoring with the host's go command: %w", err)
	}
	return nil
}
