//go:build linux

// Package machined is PID 1 of the machine: it brings the machine up by one table of phases, keeps its services running, answers
// its API on a unix socket, and takes it down by the same table read backwards.
//
// It does not listen on the network (apid does), has no console input and starts no shell. What each task does is in a package
// below this one; here it is put together.
package machined

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	clientlog "github.com/containerd/log"
	cosi "github.com/cosi-project/runtime/pkg/state"
	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/config"
	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/machine/machined/boot"
	"github.com/talos-factory/talos-factory/machine/machined/containers"
	"github.com/talos-factory/talos-factory/machine/machined/disk"
	"github.com/talos-factory/talos-factory/machine/machined/kmsg"
	"github.com/talos-factory/talos-factory/machine/machined/network"
	"github.com/talos-factory/talos-factory/machine/machined/persist"
	"github.com/talos-factory/talos-factory/machine/machined/reaper"
	"github.com/talos-factory/talos-factory/machine/machined/supervisor"
	"github.com/talos-factory/talos-factory/machine/state"
)

// fatalDelay lets a person read the console before the machine tries again.
const fatalDelay = 10 * time.Second

// Machine is the running machine.
type Machine struct {
	log        *slog.Logger
	reaper     *reaper.Reaper
	supervisor *supervisor.Supervisor
	containers *containers.Client
	network    *network.Manager
	store      cosi.State
	version    state.VersionSpec

	stops   chan stop
	refresh chan struct{} // the certificates' inputs have changed

	// Belong to the boot's goroutine.
	disk     disk.System
	diskless bool
	meta     meta.Values
	identity persist.Identity
	pending  *installation // to be installed; nil: nothing

	installations chan installation // from Apply to the boot

	applying   sync.Mutex // one Apply at a time
	publishing sync.Mutex // so that the last publishStatus to be called sees the latest

	mu          sync.Mutex // guards what follows
	stage       string
	config      *config.Config // nil in maintenance
	configured  chan struct{}  // closed when config is set
	snapshot    network.Snapshot
	fingerprint string
	banner      string
	failure     error // of the last installation
}

// stop is why and how the machine ends.
type stop struct {
	reboot bool
	why    string
}

func newMachine(log *slog.Logger) *Machine {
	return &Machine{
		log: log, stage: state.StageBooting,
		stops: make(chan stop, 1), refresh: make(chan struct{}, 1), configured: make(chan struct{}),
		installations: make(chan installation, 1),
		containers:    containers.New(containerdSocket),
	}
}

// Main runs machined with the arguments of its process. It returns only if it could not start at all.
func Main(ctx context.Context, args []string) error {
	if len(args) > 1 && args[1] == "--print-boot" {
		return printBoot(os.Stdout)
	}

	if os.Getpid() != 1 {
		return fmt.Errorf("cannot run as process %d: machined is the machine's PID 1; --print-boot prints what it would do", os.Getpid())
	}

	// containerd's client has a log of its own, on standard error. What matters of it comes back as an error, too.
	if err := clientlog.SetLevel("error"); err != nil {
		return fmt.Errorf("quieting containerd's client: %w", err)
	}

	handler, err := kmsg.Open("machined")
	log := slog.New(handler)

	if err != nil {
		log = slog.New(kmsg.New(os.Stderr, "machined"))
		log.Error("opening the kernel log", "error", err)
	}

	end(log, newMachine(log).run(ctx))

	return errors.New("internal error: the machine did not stop")
}

// run brings the machine up and waits until it shall stop, then takes it down.
func (m *Machine) run(ctx context.Context) (how stop) {
	defer func() {
		if p := recover(); p != nil {
			m.log.Error("internal error: panic", "value", fmt.Sprint(p), "stack", string(debug.Stack()))
			time.Sleep(fatalDelay)

			how = stop{reboot: true, why: "panic"}
		}
	}()

	m.reaper = reaper.New()
	m.supervisor = supervisor.New(m.reaper, m.log, m.serviceChanged)

	m.onSignals()

	upCtx, cancel := context.WithCancel(ctx)
	defer cancel()

	r := boot.Run{Table: m.table(), Log: m.log}
	result := make(chan error, 1)

	go func() { result <- r.Up(upCtx) }()

	select {
	case how = <-m.stops:
		cancel()
		m.awaitUp(result)
	case err := <-result:
		if err != nil {
			m.log.Error("boot failed, rebooting", "error", err, "in", fatalDelay)
			time.Sleep(fatalDelay)

			how = stop{reboot: true, why: "boot failed"}

			break
		}

		how = <-m.stops
	}

	m.log.Info("stopping the machine", "reboot", how.reboot, "why", how.why)

	if how.reboot {
		m.setStage(state.StageRebooting)
	} else {
		m.setStage(state.StageShuttingDown)
	}

	if err := r.Down(context.WithoutCancel(ctx)); err == nil {
		m.log.Info("all is stopped and unmounted")
	}

	return how
}

// awaitUp waits until the boot that was told to end has done so, lest it mount and start behind the back of what undoes that. A task
// that does not end is left behind.
func (m *Machine) awaitUp(result <-chan error) {
	const limit = 10 * time.Second

	select {
	case <-result:
	case <-time.After(limit):
		m.log.Error("the boot goes on although it was told to end: stopping all the same", "waited", limit)
	}
}

// syncTimeout is how long a sync may take. All that is ours is unmounted by then; a disk that hangs must not keep the machine up.
const syncTimeout = 30 * time.Second

// end syncs and leaves the kernel to it.
func end(log *slog.Logger, how stop) {
	synced := make(chan struct{})

	go func() {
		unix.Sync()
		close(synced)
	}()

	select {
	case <-synced:
	case <-time.After(syncTimeout):
		log.Error("sync is not done, going on without it", "waited", syncTimeout)
	}

	cmd, name := unix.LINUX_REBOOT_CMD_POWER_OFF, "power off"
	if how.reboot {
		cmd, name = unix.LINUX_REBOOT_CMD_RESTART, "restart"
	}

	log.Info("asking the kernel to " + name)

	if err := unix.Reboot(cmd); err != nil {
		log.Error("asking the kernel to "+name, "error", err)
	}
}

// onSignals makes Ctrl-Alt-Del, which the kernel hands to PID 1 as SIGINT, a clean reboot, and SIGTERM a clean shutdown.
func (m *Machine) onSignals() {
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF); err != nil {
		m.log.Warn("taking over Ctrl-Alt-Del", "error", err)
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)

	go func() {
		for s := range signals {
			_ = m.Stop(s == unix.SIGINT, "signal "+s.String())
		}
	}()
}

// Stop begins to reboot or to power off. The table is run backwards a moment later, so that the answer to the caller gets out.
func (m *Machine) Stop(reboot bool, why string) error {
	const moment = 250 * time.Millisecond

	time.AfterFunc(moment, func() {
		select {
		case m.stops <- stop{reboot, why}:
		default: // it stops already
		}
	})

	return nil
}

// Maintenance says whether the machine still waits for a configuration.
func (m *Machine) Maintenance() bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.config == nil
}

func (m *Machine) setStage(stage string) {
	m.mu.Lock()
	m.stage = stage
	m.mu.Unlock()

	m.publishStatus()
	m.showBanner()
}

// publishStatus writes the MachineStatus: ready once the boot is through and every service is up.
func (m *Machine) publishStatus() {
	if m.store == nil {
		return
	}

	m.publishing.Lock()
	defer m.publishing.Unlock()

	var spec state.MachineStatusSpec

	m.mu.Lock()
	spec.Stage = m.stage
	if m.failure != nil {
		spec.Status.UnmetConditions = append(spec.Status.UnmetConditions, "installation: "+m.failure.Error())
	}
	m.mu.Unlock()

	for _, st := range m.supervisor.List() {
		if st.State == supervisor.Initialized {
			continue // not of this machine's type, or not yet
		}

		if !supervisor.Up(st) {
			spec.Status.UnmetConditions = append(spec.Status.UnmetConditions, "service "+st.ID+" is not healthy")
		}
	}

	spec.Status.Ready = spec.Stage == state.StageRunning && len(spec.Status.UnmetConditions) == 0

	if err := state.Put(context.Background(), m.store, state.NewMachineStatus(spec)); err != nil {
		m.log.Error("writing the machine status", "error", err)
	}
}

// showBanner tells the console where the machine is reached, whenever that has changed.
func (m *Machine) showBanner() {
	m.mu.Lock()
	defer m.mu.Unlock()

	address := "no address yet"
	if ip, ok := m.snapshot.LinkAddress(); ok {
		address = "https://" + net.JoinHostPort(ip.String(), apidPort)
	}

	text := []string{"boot id " + m.version.BootID, "build id " + m.version.BuildID, "stage " + m.stage, "API " + address}
	if m.config == nil && m.fingerprint != "" {
		text = append(text, "fingerprint "+m.fingerprint)
	}

	if banner := strings.Join(text, ", "); banner != m.banner {
		m.banner = banner
		m.log.Info(banner)
	}
}
