//go:build linux

package machined

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/talos-factory/talos-factory/extension"
	"github.com/talos-factory/talos-factory/machine/state"
)

// listExtensions makes resources of the list that the image's customization has. /init has stacked what is in it; a list that
// cannot be read is no reason not to boot, but one to say so.
func (m *Machine) listExtensions(ctx context.Context) error {
	found, err := readExtensions(extension.ListPath)
	if err != nil {
		m.log.Error("cannot list the system extensions", "error", err)

		return nil
	}

	for _, r := range found {
		spec := r.TypedSpec()
		m.log.Info("system extension", "name", spec.Metadata.Name, "version", spec.Metadata.Version, "image", spec.Image)

		if err := state.Put(ctx, m.store, r); err != nil {
			return err
		}
	}

	return nil
}

// readExtensions reads an extensions.yaml. Without the file there are none.
func readExtensions(path string) ([]*state.ExtensionStatus, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	list, err := extension.ParseList(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}

	var found []*state.ExtensionStatus

	for _, layer := range list.Layers {
		spec := state.ExtensionStatusSpec{Image: layer.Image, Metadata: state.ExtensionMetadata{
			Name: layer.Metadata.Name, Version: layer.Metadata.Version, Author: layer.Metadata.Author,
			Description: layer.Metadata.Description, ExtraInfo: layer.Metadata.ExtraInfo,
		}}
		spec.Metadata.Compatibility.Talos.Version = layer.Metadata.Compatibility.Talos.Version
		found = append(found, state.NewExtensionStatus(strings.TrimSuffix(layer.Image, ".sqsh"), spec))
	}

	return found, nil
}
