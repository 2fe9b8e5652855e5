package factory

import (
	"context"
	"fmt"

	"github.com/talos-factory/talos-factory/config"
	"github.com/talos-factory/talos-factory/extension/pack"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/profiles"
	"github.com/talos-factory/talos-factory/version"
)

// UsedExtension is a system extension that went into an artifact. Its digest pins what a tag may no longer name tomorrow.
type UsedExtension struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Source  string `json:"source"`
	Digest  string `json:"digest"`
}

// Where a machine looks for what its image brought along.
const (
	embeddedConfigPath = "/usr/local/etc/talos/config.yaml"
	embeddedMetaPath   = "/usr/local/etc/talos/meta" // as a META partition, for machines that boot without a disk
)

// customize gets the customization's extensions and plans the archive in which they travel with the embedded files.
func (o *order) customize(ctx context.Context) error {
	files, err := o.embeddedFiles()
	if err != nil {
		return err
	}
	var packed []pack.Packed
	for _, source := range o.profile.Customization.SystemExtensions {
		extension, err := o.extension(ctx, pack.Source{Image: source.Image, Tarball: source.Tarball, Layout: source.OCI})
		if err != nil {
			return err
		}
		packed = append(packed, extension)
		data := extension.Manifest.Metadata
		o.extensions = append(o.extensions, UsedExtension{data.Name, data.Version, source.Image + source.Tarball + source.OCI, extension.Digest})
	}
	o.boot.Extra, err = pack.Customization(packed, files)
	return err
}

func (o *order) embeddedFiles() (files []pack.File, err error) {
	if text := o.profile.Customization.EmbeddedConfig; text != "" {
		if _, err := config.Load([]byte(text)); err != nil {
			return nil, fmt.Errorf("checking embedded machine configuration: %w", err)
		}
		files = append(files, pack.File{Path: embeddedConfigPath, Mode: 0o400, Content: extent.FromBytes([]byte(text))})
	}
	if len(o.profile.Customization.Meta) > 0 && o.profile.Output.Kind != profiles.Image {
		values, err := o.metaValues().Plan()
		if err != nil {
			return nil, err
		}
		files = append(files, pack.File{Path: embeddedMetaPath, Mode: 0o400, Content: values})
	}
	return files, nil
}

func (o *order) metaValues() meta.Values {
	values := meta.Values{}
	for _, v := range o.profile.Customization.Meta {
		values[meta.Tag(v.Key)] = []byte(v.Value)
	}
	return values
}

// extension gets one and packs it.
func (o *order) extension(ctx context.Context, source pack.Source) (pack.Packed, error) {
	extension, err := pack.Load(ctx, source, pack.Options{
		Store: o.engine.Store, Arch: o.release.Arch, Version: version.TalosAPI, Progress: o.engine.Progress,
	})
	if err != nil {
		return pack.Packed{}, err
	}
	tools, err := o.release.Tree("squashfs")
	if err != nil {
		return pack.Packed{}, err
	}
	step := extension.Step(tools, o.release.host)
	results, err := o.engine.Build(ctx, step)
	if err != nil {
		return pack.Packed{}, fmt.Errorf("packing extension %s: %w", source, err)
	}
	return pack.Packed{Extension: extension, Image: stored(results[step].Outputs[pack.Squashfs])}, nil
}
