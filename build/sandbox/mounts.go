package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mounter builds the sandbox's file system. Until pivot, the current directory is the scratch
// directory, so no path of the host has to be quoted in mount options.
type mounter struct {
	spec     Spec
	rootFD   int
	overlays int
}

// private keeps our mounts from the host, and moves to the scratch directory.
func (m *mounter) private() error {
	unix.Umask(0o022) // before the first mount point is made, so that none has the caller's
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return os.Chdir(m.spec.Scratch)
}

// root mounts the tree with the path "/" under an overlay, whose upper layer only ever
// gets the mount points that the tree lacks.
func (m *mounter) root() error {
	for _, t := range m.spec.Trees {
		if t.Path != "/" {
			continue
		}
		if err := os.Mkdir("root", 0o755); err != nil {
			return err
		}
		if err := m.overlay(t.Host, "root"); err != nil {
			return err
		}
		var err error
		m.rootFD, err = unix.Open("root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	}
	return errors.New("cannot make a sandbox: no tree is its root")
}

// overlay mounts lower at target with a writable layer of its own.
func (m *mounter) overlay(lower, target string) error {
	n := strconv.Itoa(m.overlays)
	m.overlays++
	for _, dir := range []string{"upper" + n, "index" + n} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink(lower, "lower"+n); err != nil {
		return err
	}
	// userxattr: trusted.* attributes are not for user namespaces (Linux 5.11).
	opts := fmt.Sprintf("userxattr,lowerdir=lower%s,upperdir=upper%s,workdir=index%s", n, n, n)
	return unix.Mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, opts)
}

// binds puts everything else in its place, outer paths first. The directories that
// every sandbox has come before all, because links in trees lead to them.
func (m *mounter) binds() error {
	if err := m.ownDirs(); err != nil {
		return err
	}
	all := append([]Bind{}, m.spec.Binds...)
	isTree := map[string]bool{}
	for _, t := range m.spec.Trees {
		if t.Path != "/" {
			all = append(all, t)
			isTree[t.Path] = true
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Path < all[j].Path })
	var overlaid []string
	for _, b := range all {
		var err error
		if isTree[b.Path] && hasInner(all, b.Path) {
			overlaid = append(overlaid, b.Path)
			err = m.treeWithMountPoints(b)
		} else {
			err = m.bind(b)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", b.Path, err)
		}
	}
	for _, p := range overlaid {
		if err := m.readOnly(p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	fd, err := m.ensure(m.spec.Dir, true)
	if err != nil {
		return fmt.Errorf("%s: %w", m.spec.Dir, err)
	}
	return unix.Close(fd)
}

// ownDirs makes the writable directories.
func (m *mounter) ownDirs() error {
	for _, dir := range []string{WorkDir, OutDir, TmpDir} {
		host := path.Join(m.spec.Scratch, path.Base(dir))
		if err := os.Mkdir(host, 0o755); err != nil {
			return err
		}
		if err := m.bind(Bind{host, dir, true}); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return os.Chmod(path.Base(TmpDir), 0o777|os.ModeSticky)
}

func hasInner(all []Bind, dir string) bool {
	for _, b := range all {
		if strings.HasPrefix(b.Path, dir+"/") {
			return true
		}
	}
	return false
}

func (m *mounter) treeWithMountPoints(b Bind) error {
	target, err := m.ensure(b.Path, true)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	return m.overlay(b.Host, fdPath(target))
}

// bind shows b.Host at b.Path.
func (m *mounter) bind(b Bind) error {
	return m.attach(b, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

func (m *mounter) attach(b Bind, attr uint64) error {
	source, err := unix.OpenTree(unix.AT_FDCWD, b.Host, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("opening %s: %w", b.Host, err)
	}
	defer unix.Close(source)
	if !b.Writable {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(source, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr}); err != nil {
		return fmt.Errorf("restricting %s: %w", b.Host, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil {
		return err
	}
	target, err := m.ensure(b.Path, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	return unix.MoveMount(source, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// readOnly restricts what is mounted at a path of the sandbox.
func (m *mounter) readOnly(p string) error {
	fd, err := m.lookup(p)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// lookup resolves a path as a process inside would: links never lead out of the root.
func (m *mounter) lookup(p string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	if p = strings.TrimPrefix(p, "/"); p == "" {
		p = "."
	}
	return unix.Openat2(m.rootFD, p, &how)
}

// ensure opens the mount point p, which it makes if it is not there.
func (m *mounter) ensure(p string, dir bool) (int, error) {
	fd, err := m.lookup(p)
	if err == nil || !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	parent, err := m.ensure(path.Dir(p), true)
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	if dir {
		err = unix.Mkdirat(parent, path.Base(p), 0o755)
	} else {
		err = unix.Mknodat(parent, path.Base(p), unix.S_IFREG|0o644, 0)
	}
	if err != nil {
		return -1, fmt.Errorf("making the mount point: %w", err)
	}
	return m.lookup(p)
}

// pivot makes the new root the only one there is, and read-only.
func (m *mounter) pivot() error {
	if err := unix.Fchdir(m.rootFD); err != nil {
		return err
	}
	// The old root is stacked on the new one, from where it is detached: pivot_root(2), NOTES.
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return m.readOnly("/")
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
