package debian

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"pault.ag/go/debian/dependency"
	"pault.ag/go/debian/version"
)

// Universe is every package of one architecture that may be chosen: for each name the
// highest version seen, as apt's candidate is when no pin says otherwise.
type Universe struct {
	Arch      string
	packages  map[string]*Package
	providers map[string][]provider
}

type provider struct {
	pkg     *Package
	version *version.Version // nil: an unversioned Provides satisfies no version constraint
}

// NewUniverse indexes the packages; order does not matter, except that of two equal
// versions the first stays.
func NewUniverse(arch string, packages []*Package) (*Universe, error) {
	u := &Universe{Arch: arch, packages: map[string]*Package{}, providers: map[string][]provider{}}
	for _, p := range packages {
		if p.Architecture != arch && p.Architecture != "all" {
			continue
		}
		if old := u.packages[p.Name]; old == nil || version.Compare(p.Version, old.Version) > 0 {
			u.packages[p.Name] = p
		}
	}
	for _, p := range u.packages {
		relations, err := parseRelation(p.fields["Provides"])
		if err != nil {
			return nil, fmt.Errorf("reading Provides of %s: %w", p.Name, err)
		}
		p.Provides = relations
		for _, r := range relations {
			for _, possible := range r.Possibilities {
				pr := provider{pkg: p}
				if possible.Version != nil {
					v, err := version.Parse(possible.Version.Number)
					if err != nil {
						return nil, fmt.Errorf("reading Provides of %s: %w", p.Name, err)
					}
					pr.version = &v
				}
				u.providers[possible.Name] = append(u.providers[possible.Name], pr)
			}
		}
	}
	for _, list := range u.providers {
		sort.SliceStable(list, func(i, j int) bool { return preferred(list[i].pkg, list[j].pkg) })
	}
	return u, nil
}

// preferred orders providers of one virtual package: by archive priority, then by name.
func preferred(a, b *Package) bool {
	order := []string{"required", "important", "standard", "optional", "extra"}
	ia, ib := slices.Index(order, a.Priority), slices.Index(order, b.Priority)
	if ia != ib {
		return ia < ib
	}
	return a.Name < b.Name
}

// Package returns the candidate of that name, or nil.
func (u *Universe) Package(name string) *Package { return u.packages[name] }

// resolution is one closure in the making.
type resolution struct {
	u        *Universe
	chosen   map[string]*Package
	why      map[string]string
	queue    []*Package
	deferred []want
}

type want struct {
	relation dependency.Relation
	by       string
}

// Resolve returns the closure of the roots over Pre-Depends and Depends, sorted by name.
//
// A dependency with one possible answer is followed at once. One with several waits until no other is left: if something
// chosen by then satisfies it, nothing is added; otherwise the first alternative that can be had is
// taken, as apt does. The result therefore does not depend on the order of roots. Choices are never taken back; a
// closure with a conflict is an error, and naming the wanted alternative among the roots resolves it.
func (u *Universe) Resolve(roots []string) ([]*Package, error) {
	r := &resolution{u: u, chosen: map[string]*Package{}, why: map[string]string{}}
	roots = slices.Clone(roots)
	sort.Strings(roots)
	for _, name := range roots {
		p := u.packages[name]
		if p == nil {
			return nil, fmt.Errorf("unknown package %q for %s%s", name, u.Arch, u.providedBy(name))
		}
		r.choose(p, "asked for")
	}
	for len(r.queue) > 0 || len(r.deferred) > 0 {
		if err := r.step(); err != nil {
			return nil, err
		}
	}
	if err := r.conflicts(); err != nil {
		return nil, err
	}
	all := make([]*Package, 0, len(r.chosen))
	for _, p := range r.chosen {
		all = append(all, p)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all, nil
}

func (u *Universe) providedBy(name string) string {
	var names []string
	for _, p := range u.providers[name] {
		names = append(names, p.pkg.Name)
	}
	if names == nil {
		return ""
	}
	return " (it is virtual; provided by " + strings.Join(names, ", ") + ")"
}

func (r *resolution) choose(p *Package, why string) {
	if r.chosen[p.Name] != nil {
		return
	}
	r.chosen[p.Name] = p
	r.why[p.Name] = why
	r.queue = append(r.queue, p)
}

func (r *resolution) step() error {
	if len(r.queue) == 0 {
		w := r.deferred[0]
		r.deferred = r.deferred[1:]
		if r.satisfied(w.relation) {
			return nil
		}
		r.choose(r.candidates(w.relation)[0], w.by)
		return nil
	}
	p := r.queue[0]
	r.queue = r.queue[1:]
	if err := p.parseRelations(); err != nil {
		return err
	}
	for _, rel := range p.Depends {
		if r.satisfied(rel) {
			continue
		}
		switch c := r.candidates(rel); {
		case len(c) == 0 && !r.applies(rel):
		case len(c) == 0:
			return fmt.Errorf("cannot satisfy %q of %s %s on %s (%s)", rel.String(), p.Name, p.Version, r.u.Arch, r.chain(p.Name))
		case len(c) == 1:
			r.choose(c[0], p.Name)
		default:
			r.deferred = append(r.deferred, want{rel, p.Name})
		}
	}
	return nil
}

// chain tells how a package came in: "needed by a, needed by b, asked for".
func (r *resolution) chain(name string) string {
	var out []string
	for len(out) < 20 {
		why := r.why[name]
		if why == "asked for" {
			return strings.Join(append(out, why), ", ")
		}
		out = append(out, "needed by "+why)
		name = why
	}
	return strings.Join(out, ", ")
}

// applies reports whether any alternative is meant for this architecture.
func (r *resolution) applies(rel dependency.Relation) bool {
	return slices.ContainsFunc(rel.Possibilities, r.u.applies)
}

func (u *Universe) applies(p dependency.Possibility) bool {
	if p.Architectures == nil || len(p.Architectures.Architectures) == 0 {
		return true
	}
	arch, err := dependency.ParseArch(u.Arch)
	return err == nil && p.Architectures.Matches(arch)
}

func (r *resolution) satisfied(rel dependency.Relation) bool {
	for _, possible := range rel.Possibilities {
		for _, p := range r.u.matching(possible) {
			if r.chosen[p.Name] != nil {
				return true
			}
		}
	}
	return false
}

// candidates lists what satisfies the relation, in the order of preference.
func (r *resolution) candidates(rel dependency.Relation) []*Package {
	var all []*Package
	for _, possible := range rel.Possibilities {
		for _, p := range r.u.matching(possible) {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// matching lists the packages that satisfy one alternative: the package of that name, then its providers.
func (u *Universe) matching(possible dependency.Possibility) []*Package {
	if !u.applies(possible) {
		return nil
	}
	// "python3:any" and "gcc:amd64": one architecture at a time makes "any" and our own the same.
	if a := possible.Arch; a != nil && a.CPU != "any" && a.String() != u.Arch {
		return nil
	}
	var all []*Package
	if p := u.packages[possible.Name]; p != nil && satisfies(p.Version, possible.Version) {
		all = append(all, p)
	}
	for _, pr := range u.providers[possible.Name] {
		switch {
		case possible.Version == nil:
		case pr.version == nil || !satisfies(*pr.version, possible.Version):
			continue
		}
		if !slices.Contains(all, pr.pkg) {
			all = append(all, pr.pkg)
		}
	}
	return all
}

// satisfies applies a constraint; Debian Policy 7.1 lists the operators.
func satisfies(have version.Version, want *dependency.VersionRelation) bool {
	if want == nil {
		return true
	}
	number, err := version.Parse(want.Number)
	if err != nil {
		return false
	}
	c := version.Compare(have, number)
	switch want.Operator {
	case "=":
		return c == 0
	case ">=", ">": // a bare ">" is the obsolete spelling of ">="
		return c >= 0
	case "<=", "<":
		return c <= 0
	case ">>":
		return c > 0
	case "<<":
		return c < 0
	}
	return false
}

func (r *resolution) conflicts() error {
	names := make([]string, 0, len(r.chosen))
	for name := range r.chosen {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, rel := range r.chosen[name].Conflicts {
			for _, possible := range rel.Possibilities {
				for _, other := range r.u.matching(possible) {
					if other.Name != name && r.chosen[other.Name] != nil {
						return fmt.Errorf("cannot have both %s (%s) and %s (%s): %s conflicts with %q",
							name, r.chain(name), other.Name, r.chain(other.Name), name, possible.String())
					}
				}
			}
		}
	}
	return nil
}

// Reach returns all packages any choice could bring in, sorted: a resolver given only these has
// the same freedom as with the whole archive. Tests keep them to ask apt the same question later.
func (u *Universe) Reach(roots []string) ([]*Package, error) {
	seen := map[string]*Package{}
	var queue []*Package
	add := func(p *Package) {
		if p != nil && seen[p.Name] == nil {
			seen[p.Name] = p
			queue = append(queue, p)
		}
	}
	for _, name := range roots {
		add(u.packages[name])
	}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if err := p.parseRelations(); err != nil {
			return nil, err
		}
		for _, rel := range p.Depends {
			for _, possible := range rel.Possibilities {
				for _, m := range u.matching(possible) {
					add(m)
				}
			}
		}
	}
	all := make([]*Package, 0, len(seen))
	for _, p := range seen {
		all = append(all, p)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all, nil
}
