package gomod

import (
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Source is what a command of a repository is made of.
type Source struct {
	Files   []string // slash-separated, below the repository; sorted
	Imports []string // packages of other modules; sorted
}

// Sources follows the imports of a package (as "./cmd/machined") through the repository, for Linux without cgo. It reads the files' imports
// itself, because asking the go command takes longer than a whole build that has nothing to do.
func Sources(repo, pkg, arch string) (*Source, error) {
	mod, err := os.ReadFile(filepath.Join(repo, "go.mod"))
	if err != nil {
		return nil, err
	}
	module, err := modulePath(mod)
	if err != nil {
		return nil, fmt.Errorf("reading go.mod: %w", err)
	}
	w := &walker{repo: repo, module: module, seen: map[string]bool{}, files: map[string]bool{}, imports: map[string]bool{}}
	w.ctx = build.Default
	w.ctx.GOOS, w.ctx.GOARCH, w.ctx.CgoEnabled, w.ctx.BuildTags = "linux", arch, false, nil
	if err := w.walk(path.Clean(pkg)); err != nil {
		return nil, err
	}
	return &Source{Files: keys(w.files), Imports: keys(w.imports)}, nil
}

func keys(m map[string]bool) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// modulePath finds the module line; go.mod's other lines do not matter here.
func modulePath(mod []byte) (string, error) {
	for _, line := range strings.Split(string(mod), "\n") {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "module" {
			return strings.Trim(f[1], `"`), nil
		}
	}
	return "", fmt.Errorf("no module line")
}

type walker struct {
	ctx                  build.Context
	repo, module         string
	seen, files, imports map[string]bool
}

// walk takes in the package in the folder, relative to the repository.
func (w *walker) walk(dir string) error {
	if w.seen[dir] {
		return nil
	}
	w.seen[dir] = true
	p, err := w.ctx.ImportDir(filepath.Join(w.repo, filepath.FromSlash(dir)), 0)
	if err != nil {
		return fmt.Errorf("reading package %s: %w", dir, err)
	}
	for _, list := range [][]string{p.GoFiles, p.SFiles, p.HFiles} {
		for _, f := range list {
			w.files[path.Join(dir, f)] = true
		}
	}
	for _, pattern := range p.EmbedPatterns {
		if err := w.embed(dir, pattern); err != nil {
			return fmt.Errorf("reading package %s: embedding %s: %w", dir, pattern, err)
		}
	}
	for _, imp := range p.Imports {
		switch rest, inside := strings.CutPrefix(imp, w.module+"/"); {
		case inside:
			if err := w.walk(rest); err != nil {
				return err
			}
		case imp == w.module:
			if err := w.walk("."); err != nil {
				return err
			}
		case !isStd(imp):
			w.imports[imp] = true
		}
	}
	return nil
}

// isStd: the first element of a module's path has a dot; no package of the standard library's does.
func isStd(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

// embed adds what a go:embed pattern names, by the rules of package embed: folders are taken
// whole, less files that begin with "." or "_" unless the pattern begins with "all:".
func (w *walker) embed(dir, pattern string) error {
	pattern, all := strings.CutPrefix(pattern, "all:")
	base := filepath.Join(w.repo, filepath.FromSlash(dir))
	matches, err := fs.Glob(os.DirFS(base), pattern)
	if err != nil {
		return err
	}
	if len(matches) == 0 {
		return fmt.Errorf("no such file")
	}
	for _, m := range matches {
		err := fs.WalkDir(os.DirFS(base), m, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			hidden := strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")
			switch {
			case hidden && !all && name != m && d.IsDir():
				return fs.SkipDir
			case hidden && !all && name != m:
			case d.Type().IsRegular():
				w.files[path.Join(dir, name)] = true
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
