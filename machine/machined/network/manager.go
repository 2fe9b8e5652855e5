//go:build linux

package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Snapshot is the network as it is.
type Snapshot struct {
	Hostname, Domain string
	Links            []Link
	Addresses        []Address
	Nameservers      []netip.Addr
	Search           []string
}

// Link is an interface.
type Link struct {
	Name, Type, Kind, HardwareAddr, State string
	Index, MTU                            int
	Carrier                               bool
}

// Address is an address of an interface.
type Address struct {
	Link   string
	Prefix netip.Prefix
	Scope  string
}

// Manager looks after the interfaces. One goroutine, Run, owns all its state.
type Manager struct {
	log      *slog.Logger
	onChange func(Snapshot)

	manages func(a *netlink.LinkAttrs, kind string) bool
	calls   chan func() // run by Run's goroutine

	pref    Preference
	clients map[int]client // by interface index
	leases  map[int]leased
	last    Snapshot
}

type client struct {
	stop context.CancelFunc
	name string
}

type leased struct {
	link string
	plan LinkPlan
}

// New returns a manager that calls onChange, from one goroutine, whenever the network is not what it was.
func New(log *slog.Logger, onChange func(Snapshot)) *Manager {
	return &Manager{log: log, onChange: onChange, manages: managed, calls: make(chan func(), 16), clients: map[int]client{}, leases: map[int]leased{}}
}

// Prefer changes what names the machine goes by.
func (m *Manager) Prefer(f func(*Preference)) { m.calls <- func() { f(&m.pref) } }

// errLost says that the kernel had more events than were read in time, so that some are missing.
var errLost = errors.New("the kernel's events were lost")

// Run brings up the loopback and looks after interfaces until ctx ends. After an error it can be called again: it goes on with the
// leases there are.
func (m *Manager) Run(ctx context.Context) error {
	if err := loopback(); err != nil {
		return err
	}

	links := make(chan netlink.LinkUpdate, 64)
	addresses := make(chan netlink.AddrUpdate, 64)
	broken := func(err error) { m.log.Error("network events", "error", err) }

	done := make(chan struct{})
	defer close(done)

	err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ListExisting: true, ErrorCallback: broken})
	if err != nil {
		return fmt.Errorf("subscribing to link events: %w", err)
	}
	defer func() { go discard(links) }()

	err = netlink.AddrSubscribeWithOptions(addresses, done, netlink.AddrSubscribeOptions{ListExisting: true, ErrorCallback: broken})
	if err != nil {
		return fmt.Errorf("subscribing to address events: %w", err)
	}
	defer func() { go discard(addresses) }()

	for {
		select {
		case <-ctx.Done():
			return nil
		case u, ok := <-links:
			if !ok {
				return errLost
			}

			m.link(ctx, u)
		case _, ok := <-addresses:
			if !ok {
				return errLost
			}
		case f := <-m.calls:
			f()
		}

		m.refresh()
	}
}

// discard takes what a subscription that was ended still sends, so that it ends.
func discard[T any](events <-chan T) {
	for range events {
	}
}

func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding the loopback: %w", err)
	}

	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bringing up the loopback: %w", err)
	}

	return nil
}

// managed says whether an interface is one we ask for a lease on: ethernet, and no software's own.
func managed(a *netlink.LinkAttrs, kind string) bool {
	return kind == "device" && a.EncapType == "ether" && a.Flags&unix.IFF_LOOPBACK == 0
}

// carrier says whether packets can be sent. Drivers without operational states report unknown.
func carrier(a *netlink.LinkAttrs) bool {
	return a.RawFlags&unix.IFF_LOWER_UP != 0 && a.RawFlags&unix.IFF_UP != 0
}

func (m *Manager) link(ctx context.Context, u netlink.LinkUpdate) {
	a := u.Attrs()
	index := a.Index

	if u.Header.Type == unix.RTM_DELLINK {
		m.stop(index)
		delete(m.leases, index)

		return
	}

	if !m.manages(a, u.Type()) {
		return
	}

	if a.RawFlags&unix.IFF_UP == 0 {
		acceptAdvertisements(a.Name)

		if err := netlink.LinkSetUp(u.Link); err != nil {
			m.log.Error("bringing up a link", "link", a.Name, "error", err)
		}

		return // the change comes as an event
	}

	_, running := m.clients[index]

	switch up := carrier(a); {
	case up && !running:
		m.log.Info("link has a carrier", "link", a.Name, "mac", a.HardwareAddr)
		m.start(ctx, index, a.Name)
	case !up && running:
		m.log.Info("link lost its carrier", "link", a.Name)
		m.stop(index) // its address stays: the cable may come back
	}
}

func (m *Manager) stop(index int) {
	if c, ok := m.clients[index]; ok {
		c.stop()
		delete(m.clients, index)
	}
}

func (m *Manager) start(ctx context.Context, index int, name string) {
	ctx, cancel := context.WithCancel(ctx)
	m.clients[index] = client{cancel, name}

	call := func(f func()) {
		select {
		case m.calls <- f:
		case <-ctx.Done():
		}
	}
	hostname := func() string {
		answer := make(chan string, 1)
		call(func() { answer <- m.pref.Hostname })

		select {
		case s := <-answer:
			return s
		case <-ctx.Done():
			return ""
		}
	}

	go lease(ctx, m.log, name, hostname, func(p *LinkPlan) {
		call(func() {
			if ctx.Err() == nil {
				m.leased(index, name, p)
			}
		})
	})
}

// leased makes the interface what its lease says.
func (m *Manager) leased(index int, name string, p *LinkPlan) {
	old, had := m.leases[index]
	if p == nil || had && old.plan.Address != p.Address {
		if had {
			if err := removeAddress(index, old.plan.Address); err != nil {
				m.log.Error("removing an address", "link", name, "address", old.plan.Address, "error", err)
			}
		}

		delete(m.leases, index)
	}

	if p == nil {
		return
	}

	m.leases[index] = leased{name, *p}
	if err := apply(index, *p); err != nil {
		m.log.Error("applying a dhcp lease", "link", name, "error", err)
	}
}

// refresh reads what the kernel has and tells of it if it is news.
func (m *Manager) refresh() {
	s, err := kernelState()
	if err != nil {
		m.log.Error("reading the network's state", "error", err)

		return
	}

	byLink := make([]leased, 0, len(m.leases))
	for _, l := range m.leases {
		byLink = append(byLink, l)
	}

	slices.SortFunc(byLink, func(a, b leased) int { return strings.Compare(a.link, b.link) })

	plans := make([]LinkPlan, len(byLink))
	for i, l := range byLink {
		plans[i] = l.plan
	}

	s.Hostname, s.Domain, s.Nameservers, s.Search = names(m.pref, plans)

	if !reflect.DeepEqual(s, m.last) {
		m.last = s
		m.onChange(s)
	}
}
