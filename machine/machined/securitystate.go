//go:build linux

package machined

import (
	"context"

	"github.com/talos-factory/talos-factory/machine/machined/security"
	"github.com/talos-factory/talos-factory/machine/state"
)

// findSecurityState tells how far the machine was verified. That it cannot be told is no reason not to boot: what had to be
// verified was, or this would not run.
func (m *Machine) findSecurityState(ctx context.Context) error {
	found, err := security.Find()
	if err != nil {
		m.log.Error("cannot tell all of how the machine was verified", "error", err)
	}

	m.log.Info("verified", "secure boot", found.SecureBoot, "UKI", found.BootedWithUKI, "root hash", found.RootHash)

	return state.Put(ctx, m.store, state.NewSecurityState(state.SecurityStateSpec{
		SecureBoot: found.SecureBoot, BootedWithUKI: found.BootedWithUKI, RootVerified: found.RootHash != "", RootHash: found.RootHash,
	}))
}
