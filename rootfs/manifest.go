// Package rootfs describes the machine's root: an ownership manifest made from recipes and a fixed skeleton, and the step that
// packs it as a squashfs.
//
// It chooses no package (pkgs/recipes does) and writes no squashfs itself: mksquashfs, a pinned tool, does.
package rootfs

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Kind is what an entry is.
type Kind byte

// The kinds of entries a root has.
const (
	Directory Kind = 'd'
	File      Kind = 'f'
	Symlink   Kind = 's'
)

// Entry is one line of the ownership manifest: what lies at Path, who owns it, and where its bytes come from.
type Entry struct {
	Path     string // absolute, clean
	Kind     Kind
	Mode     uint32 // permission bits; setuid, setgid and sticky are refused but for a sticky directory
	UID, GID int
	Source   string // File: path in the sandbox, or several separated by spaces, or a shell pattern; concatenated
	Target   string // Symlink: what it points to
}

// Manifest is a complete, sorted list of what a root holds.
type Manifest []Entry

// NewManifest checks the entries and sorts them. Parents that no entry makes, two entries of one path, setuid
// files and unclean paths are errors.
func NewManifest(entries []Entry) (Manifest, error) {
	m := slices.Clone(entries)
	slices.SortFunc(m, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	seen := map[string]Kind{"/": Directory}
	for _, e := range m {
		if err := check(e); err != nil {
			return nil, err
		}
		if _, ok := seen[e.Path]; ok {
			return nil, fmt.Errorf("cannot put two things at %s", e.Path)
		}
		if parent := path.Dir(e.Path); seen[parent] != Directory {
			return nil, fmt.Errorf("cannot put %s into %s: no entry makes that directory", e.Path, parent)
		}
		seen[e.Path] = e.Kind
	}
	return m, nil
}

func check(e Entry) error {
	switch {
	case !path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path || e.Path == "/":
		return fmt.Errorf("cannot use path %q in a root", e.Path)
	case strings.ContainsAny(e.Path+e.Target, " \t\n\"\\"):
		return fmt.Errorf("cannot use path %q: white space and quotes are not allowed in the manifest", e.Path)
	case e.Mode&0o6000 != 0 || e.Mode&0o1000 != 0 && e.Kind != Directory:
		return fmt.Errorf("cannot give %s mode %o: the image has no setuid, setgid or sticky file", e.Path, e.Mode)
	case e.Kind == File && e.Source == "", e.Kind == Symlink && e.Target == "":
		return fmt.Errorf("cannot make %s: it has no content", e.Path)
	case e.Kind != File && e.Kind != Directory && e.Kind != Symlink:
		return fmt.Errorf("cannot make %s of kind %q", e.Path, e.Kind)
	}
	return nil
}

// PseudoFile renders the manifest as mksquashfs pseudo file definitions (mksquashfs(1), "pseudo file definitions"):
// one line an entry, with owner and mode, files as the output of cat.
func (m Manifest) PseudoFile() string {
	var b strings.Builder
	for _, e := range m {
		name := strings.TrimPrefix(e.Path, "/")
		fmt.Fprintf(&b, "%s %c %o %d %d", name, e.Kind, e.Mode, e.UID, e.GID)
		switch e.Kind {
		case File:
			fmt.Fprintf(&b, " cat %s", e.Source)
		case Symlink:
			fmt.Fprintf(&b, " %s", e.Target)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
