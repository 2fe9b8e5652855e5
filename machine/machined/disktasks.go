//go:build linux

package machined

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/machine/machined/disk"
	"github.com/talos-factory/talos-factory/machine/machined/mounts"
	"github.com/talos-factory/talos-factory/machine/state"
	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

// Where things are.
const (
	blockClass  = "/sys/class/block"
	stateDir    = "/system/state"
	varDir      = "/var"
	overlayBase = "/var/system/overlays"
	// embeddedMeta is in the form of a META partition.
	embeddedMeta = "/usr/local/etc/talos/meta"
	diskWait     = 30 * time.Second
	// mediumWait is for a machine started from a medium that only installs: there is no system disk most times, and should a slow
	// one be missed, the installer sees what it holds.
	mediumWait = 10 * time.Second
)

// findDisk looks for the disk the image is on. A machine without one (started from the network or a CD) runs from memory.
func (m *Machine) findDisk(ctx context.Context) error {
	limit, halt := diskWait, m.mustHalt()
	if halt {
		limit = mediumWait
	}

	waitCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	s, err := disk.Wait(waitCtx, blockClass)
	if errors.Is(err, disk.ErrNone) && ctx.Err() == nil {
		m.diskless = true
		m.log.Warn("no system disk: nothing will survive a reboot", "waited", limit)

		return nil
	}

	if err != nil {
		return err
	}

	if halt {
		return m.halt(ctx, s)
	}

	m.disk = s
	m.log.Info("system disk", "device", s.Device(), "partitions", len(s.Partitions))

	if len(s.Others) > 0 {
		m.log.Warn("further disks have a META partition; they are not used", "disks", strings.Join(s.Others, ","))
	}

	return nil
}

// haltIfInstalled says whether the kernel's command line (proc_cmdline(5)) tells a machine not to go on if it has a system on a
// disk. A medium that is only there to install has it, so that one that is left in the drive does not boot the disk's system by its own
// kernel, or install anew.
func haltIfInstalled(line string) bool {
	halt := false

	for _, arg := range strings.Fields(line) {
		if value, ok := strings.CutPrefix(arg, "talos.halt_if_installed="); ok { // the last one counts
			halt = value == "1" || value == "true"
		}
	}

	return halt
}

func (m *Machine) mustHalt() bool {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		m.log.Error("reading the kernel's command line", "error", err)
	}

	return haltIfInstalled(string(line))
}

// halt stops the boot with a message for the person at the console, until somebody asks for a reboot.
func (m *Machine) halt(ctx context.Context, s disk.System) error {
	const reminder = time.Minute

	for {
		m.log.Error("boot stops here: this machine is installed already. Remove the medium it was started from and restart it, or have its "+
			"firmware start the disk", "disk", s.Device(), "because", "talos.halt_if_installed=1 on the kernel's command line")

		if !sleep(ctx, reminder) {
			return ctx.Err()
		}
	}
}

// readMeta shows META's values as resources. A damaged META is no reason not to boot. A machine without a disk has the values that
// its image brought along, if any, and hands them on when it installs itself.
func (m *Machine) readMeta(ctx context.Context) error {
	from := m.disk.Partitions[layout.META].Device()
	if m.diskless {
		from = embeddedMeta
	}

	dev, err := os.Open(from)
	if m.diskless && errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}
	defer dev.Close()

	values, err := meta.Parse(dev)
	m.meta = values

	if errors.Is(err, meta.ErrDamaged) {
		m.log.Error("reading META", "error", err)

		return nil
	}

	if err != nil {
		return err
	}

	m.log.Info("META read", "values", len(values))

	for tag, value := range values {
		if tag == meta.StateEncryptionConfig || tag == meta.UniqueMachineToken {
			value = []byte("(secret)") // every reader may look at these resources
		}

		if err := state.Put(ctx, m.store, state.NewMetaKey(fmt.Sprintf("0x%02x", uint32(tag)), state.MetaKeySpec{Value: string(value)})); err != nil {
			return err
		}
	}

	return nil
}

func (m *Machine) growEphemeral(context.Context) error {
	if m.diskless {
		return nil
	}

	g, err := disk.Grow(blockClass, m.disk)
	if err != nil {
		return err
	}

	if g.FromBackup {
		m.log.Warn("the primary partition table was damaged and has been restored from its backup", "disk", m.disk.Name)
	}

	if g.Grown {
		m.log.Info("partition enlarged", "label", layout.EPHEMERAL, "before", g.Before, "after", g.After)
	}

	return nil
}

func (m *Machine) mountState(ctx context.Context) error {
	return m.mountPartition(ctx, layout.STATE, stateDir, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NOATIME, 0o700)
}

// EPHEMERAL holds containers' root file systems: their setuid files are for them.
func (m *Machine) mountEphemeral(ctx context.Context) error {
	err := m.mountPartition(ctx, layout.EPHEMERAL, varDir, unix.MS_NODEV|unix.MS_NOATIME, 0o755)
	if err != nil {
		return err
	}

	if !m.diskless {
		if err := disk.Fill(ctx, m.reaper, varDir); err != nil {
			return err
		}
	}

	size, available, err := mounts.Size(varDir)
	if err != nil {
		return err
	}

	m.log.Info("/var is mounted", "size", size, "available", available)

	for _, dir := range []string{"/var/lib", "/var/log", "/var/system"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}

	return nil
}

func (m *Machine) mountPartition(ctx context.Context, label, target string, flags uintptr, mode os.FileMode) error {
	if m.diskless {
		return mounts.Mount{Type: "tmpfs", Target: target, Flags: flags, Data: fmt.Sprintf("mode=%04o", mode)}.Do()
	}

	p, ok := m.disk.Partitions[label]
	if !ok {
		return fmt.Errorf("cannot mount %s: disk %s has no partition of that label", label, m.disk.Name)
	}

	begun := time.Now()

	made, err := disk.Format(ctx, m.reaper, p.Device(), label)
	if err != nil {
		return err
	}

	if made {
		m.log.Info("partition formatted", "label", label, "device", p.Device(), "took", time.Since(begun).Round(time.Millisecond).String())
	}

	if err := disk.Mount(ctx, m.reaper, p.Device(), target, flags); err != nil {
		return err
	}

	if err := os.Chmod(target, mode); err != nil {
		return err
	}

	return state.Put(ctx, m.store, state.NewMountStatus(label, state.MountStatusSpec{Source: p.Device(), Target: target, FilesystemType: "xfs"}))
}

func (m *Machine) mountOverlays(ctx context.Context) error {
	for _, o := range mounts.Overlays() {
		if err := o.Do(overlayBase); err != nil {
			return err
		}

		spec := state.MountStatusSpec{Source: "overlay", Target: o.Target, FilesystemType: "overlay"}
		if err := state.Put(ctx, m.store, state.NewMountStatus(o.Target, spec)); err != nil {
			return err
		}
	}

	return nil
}

func (m *Machine) unmountOverlays(context.Context) error {
	var errs []error
	for _, o := range mounts.Overlays() {
		errs = append(errs, mounts.Unmount(o.Target))
	}

	return errors.Join(errs...)
}

// unmountEphemeral takes away all that is mounted below /var too, such as containers' root file systems.
func (m *Machine) unmountEphemeral(context.Context) error {
	return unmountUnder("/run/containerd", varDir)
}

func (m *Machine) unmountState(context.Context) error { return unmountUnder(stateDir) }

func unmountUnder(dirs ...string) error {
	current, err := mounts.Current()
	if err != nil {
		return err
	}

	var errs []error

	for _, dir := range dirs {
		for _, target := range mounts.Under(current, dir) {
			errs = append(errs, mounts.Unmount(target))
		}
	}

	return errors.Join(errs...)
}
