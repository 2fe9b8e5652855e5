// Package pkgs holds the inputs of a build: the recipes, the lock that pins what they need, and
// the trees and steps made from both.
//
// At build time nothing is trusted but the lock's sizes and SHA-256 sums; who serves the bytes does not matter.
// OpenPGP, indexes and dependency resolution belong to Relock alone. The package names no host: mirrors come from
// the host's apt configuration, Go modules from the host's go command. It decides nothing about the
// machine's root beyond what recipes say; putting the root together is package rootfs's.
package pkgs

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/pkgs/gomod"
)

// LockSchema is the version of lock.json this code reads and writes.
const LockSchema = 1

// LockFile is the lock's name in the pkgs folder.
const LockFile = "lock.json"

// Lock pins every package and toolchain a build may fetch.
type Lock struct {
	Schema   int
	Suites   []Suite
	Go       []Toolchain
	Packages map[string][]Package      // by architecture, sorted by name
	Sets     map[string]map[string]Set // by name, then by architecture

	Fetcher *Fetcher // where the trees' fetches get their bytes; Load sets the default

	modules []*gomod.Modules // that the steps described so far need
}

// Suite is a suite of the Debian archive as it was when locked.
type Suite struct {
	Suite     string            `json:"suite"` // "debian/trixie": archive and suite, no host
	Date      time.Time         `json:"date"`
	InRelease string            `json:"inrelease_sha256"`
	Signer    string            `json:"signer"`
	Packages  map[string]string `json:"packages_sha256"` // by architecture
}

// Package is one pinned .deb.
type Package struct {
	Name         string       `json:"name"`
	Version      string       `json:"version"`
	Architecture string       `json:"architecture"`
	Source       string       `json:"source"`
	Suite        string       `json:"suite"`
	Path         string       `json:"path"` // below the archive root
	Size         int64        `json:"size"`
	SHA256       build.Digest `json:"sha256"`
}

// Toolchain is the pinned Go toolchain of one architecture, a module.
type Toolchain struct {
	Architecture string       `json:"architecture"`
	Module       string       `json:"module"`
	Version      string       `json:"version"`
	Size         int64        `json:"size"`
	SHA256       build.Digest `json:"sha256"` // of the module's zip
	H1           string       `json:"h1"`     // the same as go.sum would have it
}

// Set is a list of packages that are unpacked together.
type Set struct {
	Roots    []string `json:"roots"`    // what the recipe asks for
	Packages []string `json:"packages"` // what that comes to
}

// Blob is what the package must be.
func (p Package) Blob() build.Blob { return build.Blob{Digest: p.SHA256, Size: p.Size} }

// Blob is what the toolchain's zip must be.
func (t Toolchain) Blob() build.Blob { return build.Blob{Digest: t.SHA256, Size: t.Size} }

//go:embed lock.json
var builtin []byte

// Builtin is the lock this program was built with: what a factory without a checkout takes its tools from.
func Builtin() (*Lock, error) {
	l, err := Read(builtin)
	if err != nil {
		return nil, fmt.Errorf("reading built-in lock: %w", err)
	}
	return l, nil
}

// Read makes a lock of its text that packages can be fetched by.
func Read(text []byte) (*Lock, error) {
	l, err := ParseLock(text)
	if err != nil {
		return nil, err
	}
	l.Fetcher = &Fetcher{Date: l.Date()}
	return l, nil
}

// Load reads the lock of a repository's pkgs folder.
func Load(dir string) (*Lock, error) {
	name := filepath.Join(dir, LockFile)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot find %s: %w", name, ErrStale)
	}
	if err != nil {
		return nil, err
	}
	l, err := Read(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return l, nil
}

// ParseLock reads what Marshal wrote.
func ParseLock(data []byte) (*Lock, error) {
	var version struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, err
	}
	if version.Schema != LockSchema {
		return nil, fmt.Errorf("cannot read schema version %d: this factory knows %d", version.Schema, LockSchema)
	}
	var l struct {
		Schema   int                       `json:"schema"`
		Suites   []Suite                   `json:"suites"`
		Go       []Toolchain               `json:"go"`
		Packages map[string][]Package      `json:"packages"`
		Sets     map[string]map[string]Set `json:"sets"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return nil, err
	}
	return &Lock{Schema: l.Schema, Suites: l.Suites, Go: l.Go, Packages: l.Packages, Sets: l.Sets}, nil
}

// Date is the newest date of the locked suites.
func (l *Lock) Date() time.Time {
	var newest time.Time
	for _, s := range l.Suites {
		if s.Date.After(newest) {
			newest = s.Date
		}
	}
	return newest
}

// Package finds a locked package of the architecture.
func (l *Lock) Package(name, arch string) (Package, error) {
	list := l.Packages[arch]
	i := sort.Search(len(list), func(i int) bool { return list[i].Name >= name })
	if i == len(list) || list[i].Name != name {
		return Package{}, fmt.Errorf("cannot find package %q for %s in the lock: %w", name, arch, ErrStale)
	}
	return list[i], nil
}

// Marshal writes the lock as JSON with a line for each thing, so that a change of one package is a change of one line.
func (l *Lock) Marshal() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n\"schema\": %d,\n\"suites\": [\n", l.Schema)
	err := errors.Join(lines(&b, l.Suites), section(&b, "],\n\"go\": [\n"), lines(&b, l.Go))
	b.WriteString("],\n\"packages\": {\n")
	for i, arch := range slices.Sorted(maps.Keys(l.Packages)) {
		fmt.Fprintf(&b, "%s%q: [\n", comma(i), arch)
		err = errors.Join(err, lines(&b, l.Packages[arch]))
		b.WriteString("]")
	}
	b.WriteString("\n},\n\"sets\": {\n")
	for i, name := range slices.Sorted(maps.Keys(l.Sets)) {
		fmt.Fprintf(&b, "%s%q: {\n", comma(i), name)
		for j, arch := range slices.Sorted(maps.Keys(l.Sets[name])) {
			set, setErr := json.Marshal(l.Sets[name][arch])
			err = errors.Join(err, setErr)
			fmt.Fprintf(&b, "%s%q: %s", comma(j), arch, set)
		}
		b.WriteString("\n}")
	}
	b.WriteString("\n}\n}\n")
	return b.Bytes(), err
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ",\n"
}

func section(b *bytes.Buffer, text string) error {
	_, err := b.WriteString(text)
	return err
}

func lines[T any](b *bytes.Buffer, items []T) error {
	for i, item := range items {
		data, err := json.Marshal(item)
		if err != nil {
			return err
		}
		b.WriteString(comma(i))
		b.Write(data)
	}
	b.WriteString("\n")
	return nil
}

// Check reports whether the lock is of these recipes.
func (l *Lock) Check(r *Recipes) error {
	for _, arch := range r.Architectures {
		for name, spec := range r.SetSpecs(arch) {
			if !slices.Equal(l.Sets[name][arch].Roots, spec.Roots) {
				return fmt.Errorf("recipes ask for other packages in set %s for %s than are locked: %w", name, arch, ErrStale)
			}
		}
		t, err := l.toolchain(arch)
		if err != nil {
			return err
		}
		if want := r.GoVersion + ".linux-" + arch; t.Version != want || t.Module != r.GoModule {
			return fmt.Errorf("recipes ask for Go %s, locked is %s: %w", want, t.Version, ErrStale)
		}
	}
	return nil
}
