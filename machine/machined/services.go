//go:build linux

package machined

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/config"
	"github.com/talos-factory/talos-factory/machine/machined/cgroup"
	"github.com/talos-factory/talos-factory/machine/machined/containers"
	"github.com/talos-factory/talos-factory/machine/machined/supervisor"
	"github.com/talos-factory/talos-factory/machine/state"
)

// Where the services listen.
const (
	containerdSocket = "/run/containerd/containerd.sock"
	containerdConfig = "/system/etc/containerd/config.toml"
	apidPort         = "50000"
	trustdPort       = "50001"
)

// containerdTOML keeps containers on EPHEMERAL and everything that belongs to one boot on tmpfs. The plugins for Kubernetes are off
// until there is a kubelet.
const containerdTOML = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper",
]

[grpc]
  address = "/run/containerd/containerd.sock"
`

// restartLimit is for services without which the machine can still be reached.
const restartLimit = 20

func serviceCgroup(id string) string { return filepath.Join(cgroup.Root, cgroup.System, id) }

// daemon is a service that is this same binary under another name.
func daemon(id string, uid uint32, port string) supervisor.Spec {
	return supervisor.Spec{
		ID: id,
		Command: supervisor.Command{
			Path: "/proc/self/exe", Argv: []string{id}, Env: []string{"PATH=/usr/sbin:/usr/bin"},
			UID: uid, GID: uid, Cgroup: serviceCgroup(id),
		},
		Health: func(ctx context.Context) error { return dial(ctx, net.JoinHostPort("127.0.0.1", port)) },
	}
}

func dial(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}

	return conn.Close()
}

func (m *Machine) containerd() supervisor.Spec {
	return supervisor.Spec{
		ID: "containerd",
		Prepare: func(context.Context) error {
			if err := os.MkdirAll(filepath.Dir(containerdConfig), 0o755); err != nil {
				return err
			}

			return os.WriteFile(containerdConfig, []byte(containerdTOML), 0o644)
		},
		Command: supervisor.Command{
			Path: "/usr/bin/containerd", Argv: []string{"containerd", "--config", containerdConfig},
			Env: []string{"PATH=/usr/sbin:/usr/bin"}, Cgroup: serviceCgroup("containerd"),
		},
		Health:       m.containers.Healthy,
		RestartLimit: restartLimit,
	}
}

// startAPI starts apid, which shows the maintenance certificate until there is another. It has no restart limit: without it
// nobody could reach the machine.
func (m *Machine) startAPI(context.Context) error {
	m.supervisor.Add(m.containerd())
	m.supervisor.Add(daemon("apid", apidUID, apidPort))

	return m.supervisor.Start("apid")
}

func (m *Machine) startServices(ctx context.Context) error {
	m.mu.Lock()
	c := m.config
	m.mu.Unlock()

	go m.keepCertificates(context.WithoutCancel(ctx))

	ids := []string{"containerd"}

	if c.Machine.Type == config.ControlPlane {
		trustd := daemon("trustd", trustdUID, trustdPort)
		trustd.RestartLimit = restartLimit
		m.supervisor.Add(trustd)

		ids = append(ids, "trustd")
	}

	for _, id := range ids {
		if err := m.supervisor.Start(id); err != nil {
			return err
		}
	}

	return nil
}

// bootTimeout is how long services may take before the boot counts as done without them. The machine stays up then, not ready.
const bootTimeout = 2 * time.Minute

func (m *Machine) awaitServices(ctx context.Context) error {
	waitCtx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()

	var ids []string
	for _, st := range m.supervisor.List() {
		ids = append(ids, st.ID)
	}

	err := m.supervisor.Await(waitCtx, supervisor.Up, ids...)
	if ctx.Err() != nil {
		return ctx.Err()
	}

	if err != nil {
		m.log.Error("not all services are up", "error", err)
	}

	m.setStage(state.StageRunning)
	m.log.Info("boot is done", "uptime", uptime(), "services", fmt.Sprint(ids))

	return nil
}

func uptime() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return "unknown"
	}

	return time.Duration(now.Nano()).Round(10 * time.Millisecond).String()
}

// stopServices ends containers while containerd still can do it, then all services but apid, then whatever is left of either, so
// that EPHEMERAL can be unmounted.
func (m *Machine) stopServices(ctx context.Context) error {
	var errs []error

	if st, err := m.supervisor.Status("containerd"); err == nil && supervisor.Up(st) {
		killCtx, cancel := context.WithTimeout(ctx, 15*time.Second)
		errs = append(errs, m.containers.KillAll(killCtx, containers.Kubernetes), m.containers.KillAll(killCtx, containers.System))

		cancel()
	}

	for _, id := range []string{"trustd", "containerd"} {
		if err := m.supervisor.Stop(ctx, id); err != nil && !errors.Is(err, supervisor.ErrUnknown) {
			errs = append(errs, err)
		}
	}

	killCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	return errors.Join(append(errs, cgroup.KillExcept(killCtx, cgroup.Root, "apid"))...)
}

// stopAPI ends apid, and then every process there is.
func (m *Machine) stopAPI(ctx context.Context) error {
	err := m.supervisor.StopAll(ctx)

	if os.Getpid() == 1 {
		// -1 is everybody except this process, kill(2).
		if kerr := unix.Kill(-1, unix.SIGKILL); kerr != nil && !errors.Is(kerr, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("killing what is left: %w", kerr))
		}
	}

	return err
}
