//go:build linux

package machined

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-factory/talos-factory/config"
	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/machine/machined/containers"
	"github.com/talos-factory/talos-factory/machine/machined/disk"
	"github.com/talos-factory/talos-factory/machine/machined/mounts"
	"github.com/talos-factory/talos-factory/machine/machined/persist"
	"github.com/talos-factory/talos-factory/machine/machined/supervisor"
	"github.com/talos-factory/talos-factory/machine/state"
	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

const (
	// installedState is where the new system's STATE is mounted for a moment.
	installedState = "/system/installed"
	// installerProgram is the entry point of an installer's image.
	installerProgram = "/bin/installer"

	containerdLimit = time.Minute
	pullTries       = 6
	pullPause       = 5 * time.Second
	installRetry    = 30 * time.Second
)

// installation is a system to be installed, as a configuration says.
type installation struct {
	config   *config.Config
	data     []byte
	embedded bool   // the configuration is the image's: nobody is there to give another
	image    string // as containerd calls it, once it is pulled
}

// installStep is one thing that has to be done for it.
type installStep struct {
	name string
	do   func(*Machine, context.Context, *installation) error
}

// installSteps is how a machine that runs from memory gets onto its disk.
func installSteps() []installStep {
	return []installStep{
		{"start containerd", (*Machine).awaitContainerd},
		{"pull the installer's image", (*Machine).pullInstaller},
		{"run the installer: it writes the disk", (*Machine).runInstaller},
		{"format the new STATE, put the configuration there", (*Machine).keepConfig},
	}
}

// installs says whether a configuration asks this machine to install itself: only one that runs from memory does.
func (m *Machine) installs(c *config.Config) bool { return m.diskless && c.Machine.Install.Disk != "" }

// installSystem installs what was found or given to be installed, then reboots. When that fails, the machine waits for
// another configuration, or, with one that is the image's, tries again.
func (m *Machine) installSystem(ctx context.Context) error {
	for m.pending != nil {
		m.setStage(state.StageInstalling)

		err := m.install(ctx, m.pending)
		if ctx.Err() != nil {
			return ctx.Err()
		}

		m.setFailure(err)

		if err == nil {
			m.log.Info("the system is installed: rebooting into it", "disk", m.pending.config.Machine.Install.Disk)

			if err := m.Stop(true, "installed"); err != nil {
				return err
			}

			<-ctx.Done()

			return ctx.Err()
		}

		m.log.Error("cannot install", "error", err)

		if m.pending.embedded {
			m.log.Info("trying again", "in", installRetry)

			if !sleep(ctx, installRetry) {
				return ctx.Err()
			}

			continue
		}

		m.pending = nil

		if err := m.awaitConfig(ctx); err != nil {
			return err
		}
	}

	return nil
}

func (m *Machine) install(ctx context.Context, i *installation) error {
	for _, step := range installSteps() {
		m.log.Info("installing", "step", step.name)

		if err := step.do(m, ctx, i); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}

	return nil
}

// checkInstall refuses an installation that cannot succeed while its caller is still there to read why.
func checkInstall(c *config.Config) error {
	if c.Machine.Install.Image == "" {
		return status.Error(codes.InvalidArgument, "cannot install: machine.install.disk is there and machine.install.image is not")
	}

	info, err := os.Stat(c.Machine.Install.Disk)
	if err == nil && info.Mode().Type() == os.ModeDevice {
		return nil
	}

	names, err := disk.Names(blockClass)
	if err != nil {
		return err
	}

	return status.Errorf(codes.InvalidArgument, "cannot install: machine.install.disk %s is no disk of this machine: it has %s",
		c.Machine.Install.Disk, strings.Join(names, ", "))
}

func (m *Machine) awaitContainerd(ctx context.Context, _ *installation) error {
	if err := m.supervisor.Start("containerd"); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, containerdLimit)
	defer cancel()

	return m.supervisor.Await(ctx, supervisor.Up, "containerd")
}

// pullInstaller tries a few times: the network may have come up just now. An image that is not there does not come.
func (m *Machine) pullInstaller(ctx context.Context, i *installation) (err error) {
	m.containers.SetRegistries(i.config.Machine.Registries)

	for try := 1; ; try++ {
		i.image, err = m.containers.PullToRun(ctx, containers.System, i.config.Machine.Install.Image)
		if err == nil || errdefs.IsNotFound(err) || try == pullTries {
			return err
		}

		m.log.Warn("installing", "error", err, "retryIn", pullPause)

		if !sleep(ctx, pullPause) {
			return ctx.Err()
		}
	}
}

func (m *Machine) runInstaller(ctx context.Context, i *installation) error {
	output := &lines{say: func(line string) { m.log.Info("installer: " + line) }}
	defer output.flush()

	code, err := m.containers.Run(ctx, containers.Job{
		Namespace: containers.System, Image: i.image, Args: installerArguments(i.config.Machine.Install, m.meta),
		Privileged: true, HostDev: true, Stdout: output, Stderr: output,
	})
	if err != nil {
		return err
	}

	if code != 0 {
		return fmt.Errorf("the installer ended with status %d: %s", code, output.last)
	}

	return nil
}

func installerArguments(i config.Install, values meta.Values) []string {
	args := []string{installerProgram, "install", "--disk", i.Disk}
	for _, a := range i.ExtraKernelArgs {
		args = append(args, "--extra-kernel-arg="+a)
	}

	for _, tag := range slices.Sorted(maps.Keys(values)) {
		args = append(args, fmt.Sprintf("--meta=%#x=%s", uint32(tag), values[tag]))
	}

	if i.Wipe {
		args = append(args, "--force", "--zero")
	}

	return args
}

// keepConfig gives the configuration to the system that was installed, so that it boots as this one was told to.
func (m *Machine) keepConfig(ctx context.Context, i *installation) (err error) {
	device, err := filepath.EvalSymlinks(i.config.Machine.Install.Disk)
	if err != nil {
		return err
	}

	installed, err := disk.On(blockClass, filepath.Base(device))
	if err != nil {
		return err
	}

	partition, ok := installed.Partitions[layout.STATE]
	if !ok {
		return fmt.Errorf("cannot keep the configuration: the installer made no partition %s", layout.STATE)
	}

	if _, err := disk.Format(ctx, m.reaper, partition.Device(), layout.STATE); err != nil {
		return err
	}

	if err := disk.Mount(ctx, m.reaper, partition.Device(), installedState, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mounts.Unmount(installedState)) }()

	return persist.SaveConfig(installedState, i.data)
}

// stopInstaller ends what an installation started.
func (m *Machine) stopInstaller(ctx context.Context) error {
	if !m.diskless {
		return nil
	}

	return m.stopServices(ctx)
}

// setFailure remembers why the last installation failed; nil forgets it.
func (m *Machine) setFailure(err error) {
	m.mu.Lock()
	m.failure = err
	m.mu.Unlock()

	m.publishStatus()
}

// lines hands on whole lines and remembers the last that tells of an error, or else the last.
type lines struct {
	say     func(string)
	partial []byte
	last    string
	failed  bool
}

func (l *lines) Write(b []byte) (int, error) {
	l.partial = append(l.partial, b...)

	for {
		i := bytes.IndexByte(l.partial, '\n')
		if i < 0 {
			return len(b), nil
		}

		l.line(string(l.partial[:i]))
		l.partial = slices.Delete(l.partial, 0, i+1)
	}
}

func (l *lines) line(s string) {
	s = strings.TrimRight(s, "\r ")
	if s == "" {
		return
	}

	l.say(s)

	if reason, ok := strings.CutPrefix(s, "error: "); ok {
		l.last, l.failed = reason, true
	} else if !l.failed {
		l.last = strings.TrimSpace(s)
	}
}

func (l *lines) flush() {
	l.line(string(l.partial))
	l.partial = nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
