//go:build linux

package network

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/vishvananda/netlink"
)

var equal = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

func ack(t *testing.T, options ...dhcpv4.Option) *dhcpv4.DHCPv4 {
	t.Helper()

	m, err := dhcpv4.New(dhcpv4.WithYourIP(net.IPv4(10, 0, 2, 15)), dhcpv4.WithMessageType(dhcpv4.MessageTypeAck))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range options {
		m.UpdateOption(o)
	}

	return m
}

func TestPlanLease(t *testing.T) {
	mask := dhcpv4.OptSubnetMask(net.CIDRMask(24, 32))
	address := netip.MustParsePrefix("10.0.2.15/24")
	anywhere := netip.MustParsePrefix("0.0.0.0/0")

	for name, tt := range map[string]struct {
		options []dhcpv4.Option
		want    LinkPlan
	}{
		"usual": {
			[]dhcpv4.Option{
				mask, dhcpv4.OptRouter(net.IPv4(10, 0, 2, 2)), dhcpv4.OptDNS(net.IPv4(10, 0, 2, 3)), dhcpv4.OptIPAddressLeaseTime(24 * time.Hour),
				dhcpv4.OptHostName("node-1.example.org"), dhcpv4.OptDomainName("example.org."),
			},
			LinkPlan{
				Address: address, Routes: []Route{{anywhere, netip.MustParseAddr("10.0.2.2")}}, Nameservers: []netip.Addr{netip.MustParseAddr("10.0.2.3")},
				Search: []string{"example.org"}, Hostname: "node-1.example.org", Lifetime: 24 * time.Hour, RenewAfter: 12 * time.Hour,
			},
		},
		"host route to the gateway": {
			[]dhcpv4.Option{dhcpv4.OptRouter(net.IPv4(172, 31, 1, 1)), dhcpv4.OptIPAddressLeaseTime(infinite)},
			LinkPlan{
				Address: netip.MustParsePrefix("10.0.2.15/32"), RenewAfter: 24 * time.Hour,
				Routes: []Route{{Destination: netip.MustParsePrefix("172.31.1.1/32")}, {anywhere, netip.MustParseAddr("172.31.1.1")}},
			},
		},
		"static routes instead of the router": {
			[]dhcpv4.Option{
				mask, dhcpv4.OptRouter(net.IPv4(10, 0, 2, 2)), dhcpv4.OptIPAddressLeaseTime(time.Second),
				dhcpv4.OptClasslessStaticRoute(&dhcpv4.Route{Dest: &net.IPNet{IP: net.IPv4(192, 168, 0, 0), Mask: net.CIDRMask(16, 32)}, Router: net.IPv4(10, 0, 2, 9)}),
			},
			LinkPlan{
				Address: address, Routes: []Route{{netip.MustParsePrefix("192.168.0.0/16"), netip.MustParseAddr("10.0.2.9")}},
				Lifetime: time.Second, RenewAfter: minRenew,
			},
		},
		"renewal after the end": {
			[]dhcpv4.Option{mask, dhcpv4.OptRenewTimeValue(2 * time.Hour), dhcpv4.OptIPAddressLeaseTime(time.Hour)},
			LinkPlan{Address: address, Lifetime: time.Hour, RenewAfter: 30 * time.Minute},
		},
		"hostile names": {
			[]dhcpv4.Option{mask, dhcpv4.OptHostName("a\nb; reboot"), dhcpv4.OptDomainName("x\nnameserver 6.6.6.6"), dhcpv4.OptIPAddressLeaseTime(time.Hour)},
			LinkPlan{Address: address, Lifetime: time.Hour, RenewAfter: 30 * time.Minute},
		},
	} {
		got, ok := planLease(ack(t, tt.options...))
		if !ok {
			t.Errorf("%s: no plan", name)
		}
		if diff := cmp.Diff(tt.want, got, equal); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func FuzzPlanLease(f *testing.F) {
	m, _ := dhcpv4.New(dhcpv4.WithYourIP(net.IPv4(10, 0, 2, 15)), dhcpv4.WithOption(dhcpv4.OptHostName("x")))
	f.Add(m.ToBytes())
	f.Fuzz(func(_ *testing.T, b []byte) {
		if m, err := dhcpv4.FromBytes(b); err == nil {
			_, _ = planLease(m)
		}
	})
}

func TestNames(t *testing.T) {
	a, b := netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("2.2.2.2")
	leases := []LinkPlan{{Nameservers: []netip.Addr{a}, Search: []string{"x.org"}}, {Hostname: "dhcp", Nameservers: []netip.Addr{b, a}}}

	for name, tt := range map[string]struct {
		pref        Preference
		leases      []LinkPlan
		host        string
		nameservers []netip.Addr
	}{
		"configuration": {Preference{Hostname: "conf", Nameservers: []netip.Addr{b}}, leases, "conf.x.org", []netip.Addr{b}},
		"dhcp":          {Preference{Fallback: "talos-abc"}, leases, "dhcp.x.org", []netip.Addr{a, b}},
		"nothing":       {Preference{Fallback: "talos-abc"}, nil, "talos-abc.", nil},
		"with domain":   {Preference{Hostname: "n.y.org"}, leases, "n.y.org", []netip.Addr{a, b}},
	} {
		host, domain, ns, _ := names(tt.pref, tt.leases)
		if got := host + "." + domain; got != tt.host {
			t.Errorf("%s: got %s, want %s", name, got, tt.host)
		}
		if diff := cmp.Diff(tt.nameservers, ns, equal); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDHCP runs the manager against a real server over a pair of interfaces in a network namespace of its own. The whole process
// has to be in it, so the test starts itself again.
func TestDHCP(t *testing.T) {
	if os.Getenv("TEST_NETNS") == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestDHCP$", "-test.v")
		cmd.Env = append(os.Environ(), "TEST_NETNS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}

		out, err := cmd.CombinedOutput()
		if _, refused := err.(*exec.ExitError); err != nil && !refused {
			t.Skipf("no network namespace can be made here: %v", err)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}

		return
	}

	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "client"}, PeerName: "server"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Skipf("no pair of interfaces can be made here: %v", err)
	}
	server, err := netlink.LinkByName("server")
	if err != nil {
		t.Fatal(err)
	}
	address, _ := netlink.ParseAddr("10.9.0.1/24")
	if err := netlink.AddrAdd(server, address); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(server); err != nil {
		t.Fatal(err)
	}
	serve(t)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	snapshots := make(chan Snapshot, 100)
	m := New(slog.New(slog.NewTextHandler(t.Output(), nil)), func(s Snapshot) { snapshots <- s })
	m.manages = func(a *netlink.LinkAttrs, _ string) bool { return a.Name == "client" }
	m.Prefer(func(p *Preference) { p.Fallback = "talos-x" })

	go func() {
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	}()

	for {
		select {
		case s := <-snapshots:
			if ip, ok := s.LinkAddress(); !ok || s.Hostname != "given" || !hasAddress(s, "10.9.0.77/24") {
				t.Logf("so far %v %s", ip, s.Hostname)

				continue
			}

			routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range routes {
				if r.Gw.Equal(net.IPv4(10, 9, 0, 1)) && r.Priority == routeMetric+r.LinkIndex {
					return
				}
			}
		case <-ctx.Done():
			t.Fatal("no lease was applied in time")
		}
	}
}

func hasAddress(s Snapshot, want string) bool {
	for _, a := range s.Addresses {
		if a.Prefix.String() == want {
			return true
		}
	}

	return false
}

func serve(t *testing.T) {
	t.Helper()

	s, err := server4.NewServer("server", nil, func(conn net.PacketConn, peer net.Addr, m *dhcpv4.DHCPv4) {
		kind := dhcpv4.MessageTypeOffer
		if m.MessageType() == dhcpv4.MessageTypeRequest {
			kind = dhcpv4.MessageTypeAck
		}

		reply, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(net.IPv4(10, 9, 0, 77)),
			dhcpv4.WithServerIP(net.IPv4(10, 9, 0, 1)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 9, 0, 1))),
			dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithRouter(net.IPv4(10, 9, 0, 1)), dhcpv4.WithLeaseTime(3600),
			dhcpv4.WithOption(dhcpv4.OptHostName("given")))
		if err == nil {
			_, err = conn.WriteTo(reply.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 68})
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}

	go func() { _ = s.Serve() }()
	t.Cleanup(func() { _ = s.Close() })
}
