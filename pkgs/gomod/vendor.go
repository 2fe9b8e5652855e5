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

// Vendor describes the tree from which the imported packages can be built offline: go.mod and go.sum as they are in the
// folder, and beside them vendor/ with the packages and all they import. Main packages may be among the imports: then
// "go build -mod=vendor" in that tree builds them by their import paths.
//
// go.sum pins every byte, so the tree's identity is go.mod, go.sum and the imports. A tree is made by the host's
// go command, which is the one that downloads and checks modules.
func Vendor(name, dir string, imports []string) (*build.Tree, error) {
	imports = slices.Clone(imports)
	slices.Sort(imports)
	imports = slices.Compact(imports)
	v := vendoring{imports: imports}
	var err error
	if v.mod, err = os.ReadFile(filepath.Join(dir, "go.mod")); err != nil {
		return nil, err
	}
	if v.sum, err = os.ReadFile(filepath.Join(dir, "go.sum")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	spec, err := json.Marshal(struct {
		Vendor  int          `json:"vendor"`
		Mod     build.Digest `json:"go.mod"`
		Sum     build.Digest `json:"go.sum"`
		Imports []string     `json:"imports"`
	}{1, build.Sum(v.mod), build.Sum(v.sum), imports})
	if err != nil {
		return nil, err
	}
	return &build.Tree{Name: name, Spec: spec, Make: v.make}, nil
}

type vendoring struct {
	mod, sum []byte
	imports  []string
}

func (v vendoring) make(ctx context.Context, dir string, _ func(build.Digest) (*os.File, error)) error {
	tmp, err := os.MkdirTemp("", "vendor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for name, data := range map[string][]byte{"go.mod": v.mod, "go.sum": v.sum} {
		if err := errors.Join(
			os.WriteFile(filepath.Join(tmp, name), data, 0o644),
			os.WriteFile(filepath.Join(dir, name), data, 0o644),
		); err != nil {
			return err
		}
	}
	if len(v.imports) == 0 {
		return os.Mkdir(filepath.Join(dir, "vendor"), 0o755)
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
	if _, err := goCommand(ctx, tmp, "mod", "vendor", "-o", filepath.Join(dir, "vendor")); err != nil {
		return fmt.Errorf("vendoring with the host's go command: %w", err)
	}
	return nil
}
