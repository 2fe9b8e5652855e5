//go:build judge

package pkgs

import (
	"debug/elf"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/build"
)

// TestRootFiles: every file that a debian recipe names is in the packages of the root set, and every shared library and
// loader that its programs ask for is the file of a recipe.
func TestRootFiles(t *testing.T) {
	lock, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	recipes, err := LoadRecipes(".")
	if err != nil {
		t.Fatal(err)
	}
	store, err := build.OpenStore("")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	engine := &build.Engine{Store: store, Executor: &build.LocalExecutor{Store: store}}
	for _, arch := range recipes.Architectures {
		tree, err := lock.DebTree(RootSet, arch)
		if err != nil {
			t.Fatal(err)
		}
		dir, release, err := engine.MakeTree(t.Context(), tree)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		has := map[string]bool{}
		needs := map[string]string{}
		for i := range recipes.Recipes {
			if recipes.Recipes[i].Kind != KindDebian {
				continue
			}
			files, err := recipes.Recipes[i].FilesFor(arch)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				has[path.Base(f.Path)], has[f.Path] = true, true
				for _, n := range needed(t, root, f.Source) {
					needs[n] = f.Path
				}
			}
		}
		for n, by := range needs {
			if !has[n] {
				t.Errorf("%s: %s needs %s, which no recipe has", arch, by, n)
			}
		}
		if len(needs) < 6 {
			t.Errorf("%s: found only %v", arch, needs)
		}
	}
}

// needed lists what the dynamic loader would look for: the loader itself as its path below /usr, and sonames.
func needed(t *testing.T, root *os.Root, source string) []string {
	t.Helper()
	f, err := root.Open(strings.TrimPrefix(source, "/"))
	if err != nil {
		t.Error(err)
		return nil
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	var notELF *elf.FormatError
	if errors.As(err, &notELF) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	names, err := e.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			data, err := io.ReadAll(p.Open())
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, "/usr"+strings.TrimRight(string(data), "\x00"))
		}
	}
	return names
}
