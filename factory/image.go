package factory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/verity"
	"github.com/talos-factory/talos-factory/format/verity/superblock"
	"github.com/talos-factory/talos-factory/kernel/cmdline"
	"github.com/talos-factory/talos-factory/profiles"
	"github.com/talos-factory/talos-factory/profiles/assembly"
)

// ErrOutput is returned (wrapped) when the output folder cannot be written to.
var ErrOutput = errors.New("cannot write to the output folder")

// File is a file that a profile asks for, planned and not written.
type File struct {
	Name string
	Plan *extent.Plan
}

// Build makes the release's parts and writes the profile's files into the folder dir, which is made if missing, each with its
// checksum beside it. That dir can be written to is found out before anything is built.
func (r *Release) Build(ctx context.Context, engine *build.Engine, p profiles.Profile, dir string) ([]Artifact, error) {
	if err := writable(dir); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	o, err := r.order(ctx, engine, p)
	if err != nil {
		return nil, err
	}
	files, err := o.plan(ctx)
	if err != nil {
		return nil, err
	}
	var artifacts []Artifact
	for _, file := range files {
		artifact, err := writer{engine.Store}.write(ctx, filepath.Join(dir, file.Name), file.Plan)
		if err != nil {
			return nil, err
		}
		artifact.Version, artifact.BuildID, artifact.Kind, artifact.Extensions = r.Version, r.BuildID, p.Output.Kind, o.extensions
		artifacts = append(artifacts, artifact)
	}
	return artifacts, nil
}

// Plan makes the release's parts and plans the profile's files.
func (r *Release) Plan(ctx context.Context, engine *build.Engine, p profiles.Profile) ([]File, error) {
	o, err := r.order(ctx, engine, p)
	if err != nil {
		return nil, err
	}
	return o.plan(ctx)
}

// order checks a profile and makes what its files are planned from.
func (r *Release) order(ctx context.Context, engine *build.Engine, p profiles.Profile) (*order, error) {
	if p.Version != "" && p.Version != r.Version {
		return nil, fmt.Errorf("cannot build profile %q, which wants version %s: the release is %s", p.Name, p.Version, r.Version)
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("checking profile %q: %w", p.Name, err)
	}
	// Mistakes in the arguments are found before anything is built; each root hash has the same length.
	if _, err := commandLine(p, verityArgument(verity.Hash{})); err != nil {
		return nil, err
	}
	o := &order{release: r, engine: engine, profile: p}
	if err := o.customize(ctx); err != nil {
		return nil, err
	}
	var err error
	if o.parts, err = r.Parts(ctx, engine); err != nil {
		return nil, err
	}
	if o.parts, err = r.Keys.SignBoot(o.parts); err != nil {
		return nil, err
	}
	o.boot.Cmdline, err = commandLine(p, o.parts.Verity)
	return o, err
}

// maxCmdline is the kernel's COMMAND_LINE_SIZE, less the final NUL (Linux arch/{x86,arm64}/include/.../setup.h). What is longer the
// kernel cuts off, whatever it may have been.
const maxCmdline = 2047

// commandLine composes the kernel's arguments. What the root is verified by belongs to the release: a profile cannot change it.
func commandLine(p profiles.Profile, verified string) ([]string, error) {
	own, err := p.KernelArgs()
	if err != nil {
		return nil, err
	}
	if err := cmdline.Keep(superblock.Argument, own); err != nil {
		return nil, fmt.Errorf("composing kernel command line: %w", err)
	}
	args, err := cmdline.Merge(slices.Concat(cmdline.Console(), cmdline.Hardening(), []string{verified}), own...)
	if err != nil {
		return nil, fmt.Errorf("composing kernel command line: %w", err)
	}
	if n := len(assembly.Cmdline(args)); n > maxCmdline {
		return nil, fmt.Errorf("cannot use a kernel command line of %d characters: the kernel takes %d", n, maxCmdline)
	}
	return args, nil
}

// order is a profile that is being planned.
type order struct {
	release *Release
	engine  *build.Engine
	profile profiles.Profile
	parts   assembly.Parts
	boot    assembly.Boot

	extensions []UsedExtension
}

// plan makes the files of each kind.
func (o *order) plan(ctx context.Context) ([]File, error) {
	switch o.profile.Output.Kind {
	case profiles.Kernel:
		return o.one(o.parts.Kernel, nil)
	case profiles.Initramfs:
		return o.one(assembly.Initrd(o.parts, o.boot))
	case profiles.Cmdline:
		return o.one(extent.FromBytes([]byte(assembly.Cmdline(o.boot.Cmdline))), nil)
	case profiles.UKI:
		return o.one(o.uki())
	case profiles.PXE:
		return o.pxe()
	case profiles.Image:
		return o.image(ctx)
	case profiles.ISO:
		return o.one(o.iso())
	case profiles.Installer:
		return o.one(o.packInstaller(ctx))
	}
	return nil, fmt.Errorf("internal error: no plan for output kind %q", o.profile.Output.Kind)
}

func (o *order) one(plan *extent.Plan, err error) ([]File, error) {
	return []File{{o.profile.FileName(), plan}}, err
}

// pxe is what a network boot server hands out: a script for iPXE, and the files that it names, beside it.
func (o *order) pxe() ([]File, error) {
	initrd, err := assembly.Initrd(o.parts, o.boot)
	if err != nil {
		return nil, err
	}
	kernel, archive := o.profile, o.profile
	kernel.Output.Kind, archive.Output.Kind = profiles.Kernel, profiles.Initramfs
	// initrd= tells an EFI kernel which of the files that iPXE holds is its initramfs.
	script := fmt.Sprintf("#!ipxe\nimgfree\nkernel %s initrd=%s %s\ninitrd %s\nboot\n",
		kernel.FileName(), archive.FileName(), assembly.Cmdline(o.boot.Cmdline), archive.FileName())
	return []File{
		{kernel.FileName(), o.parts.Kernel},
		{archive.FileName(), initrd},
		{o.profile.FileName(), extent.FromBytes([]byte(script))},
	}, nil
}

// uki plans the UKI, signed if there are keys.
func (o *order) uki() (*extent.Plan, error) {
	plan, err := o.release.Keys.UKI(o.parts, o.boot)
	if err != nil {
		return nil, fmt.Errorf("planning UKI: %w", err)
	}
	return plan, nil
}

// enrollment is for images that are to start with Secure Boot only.
func (o *order) enrollment() *assembly.Enrollment {
	if !o.profile.SecureBoot {
		return nil
	}
	return o.release.Keys.Enrollment
}

// disk plans the raw disk of an image.
func (o *order) disk() (*extent.Plan, error) {
	uki, err := o.uki()
	if err != nil {
		return nil, err
	}
	layout, err := o.profile.Layout()
	if err != nil {
		return nil, err
	}
	return assembly.Disk{
		Parts: o.parts, Boot: o.boot, UKI: uki, Meta: o.metaValues(), Layout: layout, SectorSize: o.profile.Output.SectorSize,
		Enrollment: o.enrollment(),
	}.Plan()
}

// iso plans the ISO. With Secure Boot there is no way to start it by BIOS.
func (o *order) iso() (*extent.Plan, error) {
	uki, err := o.uki()
	if err != nil {
		return nil, err
	}
	parts := o.parts
	if o.profile.SecureBoot {
		parts.GRUBHybrid, parts.GRUBElTorito = nil, nil
	}
	return assembly.ISO{Parts: parts, Boot: o.boot, UKI: uki, Time: epoch, Enrollment: o.enrollment()}.Plan()
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
