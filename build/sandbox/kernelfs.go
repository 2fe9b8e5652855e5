package sandbox

import (
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// rootOnly are files of /proc that an ordinary user's sandbox cannot open anyway. A sandbox made by root could,
// since these ask for the owner's uid and for no capability; so they are covered, and both see the same.
var rootOnly = []string{
	"kcore", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "slabinfo", "timer_list", "vmallocinfo",
}

// proc mounts a /proc of the new pid namespace, read-only: some of its files act on the whole
// machine (sys, sysrq-trigger, scsi, mtrr, a driver's own), and to those a sandbox made by root would be root.
func (m *mounter) proc() error {
	if m.spec.Isolation == SharedPID {
		return m.bind(Bind{Host: "/proc", Path: "/proc"})
	}
	if err := m.mountNew("/proc", "proc", "", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
		return err
	}
	for _, name := range rootOnly {
		if _, err := os.Lstat(path.Join("root/proc", name)); err != nil {
			continue // not every kernel has all
		}
		if err := m.attach(Bind{Host: "/dev/null", Path: "/proc/" + name}, unix.MOUNT_ATTR_NOSUID); err != nil {
			return fmt.Errorf("hiding %s: %w", name, err)
		}
	}
	return m.readOnly("/proc")
}

// dev makes the few device nodes that programs expect; nodes cannot be made in a user
// namespace, so the host's are shown.
func (m *mounter) dev() error {
	if err := m.mountNew("/dev", "tmpfs", "mode=755,size=64k", unix.MS_NOSUID|unix.MS_NOEXEC); err != nil {
		return err
	}
	nodes := []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}
	for _, node := range append(nodes, m.spec.Devices...) {
		if err := m.attach(Bind{Host: node, Path: node, Writable: true}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC); err != nil {
			return err
		}
	}
	if err := m.mountNew("/dev/shm", "tmpfs", "mode=1777", unix.MS_NOSUID|unix.MS_NODEV); err != nil {
		return err
	}
	if err := m.mountNew("/dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=620", unix.MS_NOSUID|unix.MS_NOEXEC); err != nil {
		return err
	}
	links := [][2]string{
		{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"},
		{"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"},
	}
	dev, err := m.lookup("/dev")
	if err != nil {
		return err
	}
	defer unix.Close(dev)
	for _, l := range links {
		if err := unix.Symlinkat(l[0], dev, l[1]); err != nil {
			return err
		}
	}
	return m.readOnly("/dev")
}

// mountNew mounts a new file system at a path of the sandbox.
func (m *mounter) mountNew(p, kind, opts string, flags uintptr) error {
	target, err := m.ensure(p, true)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	if err := unix.Mount(kind, fdPath(target), kind, flags, opts); err != nil {
		return fmt.Errorf("mounting %s: %w", p, err)
	}
	return nil
}

// loopback brings lo up in the new network namespace, where it is the only link.
func loopback(hostNet bool) error {
	if hostNet {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
