package factory

import (
	"context"
	"fmt"

	"github.com/talos-factory/talos-factory/config"
)

// customize plans the archive that a customization's extensions and embedded files travel in.
func (o *order) customize(context.Context) error {
	if text := o.profile.Customization.EmbeddedConfig; text != "" {
		if _, err := config.Load([]byte(text)); err != nil {
			return fmt.Errorf("checking embedded machine configuration: %w", err)
		}
	}
	return nil
}
