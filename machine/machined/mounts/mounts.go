//go:build linux

// Package mounts has the machine's in-memory layer: the list of pseudo and tmpfs mounts made before anything else, and the overlays
// that make a few directories of the read-only root writable.
//
// It does not mount disks (package disk), and it does not know who writes into what it mounts.
package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is one entry.
type Mount struct {
	Type, Target string
	Flags        uintptr
	Data         string
	// Optional mounts need something a kernel or firmware may lack (efivarfs on a BIOS machine).
	Optional bool
}

const (
	quiet  = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	nosuid = unix.MS_NOSUID | unix.MS_NODEV
)

// Pseudo are the file systems of the kernel and memory, in order. /proc, /sys and /dev come from the initramfs.
func Pseudo() []Mount {
	return []Mount{
		{Type: "devpts", Target: "/dev/pts", Flags: unix.MS_NOSUID | unix.MS_NOEXEC, Data: "ptmxmode=0666,mode=0620,gid=5"},
		{Type: "tmpfs", Target: "/dev/shm", Flags: quiet, Data: "mode=1777"},
		{Type: "mqueue", Target: "/dev/mqueue", Flags: quiet, Optional: true},
		{Type: "hugetlbfs", Target: "/dev/hugepages", Flags: nosuid, Optional: true},
		{Type: "cgroup2", Target: "/sys/fs/cgroup", Flags: quiet, Data: "nsdelegate"},
		{Type: "securityfs", Target: "/sys/kernel/security", Flags: quiet, Optional: true},
		{Type: "tracefs", Target: "/sys/kernel/tracing", Flags: quiet, Optional: true},
		{Type: "bpf", Target: "/sys/fs/bpf", Flags: quiet, Data: "mode=0700", Optional: true},
		{Type: "pstore", Target: "/sys/fs/pstore", Flags: quiet, Optional: true},
		{Type: "efivarfs", Target: "/sys/firmware/efi/efivars", Flags: quiet | unix.MS_RDONLY, Optional: true},
		// Containers' bundles and shims are under /run, so it must allow execution.
		{Type: "tmpfs", Target: "/run", Flags: nosuid, Data: "mode=0755"},
		{Type: "tmpfs", Target: "/system", Flags: quiet, Data: "mode=0755"},
		{Type: "tmpfs", Target: "/tmp", Flags: quiet, Data: "mode=1777,size=256M"},
	}
}

// Overlay is a directory of the root made writable, its changes kept under a directory of /var.
type Overlay struct{ Target string }

// Overlays are the few directories of the root that must be writable and persist.
func Overlays() []Overlay {
	return []Overlay{{"/etc/kubernetes"}, {"/etc/cni"}, {"/opt"}}
}

// Dirs are where the overlay keeps its changes under base: upper, and work for the kernel's own use.
func (o Overlay) Dirs(base string) (upper, work string) {
	name := strings.ReplaceAll(strings.TrimPrefix(o.Target, "/"), "/", "-")

	return filepath.Join(base, name, "upper"), filepath.Join(base, name, "work")
}

// Do mounts the entry, making its target if it can. Where such a file system is already mounted it does nothing.
func (m Mount) Do() error {
	if err := m.do(); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", m.Type, m.Target, err)
	}

	return nil
}

func (m Mount) do() error {
	if err := os.MkdirAll(m.Target, 0o755); err != nil {
		return err
	}

	err := unix.Mount(m.Type, m.Target, m.Type, m.Flags, m.Data)
	if errors.Is(err, unix.EBUSY) {
		return nil
	}

	return err
}

// Do mounts the overlay over its target.
func (o Overlay) Do(base string) error {
	upper, work := o.Dirs(base)
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}

	data := "lowerdir=" + o.Target + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", o.Target, "overlay", nosuid, data); err != nil {
		return fmt.Errorf("mounting the overlay of %s: %w", o.Target, err)
	}

	return nil
}

// Unmount takes a mount away. If something still uses it, it is made read-only instead, so that nothing is lost at power-off.
func Unmount(target string) error {
	err := unix.Unmount(target, 0)
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // EINVAL: not a mount point
		return nil
	}

	if rerr := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); rerr != nil {
		return fmt.Errorf("unmounting %s: %w; making it read-only: %w", target, err, rerr)
	}

	return nil
}
