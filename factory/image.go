package factory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/kernel/cmdline"
	"github.com/talos-factory/talos-factory/profiles"
	"github.com/talos-factory/talos-factory/profiles/disk"
	"github.com/talos-factory/talos-factory/rootfs"
)

// FileName is what the profile's artifact is called.
func FileName(p profiles.Profile, arch string) string {
	return fmt.Sprintf("%s-%s.%s", p.Platform, arch, p.Output.Format)
}

// ErrOutput is returned (wrapped) when the output folder cannot be written to.
var ErrOutput = errors.New("cannot write to the output folder")

// Build makes the release's parts and writes the profile's image into the folder dir, which is made if missing. That
// dir can be written to is found out before anything is built.
func (r *Release) Build(ctx context.Context, engine *build.Engine, p profiles.Profile, dir string) (Artifact, error) {
	if err := writable(dir); err != nil {
		return Artifact{}, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	plan, err := r.Plan(ctx, engine, p)
	if err != nil {
		return Artifact{}, err
	}
	artifact, err := writer{engine.Store}.write(ctx, filepath.Join(dir, FileName(p, r.Arch)), plan)
	artifact.Version, artifact.BuildID = r.Version, r.BuildID
	return artifact, err
}

// Plan makes the release's parts and plans the profile's image.
func (r *Release) Plan(ctx context.Context, engine *build.Engine, p profiles.Profile) (*extent.Plan, error) {
	args, err := cmdline.Merge(append(cmdline.Console(), cmdline.Hardening()...), p.KernelArgs...)
	if err != nil {
		return nil, fmt.Errorf("composing kernel command line: %w", err)
	}
	results, err := engine.Build(ctx, r.Steps()...)
	if err != nil {
		return nil, err
	}
	blobs := map[string]build.Blob{}
	for _, step := range r.Steps() {
		maps.Copy(blobs, results[step].Outputs)
	}
	a := &assembly{
		store: engine.Store, blobs: blobs, version: r.Version, layout: disk.Metal(),
		osRelease: rootfs.OSRelease(r.Version, r.BuildID), cmdline: strings.Join(args, " "),
	}
	return a.run()
}

func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	probe, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}
