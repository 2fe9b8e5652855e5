package pkgs

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/pkgs/gomod"
)

// Where a step finds its source.
const srcDir = "/src"

// goEnv is the whole environment of the go command in a sandbox: nothing of the host's, no network.
func goEnv(arch string, cgo bool) map[string]string {
	env := map[string]string{
		"PATH": "/usr/local/go/bin:/usr/bin", "HOME": "/tmp", "LC_ALL": "C",
		"GOOS": "linux", "GOARCH": arch, "CGO_ENABLED": "0",
		"GOENV": "off", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOCACHE": goCacheDir,
	}
	if cgo {
		env["CGO_ENABLED"] = "1"
	}
	return env
}

// In /tmp, which is writable when the engine gives no cache.
const goCacheDir = "/tmp/gocache"

// goBuild is the step that builds main packages of the module whose vendored tree is given.
func (l *Lock) goBuild(name, toolset, arch string, src *build.Tree, b Build) (*build.Step, error) {
	host := runtime.GOARCH
	if b.Static && host != arch {
		return nil, fmt.Errorf("cannot build %s on %s: it needs cgo, which is not built across architectures", name, host)
	}
	tools, err := l.DebTree(toolset, host, WithGo())
	if err != nil {
		return nil, err
	}
	ldflags := "-s -w -buildid="
	if b.Static {
		ldflags += " -linkmode external -extldflags -static"
	}
	argv := []string{"go", "build", "-mod=vendor", "-trimpath", "-buildvcs=false", "-ldflags=" + ldflags, "-o", "/out/"}
	if len(b.Tags) > 0 {
		argv = append(argv, "-tags="+strings.Join(b.Tags, ","))
	}
	step := &build.Step{
		Name: name, Argv: append(argv, b.Imports...), Env: goEnv(arch, b.Static), Dir: srcDir,
		Host: host, Target: arch,
		Mounts: []build.Mount{{Path: "/", Tree: tools}, {Path: srcDir, Tree: src}},
		Caches: []build.Cache{{Name: "go", Path: goCacheDir}},
	}
	for _, imp := range b.Imports {
		step.Outputs = append(step.Outputs, program(imp))
	}
	return step, nil
}

// vendor is the tree of the modules that imports come from, and notes them for PackModules.
func (l *Lock) vendor(name, dir string, imports []string) (*build.Tree, error) {
	m, err := gomod.Read(name, dir, imports)
	if err != nil {
		return nil, err
	}
	l.modules = append(l.modules, m)
	return m.Tree(l.Fetcher.moduleProxy())
}

// program is what "go build" calls the program of a main package: the last element of its path that is not a version.
func program(imp string) string {
	base := path.Base(imp)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(imp))
	}
	return base
}

// Step is how a recipe that is built is built for the architecture, on this one. Its outputs are
// the sources of the recipe's files. Recipes of Debian packages need no step.
func (l *Lock) Step(r *Recipe, arch string) (*build.Step, error) {
	name := r.Name + " " + arch
	switch r.Kind {
	case KindGoMod:
		src, err := l.vendor("modules of "+r.Name, r.Dir, r.Build.Imports)
		if err != nil {
			return nil, fmt.Errorf("planning %s: %w", name, err)
		}
		return l.goBuild(name, r.Build.Toolset, arch, src, r.Build)
	case KindSource:
		return l.sourceStep(name, r, arch)
	}
	return nil, fmt.Errorf("cannot build recipe %s: nothing is built for kind %s", r.Name, r.Kind)
}

func (l *Lock) sourceStep(name string, r *Recipe, arch string) (*build.Step, error) {
	host := runtime.GOARCH
	tools, err := l.DebTree(r.Build.Toolset, host)
	if err != nil {
		return nil, err
	}
	src, err := l.DebTree(r.Build.Source, arch)
	if err != nil {
		return nil, err
	}
	outputs := map[string]bool{}
	for _, f := range r.Files {
		if f.Source != "" {
			outputs[f.Source] = true
		}
	}
	return &build.Step{
		Name: name, Argv: []string{"/usr/bin/bash", "-euo", "pipefail", "-c", r.Build.Script},
		Env:  map[string]string{"PATH": "/usr/sbin:/usr/bin", "HOME": "/tmp", "LC_ALL": "C", "ARCH": arch},
		Host: host, Target: arch,
		Mounts:  []build.Mount{{Path: "/", Tree: tools}, {Path: srcDir, Tree: src}},
		Outputs: slices.Sorted(maps.Keys(outputs)),
	}, nil
}

// CommandStep builds a command of the repository itself, as "./cmd/machined", without cgo. Its
// inputs are the files it is made of and no others, so that other changes do not run it again.
func (l *Lock) CommandStep(repo, pkg, arch string) (*build.Step, error) {
	name := path.Base(pkg) + " " + arch
	source, err := gomod.Sources(repo, pkg, arch)
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", name, err)
	}
	vendored, err := l.vendor("modules of "+path.Base(pkg), repo, source.Imports)
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", name, err)
	}
	step, err := l.goBuild(name, "go", arch, vendored, Build{Imports: []string{"./" + path.Clean(pkg)}})
	if err != nil {
		return nil, err
	}
	for _, f := range source.Files {
		step.Inputs = append(step.Inputs, build.Input{Path: srcDir + "/" + f, HostFile: filepath.Join(repo, filepath.FromSlash(f))})
	}
	return step, nil
}
