package pkgs

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// WriteDiff prints for people what a new lock changes; old may be nil. It returns whether anything did.
func WriteDiff(w io.Writer, old, new *Lock) (changed bool, err error) {
	if old == nil {
		old = &Lock{}
	}
	var out []string
	for _, s := range new.Suites {
		switch o := old.suite(s.Suite); {
		case o == nil:
			out = append(out, fmt.Sprintf("suite %s: of %s", s.Suite, s.Date.Format("2006-01-02 15:04")))
		case o.InRelease != s.InRelease:
			out = append(out, fmt.Sprintf("suite %s: %s -> %s", s.Suite, o.Date.Format("2006-01-02 15:04"), s.Date.Format("2006-01-02 15:04")))
		}
	}
	out = append(out, diffMaps("go", versionsOfGo(old), versionsOfGo(new))...)
	for _, arch := range slices.Sorted(maps.Keys(new.Packages)) {
		out = append(out, diffMaps(arch, versions(old.Packages[arch]), versions(new.Packages[arch]))...)
	}
	out = append(out, diffMaps("set", setTexts(old), setTexts(new))...)
	for _, line := range out {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return true, err
		}
	}
	return len(out) > 0, nil
}

func versions(list []Package) map[string]string {
	m := map[string]string{}
	for _, p := range list {
		m[p.Name] = p.Version
	}
	return m
}

func versionsOfGo(l *Lock) map[string]string {
	m := map[string]string{}
	for _, t := range l.Go {
		m[t.Architecture] = t.Version
	}
	return m
}

func setTexts(l *Lock) map[string]string {
	m := map[string]string{}
	for name, archs := range l.Sets {
		for arch, s := range archs {
			m[name+" "+arch] = fmt.Sprintf("%d packages for %s", len(s.Packages), strings.Join(s.Roots, " "))
		}
	}
	return m
}

func diffMaps(label string, old, new map[string]string) []string {
	names := map[string]bool{}
	for n := range old {
		names[n] = true
	}
	for n := range new {
		names[n] = true
	}
	var out []string
	for _, n := range slices.Sorted(maps.Keys(names)) {
		o, wasThere := old[n]
		v, isThere := new[n]
		switch {
		case !wasThere:
			out = append(out, fmt.Sprintf("%s + %s %s", label, n, v))
		case !isThere:
			out = append(out, fmt.Sprintf("%s - %s %s", label, n, o))
		case o != v:
			out = append(out, fmt.Sprintf("%s ~ %s %s -> %s", label, n, o, v))
		}
	}
	return out
}
