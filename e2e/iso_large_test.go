//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/iso9660"
	"github.com/talos-factory/talos-factory/kernel/cmdline"
	"github.com/talos-factory/talos-factory/profiles/assembly"
)

func TestLargeISO(t *testing.T) { bootsFourWays(t, largeISO(t)) }

// largeISO is one whose boot loaders, kernel and initramfs lie beyond 4 GiB.
func largeISO(t *testing.T) string {
	t.Helper()
	parts, err := release.Parts(t.Context(), engine)
	if err != nil {
		t.Fatal(err)
	}
	iso := assembly.ISO{
		Parts: parts,
		Boot:  assembly.Boot{Cmdline: append(cmdline.Console(), "talos.platform=metal", parts.Verity)},
		Files: []iso9660.File{{Path: "before", Content: extent.New(5 << 30)}},
	}
	if iso.UKI, err = assembly.UKI(iso.Parts, iso.Boot); err != nil {
		t.Fatal(err)
	}
	plan, err := iso.Plan()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "large.iso"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := plan.WriteSparse(t.Context(), file, factory.Blobs(engine.Store)); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}
