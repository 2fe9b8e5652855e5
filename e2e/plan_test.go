//go:build vm || long

package e2e

import (
	"context"
	"testing"

	"github.com/talos-factory/talos-factory/profiles"
)

// TestPlanRules: a plan has at most 1 MiB of literals, and a new customization of a release whose pieces are there is planned without
// reading more than the boot loaders (section 3 of the design). What begins with digests of its own content has to read that.
func TestPlanRules(t *testing.T) {
	const limit = 1 << 20
	digestsItself := map[string]bool{profiles.OVA: true, profiles.Installer: true}
	all, err := profiles.Builtins()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		p := b.Profile
		for i, arg := range []string{"plan=first", "plan=second"} {
			p.Customization.ExtraKernelArgs = []string{arg}
			before := engine.Store.BytesRead()
			files, err := release.Plan(context.Background(), engine, p)
			if err != nil {
				t.Fatalf("%s: %v", p.Name, err)
			}
			read := engine.Store.BytesRead() - before
			for _, file := range files {
				if n := file.Plan.Literals(); n > limit {
					t.Errorf("%s: %s has %d literal bytes, more than %d", p.Name, file.Name, n, limit)
				}
			}
			if i > 0 && read > limit && !digestsItself[p.Output.DiskFormat] && !digestsItself[p.Output.Kind] {
				t.Errorf("%s: planning it again read %d bytes of blobs, more than %d", p.Name, read, limit)
			}
		}
	}
}
