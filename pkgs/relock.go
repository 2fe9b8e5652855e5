package pkgs

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sort"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/pkgs/debian"
	"github.com/talos-factory/talos-factory/pkgs/gomod"
)

// Relocker resolves the recipes anew against the archive.
type Relocker struct {
	Fetcher *Fetcher
	Keyring openpgp.EntityList
	Log     *slog.Logger
	// Toolchain pins the Go toolchain of an architecture; nil asks the host's go command.
	Toolchain func(ctx context.Context, module, version, arch string) (Toolchain, error)
}

// Relocked is a new lock and, by architecture, the stanzas of everything its sets could have chosen from: a test asks apt
// to resolve from the same stanzas.
type Relocked struct {
	Lock    *Lock
	Stanzas map[string][]byte // gzip
}

// Relock makes a new lock. The old one (nil at first) is only looked at to refuse an archive older than it.
func (r *Relocker) Relock(ctx context.Context, recipes *Recipes, old *Lock) (*Relocked, error) {
	archive, err := r.Fetcher.archive()
	if err != nil {
		return nil, err
	}
	out := &Relocked{
		Lock: &Lock{
			Schema: LockSchema, Packages: map[string][]Package{}, Sets: map[string]map[string]Set{}, Fetcher: r.Fetcher,
		},
		Stanzas: map[string][]byte{},
	}
	found := map[string][]*debian.Package{}
	for _, name := range recipes.Suites {
		suite, packages, err := r.suite(ctx, archive, name, recipes.Architectures, old)
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", name, err)
		}
		out.Lock.Suites = append(out.Lock.Suites, suite)
		for arch, list := range packages {
			found[arch] = append(found[arch], list...)
		}
	}
	for _, arch := range slices.Sorted(slices.Values(recipes.Architectures)) {
		if err := out.resolve(arch, found[arch], recipes.SetSpecs(arch)); err != nil {
			return nil, err
		}
		pin := r.Toolchain
		if pin == nil {
			pin = pinToolchain
		}
		t, err := pin(ctx, recipes.GoModule, recipes.GoVersion, arch)
		if err != nil {
			return nil, err
		}
		out.Lock.Go = append(out.Lock.Go, t)
	}
	return out, nil
}

func (r *Relocker) suite(ctx context.Context, a *debian.Archive, name string, archs []string, old *Lock) (Suite, map[string][]*debian.Package, error) {
	release, err := a.Release(ctx, name, r.Keyring)
	if err != nil {
		if s := old.suite(name); s != nil && errors.Is(err, debian.ErrSignature) {
			err = fmt.Errorf("%w (the locked one of %s has sha256 %s)", err, s.Date.Format("2006-01-02"), s.InRelease)
		}
		return Suite{}, nil, err
	}
	if s := old.suite(name); s != nil && release.Date.Before(s.Date) {
		return Suite{}, nil, fmt.Errorf("cannot use an InRelease of %s (sha256 %s): the locked one is newer, of %s (sha256 %s)",
			release.Date, release.SHA256, s.Date, s.InRelease)
	}
	suite := Suite{Suite: name, Date: release.Date, InRelease: release.SHA256, Signer: release.Signer, Packages: map[string]string{}}
	found := map[string][]*debian.Package{}
	for _, arch := range archs {
		r.Log.Info("reading packages", "suite", name, "architecture", arch)
		packages, index, err := a.Packages(ctx, name, release, arch)
		if err != nil {
			return Suite{}, nil, err
		}
		suite.Packages[arch] = index.SHA256
		found[arch] = packages
	}
	return suite, found, nil
}

func (l *Lock) suite(name string) *Suite {
	if l == nil {
		return nil
	}
	for i := range l.Suites {
		if l.Suites[i].Suite == name {
			return &l.Suites[i]
		}
	}
	return nil
}

// resolve fills the lock for one architecture.
func (out *Relocked) resolve(arch string, packages []*debian.Package, specs map[string]SetSpec) error {
	universe, err := debian.NewUniverse(arch, packages)
	if err != nil {
		return err
	}
	locked := map[string]*debian.Package{}
	reach := map[string]*debian.Package{}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		spec := specs[name]
		chosen, could, err := resolveSet(universe, spec)
		if err != nil {
			return fmt.Errorf("resolving set %s: %w", name, err)
		}
		set := Set{Roots: spec.Roots}
		for _, p := range chosen {
			locked[p.Name] = p
			set.Packages = append(set.Packages, p.Name)
		}
		for _, p := range could {
			reach[p.Name] = p
		}
		if out.Lock.Sets[name] == nil {
			out.Lock.Sets[name] = map[string]Set{}
		}
		out.Lock.Sets[name][arch] = set
	}
	for _, p := range sorted(locked) {
		entry, err := pin(p)
		if err != nil {
			return err
		}
		out.Lock.Packages[arch] = append(out.Lock.Packages[arch], entry)
	}
	out.Stanzas[arch], err = stanzas(sorted(reach))
	return err
}

func resolveSet(u *debian.Universe, spec SetSpec) (chosen, could []*debian.Package, err error) {
	if !spec.Exact {
		if chosen, err = u.Resolve(spec.Roots); err != nil {
			return nil, nil, err
		}
		could, err = u.Reach(spec.Roots)
		return chosen, could, err
	}
	for _, name := range spec.Roots {
		p := u.Package(name)
		if p == nil {
			return nil, nil, fmt.Errorf("unknown package %q for %s", name, u.Arch)
		}
		chosen = append(chosen, p)
	}
	return chosen, nil, nil
}

func sorted(m map[string]*debian.Package) []*debian.Package {
	all := slices.Collect(maps.Values(m))
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}

func pin(p *debian.Package) (Package, error) {
	sum, err := build.ParseDigest(p.SHA256)
	return Package{
		Name: p.Name, Version: p.Version.String(), Architecture: p.Architecture, Source: p.Source,
		Suite: p.Suite, Path: p.Filename, Size: p.Size, SHA256: sum,
	}, err
}

func stanzas(packages []*debian.Package) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		if err := p.WriteStanza(z); err != nil {
			return nil, err
		}
	}
	err = z.Close()
	return b.Bytes(), err
}

// pinToolchain trusts the host's go command, which checks modules against the checksum database.
func pinToolchain(ctx context.Context, module, version, arch string) (Toolchain, error) {
	t := Toolchain{Architecture: arch, Module: module, Version: version + ".linux-" + arch}
	d, err := gomod.Fetch(ctx, module, t.Version)
	if err != nil {
		return t, err
	}
	t.H1 = d.Sum
	f, err := os.Open(d.Zip)
	if err != nil {
		return t, err
	}
	defer f.Close()
	h := sha256.New()
	if t.Size, err = io.Copy(h, f); err != nil {
		return t, err
	}
	t.SHA256 = build.Digest(h.Sum(nil))
	return t, nil
}
