//go:build linux

// Command init is the machine's first process: PID 1 of the initramfs. It mounts the pseudo file systems, mounts the squashfs
// that lies beside it in the initramfs through a loop device, lays the image's customization over it if there is one (system
// extensions and plain files, by overlayfs), makes that the root and executes its /sbin/init (machined).
//
// If the kernel was given a root hash as talos.verity=HASH, which every image of the factory gives, then the squashfs is read
// through dm-verity: a block that does not match panics the kernel, at boot and later. Without it the squashfs is read as it is.
//
// It does not read the machine's configuration, load modules, touch disks or the network: all that is machined's. It has no
// dependency beyond x/sys and the superblock that it reads, because every byte of it is in every image (u-root's loop and
// switch_root packages ask for a writable backing file and bring a logger; three system calls do).
//
// Both must stay in the initramfs' file system: loop devices and overlayfs read from there for as long as the machine runs.
package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Where the initramfs builder puts the root image, where it is mounted, and what is started from it.
const (
	rootImage = "/rootfs.sqsh"
	newRoot   = "/root"
	nextInit  = "/sbin/init"
)

// failureDelay lets a person read the console before the machine tries again.
const failureDelay = 10 * time.Second

func main() {
	err := run()

	// run returns only when something is wrong.
	say(3, "cannot start the machine: %v; rebooting in %s", err, failureDelay)
	time.Sleep(failureDelay)
	unix.Sync()

	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART); err != nil {
		say(0, "rebooting: %v", err)
	}
	// PID 1 that ends makes the kernel panic, and panic= reboots.
	os.Exit(1)
}

func run() error {
	if os.Getpid() != 1 {
		return fmt.Errorf("cannot run as process %d: this is the initramfs' PID 1", os.Getpid())
	}

	for _, step := range steps() {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}

	return nil
}

// step is one thing on the way to the real root; the list reads as the whole story.
type step struct {
	name string
	do   func() error
}

func steps() []step {
	return []step{
		{"mounting pseudo file systems", mountPseudo},
		{"mounting " + rootImage, mountRootImage},
		{"laying the customization over the root", customize},
		{"moving mounts to the new root", moveMounts},
		{"switching root to " + nextInit, switchRoot},
	}
}

// say writes one line to the kernel log, which also is what the console shows. The level is syslog's (3 error, 6 info).
func say(level int, format string, args ...any) {
	line := fmt.Sprintf("<%d>init: ", level) + fmt.Sprintf(format, args...) + "\n"

	for _, dev := range []string{"/dev", newRoot + "/dev"} { // before and after moveMounts
		f, err := os.OpenFile(dev+"/kmsg", os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		defer f.Close()

		if _, err := f.WriteString(line); err == nil {
			return
		}
	}

	fmt.Fprint(os.Stderr, line[3:])
}
