package main

import (
	"context"
	"crypto"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/pkgs"
	"github.com/talos-factory/talos-factory/profiles"
	"github.com/talos-factory/talos-factory/rootfs"
	"github.com/talos-factory/talos-factory/signing"
	"github.com/talos-factory/talos-factory/signing/attest"
	"github.com/talos-factory/talos-factory/signing/provenance"
	"github.com/talos-factory/talos-factory/signing/sbom"
	"github.com/talos-factory/talos-factory/signing/verify"
)

// attester puts signatures, provenance and SBOMs beside the files of a build.
type attester struct {
	engine   *build.Engine
	release  *factory.Release
	checkout string // "" where the release was made elsewhere
	key      crypto.Signer
}

// attest signs what a build wrote.
func (o *options) attest(ctx context.Context, s *session, release *factory.Release, keys *signing.Set, profile profiles.Profile, artifacts []factory.Artifact, f buildFlags) (err error) {
	a := attester{engine: s.engine, release: release, key: keys.Cosign}
	if f.release == "" {
		if a.checkout, err = o.findCheckout(); err != nil {
			return err
		}
	}
	return a.sign(ctx, profile, artifacts, f.output)
}

// sign does that for each artifact, and signs the list of their folder anew.
func (a attester) sign(ctx context.Context, profile profiles.Profile, artifacts []factory.Artifact, dir string) error {
	system, from, err := a.describe(ctx, profile)
	if err != nil {
		return err
	}
	for _, artifact := range artifacts {
		text, err := system.Document(sbom.Subject{Name: filepath.Base(artifact.Path), SHA256: artifact.SHA256, Extensions: artifact.Extensions})
		if err != nil {
			return err
		}
		this := from
		this.Inputs = append(append([]verify.Resource{}, from.Inputs...), provenance.Extensions(artifact.Extensions)...)
		if err := attest.Artifact(a.key, artifact.Path, artifact.SHA256, text, this); err != nil {
			return err
		}
	}
	return attest.Release(a.key, dir)
}

// describe says what is in the release, and what it was made from.
func (a attester) describe(ctx context.Context, profile profiles.Profile) (*sbom.OS, provenance.Build, error) {
	from := provenance.Build{Profile: profile, Version: a.release.Version, BuildID: a.release.BuildID}
	if a.checkout == "" {
		d, err := a.release.Describe(ctx, a.engine)
		if err != nil {
			return nil, from, err
		}
		files, err := a.files(d.Parts[rootfs.Squashfs])
		if err != nil {
			return nil, from, err
		}
		from.Inputs = provenance.Parts(d)
		system, err := sbom.DescribeParts(a.release, d, rootfs.Squashfs, files)
		return system, from, err
	}
	results, err := a.engine.Build(ctx, a.release.Root)
	if err != nil {
		return nil, from, err
	}
	root := results[a.release.Root]
	files, err := a.files(root.Outputs[rootfs.Squashfs])
	if err != nil {
		return nil, from, err
	}
	recipes, err := pkgs.LoadRecipes(filepath.Join(a.checkout, "pkgs"))
	if err != nil {
		return nil, from, err
	}
	steps := a.release.Steps()
	if profile.Output.Kind == profiles.Installer {
		steps = append(steps, a.release.Program)
	}
	from.Isolation = root.Isolation
	if from.Inputs, err = provenance.Inputs(a.release.Lock(), a.checkout, steps...); err != nil {
		return nil, from, err
	}
	system, err := sbom.Describe(a.checkout, a.release, recipes, files)
	return system, from, err
}

// files reads the root, which takes a second, once.
func (a attester) files(root build.Blob) (map[string]sbom.Packed, error) {
	text, err := a.engine.Store.Remember("files of a squashfs 1", root.Digest, func() ([]byte, error) {
		f, err := a.engine.Store.Open(root.Digest)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		files, err := sbom.ReadRoot(f)
		if err != nil {
			return nil, err
		}
		return json.Marshal(files)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the root: %w", err)
	}
	var files map[string]sbom.Packed
	if err := json.Unmarshal(text, &files); err != nil {
		return nil, fmt.Errorf("reading what is remembered of the root: %w", err)
	}
	return files, nil
}
