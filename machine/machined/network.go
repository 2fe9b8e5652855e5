//go:build linux

package machined

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/machine/machined/etcfiles"
	"github.com/talos-factory/talos-factory/machine/machined/network"
	"github.com/talos-factory/talos-factory/machine/state"
)

// startNetwork does not wait for a lease: a machine without a network boots, and says that it has none.
func (m *Machine) startNetwork(ctx context.Context) error {
	m.network = network.New(m.log, m.networkChanged)
	m.network.Prefer(func(p *network.Preference) { p.Fallback = "talos" })

	go func() {
		for { // until the machine is off: without it no lease is renewed
			err := m.network.Run(context.WithoutCancel(ctx))
			m.log.Error("looking after the network ended, beginning again", "error", err)
			time.Sleep(time.Second)
		}
	}()

	return nil
}

// networkChanged is called from one goroutine.
func (m *Machine) networkChanged(s network.Snapshot) {
	m.mu.Lock()
	renamed := m.snapshot.Hostname != s.Hostname
	m.snapshot = s
	m.mu.Unlock()

	if renamed && s.Hostname != "" {
		m.log.Info("host name", "hostname", s.Hostname, "domain", s.Domain)

		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			m.log.Error("setting the host name", "error", err)
		}
	}

	m.writeNetworkFiles(s)

	if err := m.publishNetwork(s); err != nil {
		m.log.Error("writing network resources", "error", err)
	}

	m.showBanner()
	m.refreshCertificates()
}

func (m *Machine) writeNetworkFiles(s network.Snapshot) {
	for name, content := range map[string]string{
		"hosts":       etcfiles.Hosts(s.Hostname, s.Domain, global(s)),
		"resolv.conf": etcfiles.Resolv(s.Nameservers, s.Search),
		"hostname":    s.Hostname + "\n",
	} {
		if err := etcfiles.Write(etcfiles.Dir, name, content); err != nil {
			m.log.Error("writing a file of /etc", "name", name, "error", err)
		}
	}
}

// global are the addresses by which others reach the machine.
func global(s network.Snapshot) []netip.Addr {
	var out []netip.Addr

	for _, a := range s.Addresses {
		if a.Link != "lo" && a.Prefix.Addr().IsGlobalUnicast() {
			out = append(out, a.Prefix.Addr())
		}
	}

	return out
}

func ips(addrs []netip.Addr) []net.IP {
	out := make([]net.IP, len(addrs))
	for i, a := range addrs {
		out[i] = a.AsSlice()
	}

	return out
}

func (m *Machine) publishNetwork(s network.Snapshot) error {
	ctx := context.Background()

	var links []*state.LinkStatus
	for _, l := range s.Links {
		links = append(links, state.NewLinkStatus(l.Name, state.LinkStatusSpec{
			Index: l.Index, Type: l.Type, Kind: l.Kind, HardwareAddr: l.HardwareAddr, MTU: l.MTU, OperationalState: l.State, LinkState: l.Carrier,
		}))
	}

	if err := state.Sync(ctx, m.store, state.NewLinkStatus("", state.LinkStatusSpec{}).Metadata(), links); err != nil {
		return err
	}

	var addresses []*state.AddressStatus

	for _, a := range s.Addresses {
		family := "inet4"
		if a.Prefix.Addr().Is6() {
			family = "inet6"
		}

		addresses = append(addresses, state.NewAddressStatus(state.AddressStatusSpec{
			Address: a.Prefix.String(), LinkName: a.Link, Family: family, Scope: a.Scope,
		}))
	}

	if err := state.Sync(ctx, m.store, state.NewAddressStatus(state.AddressStatusSpec{}).Metadata(), addresses); err != nil {
		return err
	}

	servers := make([]string, len(s.Nameservers))
	for i, a := range s.Nameservers {
		servers[i] = a.String()
	}

	if err := state.Put(ctx, m.store, state.NewResolverStatus(state.ResolverStatusSpec{DNSServers: servers, SearchDomains: s.Search})); err != nil {
		return err
	}

	return state.Put(ctx, m.store, state.NewHostnameStatus(state.HostnameStatusSpec{Hostname: s.Hostname, Domainname: s.Domain}))
}
