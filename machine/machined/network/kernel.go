//go:build linux

package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeMetric is worse than what a person would set, so that routes of later configuration win. A link's index is added: of two
// routes to one place that have one metric, the kernel keeps the last only, and each renewal of a lease would move the default route.
const routeMetric = 1024

// acceptAdvertisements has the kernel take a router's word although this machine forwards packets itself, which without it would be
// reason enough not to (Documentation/networking/ip-sysctl.rst, accept_ra). A kernel without IPv6 has no such file.
func acceptAdvertisements(link string) {
	_ = os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", link, "accept_ra"), []byte("2\n"), 0)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// apply writes a plan into the kernel. What is there already stays; what the kernel refuses, an MTU that the hardware cannot do for
// instance, does not keep the rest back.
func apply(index int, p LinkPlan) error {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}

	var errs []error

	if p.MTU != 0 && p.MTU != link.Attrs().MTU {
		if err := netlink.LinkSetMTU(link, p.MTU); err != nil {
			errs = append(errs, fmt.Errorf("setting the MTU %d: %w", p.MTU, err))
		}
	}

	// The kernel drops the address by itself if nobody renews it.
	addr := &netlink.Addr{IPNet: ipNet(p.Address), ValidLft: int(p.Lifetime.Seconds()), PreferedLft: int(p.Lifetime.Seconds())}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return errors.Join(append(errs, fmt.Errorf("setting the address %s: %w", p.Address, err))...)
	}

	for _, r := range p.Routes {
		route := &netlink.Route{
			LinkIndex: index, Dst: ipNet(r.Destination), Src: p.Address.Addr().AsSlice(), Priority: routeMetric + index, Protocol: unix.RTPROT_DHCP,
		}
		if r.Gateway.IsValid() {
			route.Gw = r.Gateway.AsSlice()
		} else {
			route.Scope = netlink.SCOPE_LINK
		}

		if err := netlink.RouteReplace(route); err != nil {
			errs = append(errs, fmt.Errorf("setting the route to %s: %w", r.Destination, err))
		}
	}

	return errors.Join(errs...)
}

func removeAddress(index int, p netip.Prefix) error {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}

	err = netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(p)})
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}

	return err
}

// kernelState reads links and addresses.
func kernelState() (Snapshot, error) {
	var s Snapshot

	links, err := netlink.LinkList()
	if err != nil {
		return s, fmt.Errorf("listing links: %w", err)
	}

	names := map[int]string{}

	for _, l := range links {
		a := l.Attrs()
		names[a.Index] = a.Name
		s.Links = append(s.Links, Link{
			Name: a.Name, Type: a.EncapType, Kind: kind(l), HardwareAddr: a.HardwareAddr.String(), State: a.OperState.String(),
			Index: a.Index, MTU: a.MTU, Carrier: carrier(a),
		})
	}

	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return s, fmt.Errorf("listing addresses: %w", err)
	}

	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}

		ones, _ := a.Mask.Size()
		s.Addresses = append(s.Addresses, Address{
			Link: names[a.LinkIndex], Prefix: netip.PrefixFrom(addr.Unmap(), ones), Scope: netlink.Scope(a.Scope).String(),
		})
	}

	return s, nil
}

// kind is empty for hardware, else the kernel's name of the software device.
func kind(l netlink.Link) string {
	if l.Type() == "device" {
		return ""
	}

	return l.Type()
}
