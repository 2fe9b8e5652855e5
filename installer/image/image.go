// Package image packs an installer container: an OCI image with the installer program and what it puts on a disk.
//
// An image is a plan like every other artifact: its layers are archives whose compressed pieces are remembered, two releases
// and two customizations share the layers that are the same for both, and nothing is copied until somebody reads. It builds none of
// what it packs, keeps nothing and signs nothing.
package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/uki"
	"github.com/talos-factory/talos-factory/installer"
	"github.com/talos-factory/talos-factory/profiles/assembly"
)

// Content is what an installer for one architecture is packed from.
type Content struct {
	Parts    assembly.Parts
	Boot     assembly.Boot
	UKI      *extent.Plan // of Parts and Boot; signed, maybe
	Signed   bool
	BuildID  string
	Platform string
	BIOS     bool // disks boot by BIOS, too

	Program   *extent.Plan // the installer, a static program
	Created   time.Time    // of the release
	SourceURL string       // where the source is, or ""
}

// Tools are how plans are read, hashed and compressed. Whoever has a store remembers what the latter two found.
type Tools struct {
	Source extent.Source
	Sum    func(*extent.Plan) ([32]byte, error)
	Gzip   func(*extent.Plan) (*extent.Plan, error) // what it returns is read from Source, too
}

// Image is an installer's image. Its layers are read when somebody asks for them.
type Image struct {
	v1.Image

	core *core
	tag  string
}

// core is what an image is made of (partial.CompressedImageCore).
type core struct {
	config, manifest []byte
	layers           []*layer
}

// New packs an image.
func New(c Content, tools Tools) (*Image, error) {
	record, err := c.record(tools.Source)
	if err != nil {
		return nil, fmt.Errorf("packing installer: %w", err)
	}
	made := &core{}
	for _, l := range c.layers(record) {
		packed, err := l.pack(tools)
		if err != nil {
			return nil, fmt.Errorf("packing installer: layer %s: %w", l.name, err)
		}
		made.layers = append(made.layers, packed)
	}
	if err := made.describe(c); err != nil {
		return nil, fmt.Errorf("packing installer: %w", err)
	}
	whole, err := partial.CompressedToImage(made)
	return &Image{whole, made, tag(c.Parts.Version)}, err
}

// record is install.yaml. What the UKI says of itself must be what the record says: it is what boots.
func (c Content) record(source extent.Source) ([]byte, error) {
	if c.Program == nil || c.UKI == nil || c.Parts.Kernel == nil || c.Parts.Initramfs == nil {
		return nil, errors.New("internal error: the installer program, UKI, kernel or initramfs is missing")
	}
	reader := c.UKI.NewReader(source)
	defer reader.Close()
	inside, err := uki.Describe(reader, c.UKI.Size())
	if err != nil {
		return nil, fmt.Errorf("reading UKI: %w", err)
	}
	if v := installer.OSVersion(inside[".osrel"]); v != c.Parts.Version {
		return nil, fmt.Errorf("cannot label the image %s: its UKI is of version %q", c.Parts.Version, v)
	}
	if want := assembly.Cmdline(c.Boot.Cmdline); inside[".cmdline"] != want {
		return nil, fmt.Errorf("cannot record the kernel arguments %q: the UKI has %q", want, inside[".cmdline"])
	}
	return installer.Record{
		Version: c.Parts.Version, BuildID: c.BuildID, Arch: c.Parts.Arch, Platform: c.Platform,
		BIOS: c.BIOS, Signed: c.Signed, Extra: c.carriesExtra(),
		Cmdline: c.Boot.Cmdline, OSRelease: c.Parts.OSRelease,
	}.Encode()
}

// describe writes the image's configuration and manifest.
func (i *core) describe(c Content) (err error) {
	labels := map[string]string{installer.VersionLabel: c.Parts.Version}
	if c.SourceURL != "" {
		labels["org.opencontainers.image.source"] = c.SourceURL
	}
	created := v1.Time{Time: c.Created.UTC().Truncate(time.Second)}
	config := v1.ConfigFile{
		Architecture: c.Parts.Arch, OS: "linux", Created: created,
		Config: v1.Config{
			Entrypoint: []string{installer.Program}, Labels: labels,
			Env: []string{"PATH=/usr/bin", "TARGETARCH=" + c.Parts.Arch, "VERSION=" + c.Parts.Version},
		},
		RootFS: v1.RootFS{Type: "layers"},
	}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	for _, l := range i.layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, l.diffID)
		config.History = append(config.History, v1.History{Created: created, CreatedBy: "factory: " + l.name})
		manifest.Layers = append(manifest.Layers, v1.Descriptor{MediaType: types.OCILayer, Size: l.packed.Size(), Digest: l.digest})
	}
	if i.config, err = json.Marshal(config); err != nil {
		return err
	}
	manifest.Config = v1.Descriptor{MediaType: types.OCIConfigJSON, Size: int64(len(i.config)), Digest: hashOf(i.config)}
	i.manifest, err = json.Marshal(manifest)
	return err
}

// MediaType implements partial.CompressedImageCore, as the methods below.
func (i *core) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawConfigFile is the image's configuration.
func (i *core) RawConfigFile() ([]byte, error) { return i.config, nil }

// RawManifest is the image's manifest.
func (i *core) RawManifest() ([]byte, error) { return i.manifest, nil }

// LayerByDigest finds a layer.
func (i *core) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, l := range i.layers {
		if l.digest == h {
			return l, nil
		}
	}
	return nil, fmt.Errorf("cannot find layer %s", h)
}

func hashOf(b []byte) v1.Hash { return hash(sha256.Sum256(b)) }

func hash(digest [32]byte) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(digest[:])}
}
