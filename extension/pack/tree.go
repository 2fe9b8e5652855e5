package pack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/talos-factory/talos-factory/build"
)

// tree is what an extension lays over the machine's root, checked.
type tree struct {
	merge   *merge
	entries map[string]*entry // by absolute path
	module  string            // the first file below /usr/lib/modules
}

// tree takes rootfs/ out of the image, spells its paths as the machine's root has them, and refuses what an extension
// may not bring.
func (m *merge) tree() (*tree, error) {
	t := &tree{merge: m, entries: map[string]*entry{}}
	for _, name := range slices.Sorted(maps.Keys(m.entries)) {
		rest, ok := strings.CutPrefix(name, rootfsName+"/")
		switch {
		case ok:
			if err := t.add("/"+rest, m.entries[name]); err != nil {
				return nil, err
			}
		case name != manifestName && name != rootfsName:
			return nil, fmt.Errorf("it has an unexpected /%s: there may be %s and %s/", name, manifestName, rootfsName)
		}
	}
	if len(t.entries) == 0 {
		return nil, fmt.Errorf("its %s/ brings nothing", rootfsName)
	}
	return t, t.addParents()
}

func (t *tree) add(spelled string, e *entry) error {
	if slices.Contains(merged, spelled) && (e.kind == tar.TypeDir || e.kind == tar.TypeSymlink && path.Clean("/"+e.link) == "/usr"+spelled) {
		return nil // the root has that link
	}
	p := usrMerge(spelled)
	if e.kind == tar.TypeDir && (given(p) || !allowed(p)) {
		return nil // made anew if anything lies in it
	}
	if e.kind != tar.TypeDir || within(p, own) {
		if err := checkPath(p); err != nil {
			return err
		}
	}
	if e.kind == tar.TypeSymlink {
		if err := checkLink(p, e.link); err != nil {
			return err
		}
	} else if err := checkMode(p, e.mode); err != nil {
		return err
	}
	if old := t.entries[p]; old != nil && (old.kind != tar.TypeDir || e.kind != tar.TypeDir) {
		return fmt.Errorf("cannot accept %s: it is there twice, in / and in /usr", p)
	}
	if t.module == "" && e.kind != tar.TypeDir && within(p, modules) {
		t.module = p
	}
	t.entries[p] = e
	return nil
}

// addParents makes the directories on the way, which the machine's root has already, as it has them: in a
// stack of file systems the uppermost directory's mode counts.
func (t *tree) addParents() error {
	for _, p := range slices.Collect(maps.Keys(t.entries)) {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			switch e := t.entries[dir]; {
			case e == nil:
				t.entries[dir] = &entry{kind: tar.TypeDir, mode: 0o755}
			case e.kind != tar.TypeDir:
				return fmt.Errorf("cannot accept %s: %s is no directory", p, dir)
			}
		}
	}
	return nil
}

// store writes the tree into the store as a tar that depends on its content alone: sorted, owned by root, without times,
// user names and extended attributes.
func (t *tree) store(store *build.Store) (build.Blob, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(t.write(w)) }()
	blob, err := store.Put(r)
	return blob, errors.Join(err, r.Close())
}

func (t *tree) write(out io.Writer) error {
	w := tar.NewWriter(out)
	first := map[int64]string{} // where the content at an offset of the spool was written to
	for _, p := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[p]
		h := &tar.Header{Typeflag: e.kind, Name: p[1:], Mode: int64(e.mode & 0o777), ModTime: time.Unix(0, 0)}
		switch {
		case e.kind == tar.TypeDir:
			h.Name += "/"
		case e.kind == tar.TypeSymlink:
			h.Linkname, h.Mode = e.link, 0o777
		case e.len > 0 && first[e.off] != "":
			h.Typeflag, h.Linkname = tar.TypeLink, first[e.off]
		case e.len > 0:
			h.Size, first[e.off] = e.len, h.Name
		}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("writing %s: %w", p, err)
		}
		if h.Size > 0 {
			if _, err := io.Copy(w, t.merge.open(e)); err != nil {
				return fmt.Errorf("writing %s: %w", p, err)
			}
		}
	}
	return w.Close()
}
