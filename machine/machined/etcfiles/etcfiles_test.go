//go:build linux

package etcfiles

import (
	"net/netip"
	"strings"
	"testing"
)

func TestContents(t *testing.T) {
	a := netip.MustParseAddr("10.0.2.15")

	if got := Hosts("n1", "x.org", []netip.Addr{a}); !strings.HasSuffix(got, "10.0.2.15 n1.x.org n1\n") {
		t.Errorf("got %q", got)
	}
	if got, want := Resolv([]netip.Addr{a, a, a, a}, []string{"x.org"}), "nameserver 10.0.2.15\nnameserver 10.0.2.15\nnameserver 10.0.2.15\nsearch x.org\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
