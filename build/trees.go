package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"golang.org/x/sys/unix"
)

// treeDir is where a tree lies or will lie.
func (s *Store) treeDir(id Digest) string { return s.path("trees", id.String()) }

// hasTree reports whether a tree is there. It appeared by rename, so it is whole.
func (s *Store) hasTree(id Digest) bool {
	_, err := os.Lstat(s.treeDir(id))
	if err == nil {
		touch(s.usedPath(id))
	}
	return err == nil
}

// usedPath is the file beside a tree whose modification time is the tree's last use.
func (s *Store) usedPath(id Digest) string { return s.treeDir(id) + ".used" }

// makeTree fills the table's entry for t, whose fetches are in the store, unless somebody else just did.
func (s *Store) makeTree(ctx context.Context, t *Tree) (err error) {
	unlock, err := s.lockEntry(ctx, t.ID(), func() {})
	if err != nil {
		return err
	}
	defer unlock()
	if s.hasTree(t.ID()) {
		return nil
	}
	tmp, err := os.MkdirTemp(s.path("tmp"), "tree-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreMissing(removeTree(tmp))) }()
	dir := filepath.Join(tmp, "tree")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := t.Make(ctx, dir, s.Open); err != nil {
		return err
	}
	if err := freeze(dir); err != nil {
		return err
	}
	if err := s.writeFile(s.usedPath(t.ID()), []byte(t.Name+"\n")); err != nil {
		return err
	}
	return publishDir(dir, s.treeDir(t.ID()))
}

// publishDir renames a whole directory in place, after its files have reached the disk: one
// sync of the file system is much cheaper than one for each of thousands of files.
func publishDir(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Syncfs(int(f.Fd())), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return errors.Join(setEpoch(to), syncDir(filepath.Dir(to)))
}

// freeze makes a tree independent of when and by whom it was made: files are 0444 or 0555, so without setuid bits, which an
// ordinary user could not keep; directories are 0755, so that their owner can remove them (sandboxes mount the
// whole read-only); all have one modification time. Directories come last, from the deepest up.
func freeze(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			dirs = append(dirs, path)
			return nil
		}
		return freezeFile(path, d)
	})
	if err != nil {
		return err
	}
	sort.Sort(sort.Reverse(sort.StringSlice(dirs)))
	for _, path := range dirs {
		if err := os.Chmod(path, 0o755); err != nil {
			return err
		}
		if err := setEpoch(path); err != nil {
			return err
		}
	}
	return nil
}

func freezeFile(path string, d fs.DirEntry) error {
	switch d.Type() {
	case 0:
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o444)
		if info.Mode()&0o111 != 0 {
			mode = 0o555
		}
		if info.Mode() != mode {
			if err := os.Chmod(path, mode); err != nil {
				return err
			}
		}
	case fs.ModeSymlink:
	default:
		return fmt.Errorf("cannot keep %s in a tree: it is a %s", filepath.Base(path), d.Type())
	}
	return setEpoch(path)
}

// setEpoch works on a symbolic link itself.
func setEpoch(path string) error {
	ts := unix.NsecToTimespec(Epoch.UnixNano())
	err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return &os.PathError{Op: "setting the time of", Path: path, Err: err}
	}
	return nil
}
