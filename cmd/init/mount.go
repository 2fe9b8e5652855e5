//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/format/verity/superblock"
)

// pseudo are the mounts made here and moved to the new root; machined finds them in place.
var pseudo = []struct {
	fstype, target string
	flags          uintptr
	data           string
}{
	{"devtmpfs", "/dev", unix.MS_NOSUID, "mode=0755"},
	{"proc", "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"sysfs", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
}

func mountPseudo() error {
	for _, m := range pseudo {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}

		// A kernel with CONFIG_DEVTMPFS_MOUNT does not mount it for an initramfs, but EBUSY would be harmless.
		if err := unix.Mount(m.fstype, m.target, m.fstype, m.flags, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s at %s: %w", m.fstype, m.target, err)
		}
	}

	return nil
}

// mountRootImage mounts the squashfs, verified if the kernel was told its root hash. An image that the factory made always
// tells.
func mountRootImage() error {
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}

	hash, given, err := rootHash(string(cmdline))
	if err != nil {
		return err
	}

	device, err := attachLoop(rootImage)
	if err != nil {
		return err
	}

	how := "unverified, since there is no argument " + superblock.Argument
	if given {
		if device, err = verify(rootImage, device, hash); err != nil {
			return err
		}

		how = fmt.Sprintf("verified by root hash %x", hash)
	}

	if err := mountDevice(device, newRoot); err != nil {
		return err
	}

	say(6, "root is %s through %s, %s", rootImage, device, how)

	return nil
}

// mountSquashfs mounts the file through a loop device, whose name it returns.
func mountSquashfs(file, target string) (device string, err error) {
	if device, err = attachLoop(file); err != nil {
		return "", err
	}

	return device, mountDevice(device, target)
}

func mountDevice(device, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}

	if err := unix.Mount(device, target, "squashfs", unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID, ""); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", device, target, err)
	}

	return nil
}

// attachLoop returns a read-only loop device for the file. LOOP_CONFIGURE sets file and flags in one call, so there is no
// moment at which the device is writable.
func attachLoop(file string) (string, error) {
	image, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer image.Close()

	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()

	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", fmt.Errorf("finding a free loop device: %w", err)
	}

	device := fmt.Sprintf("/dev/loop%d", n)

	loop, err := os.Open(device)
	if err != nil {
		return "", err
	}
	defer loop.Close()

	// No LO_FLAGS_AUTOCLEAR: this descriptor is closed before the mount, and the device would go with it.
	config := unix.LoopConfig{Fd: uint32(image.Fd())}
	config.Info.Flags = unix.LO_FLAGS_READ_ONLY
	copy(config.Info.File_name[:], file)

	if err := unix.IoctlLoopConfigure(int(loop.Fd()), &config); err != nil {
		return "", fmt.Errorf("attaching %s to %s: %w", file, device, err)
	}

	return device, nil
}

func moveMounts() error {
	for _, m := range pseudo {
		target := filepath.Join(newRoot, m.target)
		if err := unix.Mount(m.target, target, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving %s to %s: %w", m.target, target, err)
		}
	}

	return nil
}

// switchRoot makes newRoot the root of the mount tree and becomes machined. The initramfs itself cannot be unmounted; only what
// is not needed any more is deleted from it.
func switchRoot() error {
	if err := os.Remove("/init"); err != nil {
		return err
	}

	if err := os.Chdir(newRoot); err != nil {
		return err
	}

	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving %s to /: %w", newRoot, err)
	}

	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("changing root: %w", err)
	}

	if err := os.Chdir("/"); err != nil {
		return err
	}

	return unix.Exec(nextInit, []string{nextInit}, []string{"PATH=/usr/sbin:/usr/bin", "TERM=linux"})
}
