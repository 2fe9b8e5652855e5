package disk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/profiles/disk"
)

func Example() {
	state, _ := disk.Metal().Find(disk.STATE)
	fmt.Println(state.Size/disk.MiB, "MiB at", state.Start/disk.MiB, "MiB, to be formatted as", state.Content)
	// Output: 320 MiB at 2051 MiB, to be formatted as xfs
}

// The contract as text: a change here is a change of what machines in the field expect.
func TestMetalIsAsPublished(t *testing.T) {
	l := disk.Metal()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d MiB\n", l.GUID, l.Size/disk.MiB)
	for _, p := range l.Partitions {
		fmt.Fprintf(&b, "%s %s %s %s %d+%d attr=%d grow=%v\n", p.Name, p.Type, p.GUID, p.Content, p.Start/disk.MiB, p.Size/disk.MiB, p.Attributes, p.Grow)
		if p.Start%disk.MiB != 0 || p.Size%disk.MiB != 0 {
			t.Errorf("%s is not aligned", p.Name)
		}
	}
	want := `10077069-866F-84FE-8217-DE73E2140423 2436 MiB
EFI C12A7328-F81F-11D2-BA4B-00A0C93EC93B 93B48B54-2E4E-8940-ACCD-0E44036A50BE fat32 1+1024 attr=0 grow=false
BIOS 21686148-6449-6E6F-744E-656564454649 0D5AB627-79F8-8A00-BB63-FBB97D6AB801 raw 1025+1 attr=4 grow=false
BOOT 0FC63DAF-8483-4772-8E79-3D69D8477DE4 CF3333FE-76EB-8F52-97CB-B9E9672390CC fat32 1026+1024 attr=0 grow=false
META 0FC63DAF-8483-4772-8E79-3D69D8477DE4 C3556047-0E64-8028-98E4-B0C125789C63 raw 2050+1 attr=0 grow=false
STATE 0FC63DAF-8483-4772-8E79-3D69D8477DE4 26C9CB69-EE5C-8B9C-A9DC-11CE44615EB7 xfs 2051+320 attr=0 grow=false
EPHEMERAL 0FC63DAF-8483-4772-8E79-3D69D8477DE4 7B2D15B2-9B76-86DA-B223-9FCA68B9D458 xfs 2371+64 attr=0 grow=true
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("layout (-want +got):\n%s", diff)
	}
}
