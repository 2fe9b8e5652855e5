package initramfs

import (
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
)

// TestPlanReadsNothing: the root is nested, not copied, whatever its size.
func TestPlanReadsNothing(t *testing.T) {
	plan, err := Plan(extent.Blob{SHA256: [32]byte{1}, Size: 2 << 20}, extent.FromBlob(extent.Blob{SHA256: [32]byte{2}, Size: 80 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	if plan.Literals() > 4096 {
		t.Errorf("the plan holds %d literal bytes, want a few headers", plan.Literals())
	}
	if plan.Size() < 82<<20 {
		t.Errorf("the archive has %d bytes, less than what is in it", plan.Size())
	}
}
