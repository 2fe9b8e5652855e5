//go:build linux

// Package network brings up the loopback and a DHCPv4 lease on every ethernet interface that has a carrier, and says what came of it:
// links, addresses, resolvers, host name.
//
// It does not configure static addresses, bonds, VLANs or IPv6 (the kernel does router advertisements by itself), and writes no
// files: who wants to know is told.
package network

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// LinkPlan is what a lease means for its interface.
type LinkPlan struct {
	Address     netip.Prefix
	Routes      []Route
	Nameservers []netip.Addr
	Search      []string
	Hostname    string
	MTU         int           // 0: leave as it is
	Lifetime    time.Duration // 0: for ever
	RenewAfter  time.Duration
}

// Route is a route through the interface; without a gateway its destination is on the link.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// infinite is a lease time without end (RFC 2131 3.3).
const infinite = 0xffffffff * time.Second

// minRenew keeps a server that hands out seconds from keeping us busy.
const minRenew = 10 * time.Second

// planLease reads a DHCPACK.
func planLease(ack *dhcpv4.DHCPv4) (LinkPlan, bool) {
	addr, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	if !ok || addr.IsUnspecified() {
		return LinkPlan{}, false
	}

	bits := 32
	if mask := ack.SubnetMask(); mask != nil {
		if ones, size := mask.Size(); size == 32 {
			bits = ones
		}
	}

	p := LinkPlan{
		Address:     netip.PrefixFrom(addr, bits),
		Nameservers: addrs(ack.DNS()),
		Hostname:    hostLabel(ack.HostName()),
		Lifetime:    ack.IPAddressLeaseTime(time.Hour),
	}

	p.Routes = planRoutes(ack, p.Address)

	// It goes into files of /etc, so it must be no more than a name.
	if domain := hostLabel(strings.Trim(ack.DomainName(), ". \x00")); domain != "" {
		p.Search = []string{domain}
	}

	if mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, ack.Options); err == nil && mtu >= 576 { // RFC 2132 5.1: at least 68; 576 is what every host must take
		p.MTU = int(mtu)
	}

	p.RenewAfter = ack.IPAddressRenewalTime(p.Lifetime / 2)
	if p.RenewAfter >= p.Lifetime { // no server means that
		p.RenewAfter = p.Lifetime / 2
	}

	p.RenewAfter = max(p.RenewAfter, minRenew)
	if p.Lifetime == infinite {
		p.Lifetime, p.RenewAfter = 0, 24*time.Hour
	}

	return p, true
}

// planRoutes takes the classless static routes if there are any, else the first router (RFC 3442: then routers are ignored).
func planRoutes(ack *dhcpv4.DHCPv4, address netip.Prefix) []Route {
	var routes []Route

	for _, r := range ack.ClasslessStaticRoute() {
		dest, ok := netip.AddrFromSlice(r.Dest.IP.To4())
		ones, size := r.Dest.Mask.Size()
		gateway, gatewayOK := netip.AddrFromSlice(r.Router.To4())

		if ok && gatewayOK && size == 32 {
			routes = appendRoute(routes, address, netip.PrefixFrom(dest, ones).Masked(), gateway)
		}
	}

	if len(routes) == 0 {
		for _, gateway := range addrs(ack.Router())[:min(1, len(ack.Router()))] {
			routes = appendRoute(routes, address, netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway)
		}
	}

	return routes
}

// appendRoute adds a route, and before it one to its gateway if that lies outside the interface's own network.
func appendRoute(routes []Route, address, destination netip.Prefix, gateway netip.Addr) []Route {
	if gateway.IsUnspecified() {
		return append(routes, Route{Destination: destination})
	}

	if host := netip.PrefixFrom(gateway, 32); !address.Contains(gateway) && !slices.Contains(routes, Route{Destination: host}) {
		routes = append(routes, Route{Destination: host})
	}

	return append(routes, Route{Destination: destination, Gateway: gateway})
}

func addrs[T ~[]byte](ips []T) []netip.Addr {
	var out []netip.Addr

	for _, ip := range ips {
		if a, ok := netip.AddrFromSlice(ip); ok {
			out = append(out, a.Unmap())
		}
	}

	return out
}

// hostLabel returns a host name from elsewhere if it is one (RFC 1123 2.1), else "".
func hostLabel(s string) string {
	s = strings.TrimRight(s, "\x00")
	if len(s) == 0 || len(s) > 253 {
		return ""
	}

	for label := range strings.SplitSeq(s, ".") {
		valid := len(label) > 0 && len(label) <= 63 && label[0] != '-' && label[len(label)-1] != '-'
		for _, c := range []byte(label) {
			valid = valid && (c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
		}

		if !valid {
			return ""
		}
	}

	return s
}

// Preference is what the machine's configuration and identity say about names.
type Preference struct {
	Hostname    string       // from the configuration
	Fallback    string       // if neither the configuration nor DHCP has one
	Nameservers []netip.Addr // from the configuration, instead of DHCP's
}

// names merges what the leases say, in the order of interfaces, with the preference.
func names(pref Preference, leases []LinkPlan) (hostname, domain string, nameservers []netip.Addr, search []string) {
	hostname, nameservers = pref.Hostname, slices.Clone(pref.Nameservers)

	for _, l := range leases {
		if hostname == "" {
			hostname = l.Hostname
		}

		if len(pref.Nameservers) == 0 {
			nameservers = appendNew(nameservers, l.Nameservers...)
		}

		search = appendNew(search, l.Search...)
	}

	if hostname == "" {
		hostname = pref.Fallback
	}

	hostname, domain, _ = strings.Cut(hostname, ".")
	if domain == "" && len(search) > 0 {
		domain = search[0]
	}

	return hostname, domain, nameservers, search
}

func appendNew[T comparable](list []T, more ...T) []T {
	for _, v := range more {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}

	return list
}
