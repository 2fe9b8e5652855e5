//go:build linux

package machined

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/machine/machined/cgroup"
	"github.com/talos-factory/talos-factory/machine/machined/etcfiles"
	"github.com/talos-factory/talos-factory/machine/machined/mounts"
	"github.com/talos-factory/talos-factory/machine/machined/sysctl"
)

func (m *Machine) mountPseudo(context.Context) error {
	unix.Umask(0o022)

	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin"); err != nil {
		return err
	}

	// Nothing is to propagate out of a container's mounts unless it says so; runc and the kubelet expect shared mounts.
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("making mounts shared: %w", err)
	}

	for _, mount := range mounts.Pseudo() {
		err := mount.Do()
		if err != nil && mount.Optional {
			m.log.Info("optional mount left out", "target", mount.Target, "reason", err)

			continue
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func (m *Machine) setupCgroups(context.Context) error {
	refused, err := cgroup.Setup(cgroup.Root)
	for _, r := range refused {
		m.log.Error("cgroup controller", "error", r) // containers cannot be limited by it; the machine works
	}

	return err
}

// A kernel that lacks a parameter is no reason not to boot, but one to say so.
func (m *Machine) setSysctls(context.Context) error {
	m.applySysctls(sysctl.Defaults())

	return nil
}

func (m *Machine) applySysctls(params []sysctl.Parameter) {
	for _, err := range sysctl.Apply("/proc/sys", params) {
		m.log.Error("kernel parameter", "error", err)
	}
}

func (m *Machine) setLimits(context.Context) error {
	const files = 1 << 20 // what containerd and etcd expect to be able to open

	for resource, n := range map[int]uint64{unix.RLIMIT_NOFILE: files, unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			m.log.Error("setting a limit", "resource", resource, "error", err) // the machine works with less
		}
	}

	return nil
}

func (m *Machine) bindEtc(context.Context) error { return etcfiles.Bind(etcfiles.Dir, "/etc") }

func (m *Machine) firstHostname(context.Context) error { return unix.Sethostname([]byte("talos")) }
