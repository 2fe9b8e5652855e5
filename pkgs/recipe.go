package pkgs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// RecipeSchema is the version of recipe and toolset files this code reads.
const RecipeSchema = 1

// Kinds of recipes.
const (
	KindDebian = "debian" // files out of Debian packages
	KindGoMod  = "gomod"  // main packages of Go modules, with a go.mod and go.sum beside the recipe
	KindSource = "source" // a script run over an unpacked source in the sandbox
)

// Recipe says where an item of the machine's root comes from and which files of it go where.
type Recipe struct {
	Schema   int      `yaml:"schema"`
	Name     string   `yaml:"name"`
	Kind     string   `yaml:"kind"`
	Licence  string   `yaml:"licence"`  // an SPDX expression
	Packages []string `yaml:"packages"` // debian: taken as they are, without what they depend on
	Build    Build    `yaml:"build"`    // gomod and source
	Files    []File   `yaml:"files"`

	Dir string `yaml:"-"` // the recipe's folder: go.mod and go.sum are there
}

// Build says how the files of a gomod or source recipe are made.
type Build struct {
	Toolset string   `yaml:"toolset"` // what the sandbox has
	Imports []string `yaml:"imports"` // gomod: main packages
	Tags    []string `yaml:"tags"`    // gomod
	Static  bool     `yaml:"static"`  // gomod: with cgo, linked statically
	Source  string   `yaml:"source"`  // source: the set mounted at /src
	Script  string   `yaml:"script"`  // source: for bash, with /src to read and /out to fill
}

// File is one file of the root.
type File struct {
	Source string `yaml:"source"` // path in the unpacked packages (links are followed), or the name of a build output
	Path   string `yaml:"path"`   // in the root
	Link   string `yaml:"link"`   // instead of source: a symbolic link to this
	Mode   Mode   `yaml:"mode"`
	UID    int    `yaml:"uid"`
	GID    int    `yaml:"gid"`
}

// Mode is a file mode, written in YAML as a quoted octal number.
type Mode fs.FileMode

// UnmarshalYAML reads "0755".
func (m *Mode) UnmarshalYAML(node *yaml.Node) error {
	n, err := strconv.ParseUint(node.Value, 8, 12)
	if err != nil || node.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: cannot use %q as a mode: want octal digits such as \"0755\"", node.Line, node.Value)
	}
	*m = Mode(n)
	return nil
}

// Toolset is what a sandbox root is made of: packages and all they depend on.
type Toolset struct {
	Name          string   `yaml:"name"`
	For           string   `yaml:"for"` // a sentence for people
	Packages      []string `yaml:"packages"`
	Exact         bool     `yaml:"exact"`         // the packages alone, for their files
	Architectures []string `yaml:"architectures"` // nil: all that are locked
}

// Recipes is the whole recipes folder.
type Recipes struct {
	Suites        []string
	Architectures []string
	GoModule      string // the toolchain, "golang.org/toolchain"
	GoVersion     string // "v0.0.1-go1.26.8", to which the platform is added
	Toolsets      []Toolset
	Recipes       []Recipe // sorted by name
}

// RootSet is the set of all packages that debian recipes take files from.
const RootSet = "root"

// LoadRecipes reads the recipes of a repository's pkgs folder.
func LoadRecipes(dir string) (*Recipes, error) {
	var t struct {
		Schema        int       `yaml:"schema"`
		Suites        []string  `yaml:"suites"`
		Architectures []string  `yaml:"architectures"`
		Go            goPin     `yaml:"go"`
		Toolsets      []Toolset `yaml:"toolsets"`
	}
	top := filepath.Join(dir, "recipes")
	file := filepath.Join(top, "toolsets.yaml")
	if err := decodeFile(file, &t); err != nil {
		return nil, err
	}
	if t.Schema != RecipeSchema {
		return nil, fmt.Errorf("reading %s: cannot read schema version %d: this factory knows %d", file, t.Schema, RecipeSchema)
	}
	r := &Recipes{Suites: t.Suites, Architectures: t.Architectures, GoModule: t.Go.Module, GoVersion: t.Go.Version, Toolsets: t.Toolsets}
	files, err := filepath.Glob(filepath.Join(top, "*", "recipe.yaml"))
	if err != nil {
		return nil, err
	}
	sort.Strings(files)
	for _, file := range files {
		recipe, err := loadRecipe(file)
		if err != nil {
			return nil, err
		}
		r.Recipes = append(r.Recipes, *recipe)
	}
	return r, nil
}

type goPin struct {
	Module  string `yaml:"module"`
	Version string `yaml:"version"`
}

// decodeFile reads one YAML document; a field that is unknown or given twice is an error with its line.
func decodeFile(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading %s: more than one document", file)
	}
	return nil
}

func loadRecipe(file string) (*Recipe, error) {
	r := &Recipe{Dir: filepath.Dir(file)}
	if err := decodeFile(file, r); err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return r, nil
}

func (r *Recipe) check() error {
	if r.Schema != RecipeSchema {
		return fmt.Errorf("cannot read schema version %d: this factory knows %d", r.Schema, RecipeSchema)
	}
	if r.Name != filepath.Base(r.Dir) {
		return fmt.Errorf("cannot use name %q: it is not the folder's", r.Name)
	}
	if r.Licence == "" || len(r.Files) == 0 {
		return errors.New("cannot do without licence and files")
	}
	switch b := r.Build; {
	case r.Kind == KindDebian && len(r.Packages) > 0 && b.Toolset == "":
	case r.Kind == KindGoMod && b.Toolset != "" && len(b.Imports) > 0 && b.Script == "" && r.Packages == nil:
	case r.Kind == KindSource && b.Toolset != "" && b.Source != "" && b.Script != "" && r.Packages == nil:
	case slices.Contains([]string{KindDebian, KindGoMod, KindSource}, r.Kind):
		return fmt.Errorf("cannot use the fields given for kind %s: debian has packages; gomod has build.toolset and build.imports; source has build.toolset, build.source and build.script", r.Kind)
	default:
		return fmt.Errorf("cannot use kind %q: want debian, gomod or source", r.Kind)
	}
	for _, f := range r.Files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || (f.Source == "") == (f.Link == "") {
			return fmt.Errorf("cannot use file %+v: want an absolute clean path and one of source and link", f)
		}
		if f.Mode&0o7000 != 0 {
			return fmt.Errorf("cannot use mode %o for %s: setuid, setgid and sticky files have no place in the root", f.Mode, f.Path)
		}
	}
	return nil
}

// Recipe finds a recipe by name.
func (r *Recipes) Recipe(name string) (*Recipe, error) {
	for i := range r.Recipes {
		if r.Recipes[i].Name == name {
			return &r.Recipes[i], nil
		}
	}
	return nil, fmt.Errorf("cannot find recipe %q", name)
}

// SetSpec is what a set asks for on one architecture.
type SetSpec struct {
	Roots []string
	Exact bool // the packages alone, not what they depend on
}

// SetSpecs lists every set of the architecture. The root set is taken exactly, since recipes pick single files.
func (r *Recipes) SetSpecs(arch string) map[string]SetSpec {
	all := map[string]SetSpec{}
	for _, t := range r.Toolsets {
		if t.Architectures == nil || slices.Contains(t.Architectures, arch) {
			all[t.Name] = SetSpec{slices.Sorted(slices.Values(t.Packages)), t.Exact}
		}
	}
	root := map[string]bool{}
	for _, recipe := range r.Recipes {
		for _, p := range recipe.Packages {
			root[p] = true
		}
	}
	if len(root) > 0 {
		all[RootSet] = SetSpec{slices.Sorted(maps.Keys(root)), true}
	}
	return all
}

// FilesFor lists the recipe's files with {triplet} and {loader} replaced by the architecture's multiarch
// triplet and the path of its dynamic loader below /usr (the psABI puts it at /lib64/... or /lib/...).
func (r *Recipe) FilesFor(arch string) ([]File, error) {
	var replace *strings.Replacer
	switch arch {
	case "amd64":
		replace = strings.NewReplacer("{triplet}", "x86_64-linux-gnu", "{loader}", "lib64/ld-linux-x86-64.so.2")
	case "arm64":
		replace = strings.NewReplacer("{triplet}", "aarch64-linux-gnu", "{loader}", "lib/ld-linux-aarch64.so.1")
	default:
		return nil, fmt.Errorf("cannot use architecture %q: want amd64 or arm64", arch)
	}
	files := slices.Clone(r.Files)
	for i := range files {
		f := &files[i]
		f.Source, f.Path, f.Link = replace.Replace(f.Source), replace.Replace(f.Path), replace.Replace(f.Link)
	}
	return files, nil
}
