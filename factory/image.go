package factory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/kernel/cmdline"
	"github.com/talos-factory/talos-factory/profiles"
	"github.com/talos-factory/talos-factory/profiles/assembly"
	"github.com/talos-factory/talos-factory/profiles/disk"
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
	parts, err := r.Parts(ctx, engine)
	if err != nil {
		return nil, err
	}
	boot := assembly.Boot{Cmdline: args}
	uki, err := assembly.UKI(parts, boot)
	if err != nil {
		return nil, fmt.Errorf("planning UKI: %w", err)
	}
	return assembly.Disk{Parts: parts, Boot: boot, UKI: uki, Layout: disk.Metal()}.Plan()
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
