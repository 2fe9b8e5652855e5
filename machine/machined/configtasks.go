//go:build linux

package machined

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-factory/talos-factory/api/machine"
	"github.com/talos-factory/talos-factory/config"
	"github.com/talos-factory/talos-factory/machine/machined/certs"
	"github.com/talos-factory/talos-factory/machine/machined/etcfiles"
	"github.com/talos-factory/talos-factory/machine/machined/network"
	"github.com/talos-factory/talos-factory/machine/machined/persist"
	"github.com/talos-factory/talos-factory/machine/machined/server"
	"github.com/talos-factory/talos-factory/machine/machined/sysctl"
	"github.com/talos-factory/talos-factory/machine/state"
)

// embeddedConfig is where an image may bring a configuration along.
const embeddedConfig = "/usr/local/etc/talos/config.yaml"

func (m *Machine) loadIdentity(ctx context.Context) error {
	id, created, err := persist.LoadIdentity(stateDir)
	if err != nil {
		return err
	}

	m.identity = id
	m.log.Info("node identity", "id", id.NodeID, "new", created)
	m.network.Prefer(func(p *network.Preference) { p.Fallback = id.Hostname() })

	if err := etcfiles.Write(etcfiles.Dir, "machine-id", id.MachineID()+"\n"); err != nil {
		return err
	}

	return state.Put(ctx, m.store, state.NewIdentity(state.IdentitySpec{NodeID: id.NodeID}))
}

// acquireConfig finds the configuration, or blocks in maintenance mode until Apply was given one. One that is there but not valid
// stops the boot instead, unless it was only staged: maintenance mode would let anybody on the network replace the
// configuration of a machine that has data (docs/adr/0007-a-broken-configuration-stops-the-boot.md).
func (m *Machine) acquireConfig(ctx context.Context) error {
	sources := persist.Sources(stateDir, embeddedConfig)

	for {
		data, from, ok, err := persist.FindConfig(sources)
		if err != nil {
			return err
		}

		if !ok {
			break
		}

		c, err := config.Load(data)
		if err != nil {
			m.log.Error("cannot use the configuration that was found", "where", from.Name, "error", err)

			if !from.Proposal {
				m.log.Error("boot stops here: nobody can be asked who may replace the configuration", "where", from.Name)
				<-ctx.Done()

				return ctx.Err()
			}

			sources = sources[slices.Index(sources, from)+1:]

			continue
		}

		m.log.Info("configuration found", "where", from.Name, "type", string(c.Machine.Type))

		if m.installs(c) {
			m.pending = &installation{config: c, data: data, embedded: true}

			return nil
		}

		if from.Keep {
			if err := persist.SaveConfig(stateDir, data); err != nil {
				return err
			}
		}

		return m.setConfig(ctx, c, data)
	}

	m.log.Info("no configuration found: waiting for one in maintenance mode")

	return m.awaitConfig(ctx)
}

// awaitConfig waits in maintenance mode for a configuration to run with or to install.
func (m *Machine) awaitConfig(ctx context.Context) error {
	m.setStage(state.StageMaintenance)

	select {
	case i := <-m.installations:
		m.pending = &i

		return nil
	case <-m.configured:
		m.setStage(state.StageBooting)

		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// setConfig makes a configuration the machine's, in memory.
func (m *Machine) setConfig(ctx context.Context, c *config.Config, data []byte) error {
	if err := state.Put(ctx, m.store, state.NewMachineConfig(string(data))); err != nil {
		return err
	}

	m.mu.Lock()
	first := m.config == nil
	m.config = c
	m.mu.Unlock()

	if first {
		close(m.configured)
	}

	return nil
}

// applyConfig makes the machine what its configuration says, as far as that can be done while it runs.
func (m *Machine) applyConfig(context.Context) error {
	m.mu.Lock()
	c := m.config
	m.mu.Unlock()

	for _, w := range c.Warnings() {
		m.log.Warn("configuration", "warning", w)
	}

	var servers []netip.Addr

	for _, s := range c.Machine.Network.Nameservers {
		if a, err := netip.ParseAddr(s); err == nil {
			servers = append(servers, a)
		}
	}

	m.network.Prefer(func(p *network.Preference) {
		p.Hostname, p.Nameservers = c.Machine.Network.Hostname, servers
	})

	var params []sysctl.Parameter
	for key, value := range c.Machine.Sysctls {
		params = append(params, sysctl.Parameter{Key: key, Value: value})
	}

	m.applySysctls(params)
	m.containers.SetRegistries(c.Machine.Registries)

	m.refreshCertificates()

	return nil
}

// needsReboot says why a new configuration cannot take effect on a running machine; "" if it can.
func needsReboot(old, next *config.Config) string {
	switch {
	case old.Machine.Type != next.Machine.Type:
		return "machine.type changes"
	case old.Cluster.ControlPlane != next.Cluster.ControlPlane:
		return "cluster.controlPlane changes"
	default:
		return ""
	}
}

// resolveMode decides what is done with a configuration on a configured machine.
func resolveMode(mode machine.ApplyConfigurationRequest_Mode, reason string) (machine.ApplyConfigurationRequest_Mode, string, error) {
	switch mode {
	case machine.ApplyConfigurationRequest_AUTO:
		if reason != "" {
			return machine.ApplyConfigurationRequest_REBOOT, "Applied with a reboot: " + reason, nil
		}

		return machine.ApplyConfigurationRequest_NO_REBOOT, "Applied without a reboot", nil
	case machine.ApplyConfigurationRequest_NO_REBOOT:
		if reason != "" {
			return mode, "", status.Errorf(codes.FailedPrecondition, "cannot apply the configuration without a reboot: %s", reason)
		}

		return mode, "Applied without a reboot", nil
	case machine.ApplyConfigurationRequest_STAGED:
		return mode, "Staged for the next boot", nil
	case machine.ApplyConfigurationRequest_REBOOT:
		return mode, "Applied with a reboot", nil
	default:
		return mode, "", status.Errorf(codes.InvalidArgument, "cannot apply a configuration in mode %s", mode)
	}
}

// Apply checks a configuration and, unless dry, makes it the machine's.
func (m *Machine) Apply(ctx context.Context, data []byte, mode machine.ApplyConfigurationRequest_Mode, dry, admin bool) (server.Applied, error) {
	m.applying.Lock()
	defer m.applying.Unlock()

	next, err := config.Load(data)
	if err != nil {
		return server.Applied{}, err
	}

	m.mu.Lock()
	old, stage, failure := m.config, m.stage, m.failure
	m.mu.Unlock()

	done := server.Applied{Warnings: next.Warnings()}
	if failure != nil {
		done.Warnings = append(done.Warnings, "the last installation failed: "+failure.Error())
	}

	if old != nil && !admin {
		return done, status.Error(codes.PermissionDenied, "cannot apply the configuration: the machine has got one meanwhile")
	}

	if old == nil {
		if stage != state.StageMaintenance {
			return done, status.Errorf(codes.Unavailable, "cannot apply a configuration yet: the machine is still %s", stage)
		}

		done.Mode, done.Details = machine.ApplyConfigurationRequest_NO_REBOOT, "Applied without a reboot: the machine was in maintenance mode"

		if m.installs(next) {
			if err := checkInstall(next); err != nil {
				return done, err
			}

			done.Mode = machine.ApplyConfigurationRequest_REBOOT
			done.Details = fmt.Sprintf("Installing to %s from %s, then rebooting", next.Machine.Install.Disk, next.Machine.Install.Image)
		}
	} else if done.Mode, done.Details, err = resolveMode(mode, needsReboot(old, next)); err != nil {
		return done, err
	}

	if dry {
		done.Details = "Dry run, nothing was changed. Without it: " + done.Details

		return done, nil
	}

	if old == nil && m.installs(next) {
		m.log.Info("installation begins", "disk", next.Machine.Install.Disk, "image", next.Machine.Install.Image)
		m.setStage(state.StageInstalling) // no second one is taken
		m.installations <- installation{config: next, data: data}

		return done, nil
	}

	m.log.Info("configuration applied", "type", string(next.Machine.Type), "mode", done.Mode.String())

	return done, m.commit(ctx, next, data, done.Mode, old == nil)
}

func (m *Machine) commit(ctx context.Context, next *config.Config, data []byte, mode machine.ApplyConfigurationRequest_Mode, first bool) error {
	if mode == machine.ApplyConfigurationRequest_STAGED {
		return persist.StageConfig(stateDir, data)
	}

	if err := persist.SaveConfig(stateDir, data); err != nil {
		return err
	}

	if mode == machine.ApplyConfigurationRequest_REBOOT {
		return m.Stop(true, "configuration applied")
	}

	if err := m.setConfig(context.WithoutCancel(ctx), next, data); err != nil || first {
		return err // the boot goes on and applies it
	}

	return m.applyConfig(ctx)
}

// refreshCertificates asks for new ones soon; many asks at once are one.
func (m *Machine) refreshCertificates() {
	select {
	case m.refresh <- struct{}{}:
	default:
	}
}

// Certificates are issued anew when what they say has changed, and well before they end.
const (
	certificateRenewal = 6 * time.Hour
	certificateRetry   = 5 * time.Second
)

// keepCertificates writes the certificate resources of a configured machine until ctx ends.
func (m *Machine) keepCertificates(ctx context.Context) {
	var last string

	for due := time.Now(); ; {
		timer := time.NewTimer(time.Until(due)) // not from now on: changes that change nothing must not put off the renewal

		select {
		case <-ctx.Done():
			timer.Stop()

			return
		case <-timer.C:
			last = "" // due in any case
		case <-m.refresh:
			timer.Stop()
		}

		m.mu.Lock()
		c, snapshot := m.config, m.snapshot
		m.mu.Unlock()

		hosts := certs.Hosts(c, []string{snapshot.Hostname}, ips(global(snapshot)))
		if key := fmt.Sprintf("%p %q", c, hosts); key == last {
			continue
		} else {
			last = key
		}

		due = time.Now().Add(certificateRenewal)

		if err := m.issue(ctx, c, hosts); err != nil {
			m.log.Error("issuing certificates", "error", err, "retryIn", certificateRetry)

			due = time.Now().Add(certificateRetry)

			continue
		}

		m.log.Info("certificates issued", "hosts", fmt.Sprint(hosts))
	}
}

func (m *Machine) issue(ctx context.Context, c *config.Config, hosts []string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	if c.Machine.Type == config.Worker {
		api, err := certs.Worker(ctx, c, hosts)
		if err != nil {
			return err
		}

		return state.Put(ctx, m.store, state.NewAPICertificates(api))
	}

	api, trustd, err := certs.ControlPlane(c, time.Now(), hosts)
	if err != nil {
		return err
	}

	if err := state.Put(ctx, m.store, state.NewTrustdCertificates(trustd)); err != nil {
		return err
	}

	return state.Put(ctx, m.store, state.NewAPICertificates(api))
}
