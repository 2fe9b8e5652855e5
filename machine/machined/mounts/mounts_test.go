//go:build linux

package mounts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParentsComeFirst(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Pseudo() {
		for other := range seen {
			if strings.HasPrefix(other, m.Target+"/") {
				t.Errorf("%s would hide %s, which is mounted before it", m.Target, other)
			}
		}
		seen[m.Target] = true
		if m.Flags&unix.MS_NOSUID == 0 {
			t.Errorf("%s honours setuid files", m.Target)
		}
	}
}

func TestParseLine(t *testing.T) {
	got, err := parseLine(`98 1 253:5 /a /var/with\040blank rw,relatime shared:5 master:1 - xfs /dev/vda6 rw,attr2`)
	if err != nil {
		t.Fatal(err)
	}
	want := Mounted{Source: "/dev/vda6", Target: "/var/with blank", Type: "xfs", Options: "rw,relatime"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add(`98 1 253:5 /a /var\0 rw - xfs /dev/vda6 rw`)
	f.Fuzz(func(_ *testing.T, s string) { _, _ = parseLine(s) })
}

func TestUnder(t *testing.T) {
	all := []Mounted{{Target: "/"}, {Target: "/var"}, {Target: "/var/lib"}, {Target: "/various"}}
	if diff := cmp.Diff([]string{"/var/lib", "/var"}, Under(all, "/var")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOverlayDirs(t *testing.T) {
	upper, work := Overlay{"/etc/cni"}.Dirs("/var/system/overlays")
	if upper != "/var/system/overlays/etc-cni/upper" || work != "/var/system/overlays/etc-cni/work" {
		t.Errorf("got %s, %s", upper, work)
	}
}
