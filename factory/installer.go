package factory

import (
	"context"
	"errors"
	"time"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/profiles"
	"github.com/talos-factory/talos-factory/profiles/assembly"
)

// Installer is what an installer container of a profile is packed from, and the means to do it.
type Installer struct {
	Profile profiles.Profile
	Parts   assembly.Parts
	Boot    assembly.Boot
	UKI     *extent.Plan
	Program *extent.Plan // the installer, a static program
	BIOS    bool         // disks boot by BIOS, too
	Signed  bool         // boot loader and UKI are
	BuildID string
	Created time.Time

	Source extent.Source
	Sum    func(*extent.Plan) ([32]byte, error)     // remembered
	Gzip   func(*extent.Plan) (*extent.Plan, error) // from remembered pieces
}

// Packer packs an installer container as one file. The packing of containers comes after this package; whoever makes a release fills
// it in.
type Packer func(Installer) (*extent.Plan, error)

// Installer makes the release's parts and gathers what the profile's installer container is packed from.
func (r *Release) Installer(ctx context.Context, engine *build.Engine, p profiles.Profile) (Installer, error) {
	o, err := r.order(ctx, engine, p)
	if err != nil {
		return Installer{}, err
	}
	return o.installer(ctx)
}

func (o *order) installer(ctx context.Context) (Installer, error) {
	program, err := o.release.blobs(ctx, o.engine, o.release.Program)
	if err != nil {
		return Installer{}, err
	}
	uki, err := o.uki()
	if err != nil {
		return Installer{}, err
	}
	splicer := o.splicer()
	return Installer{
		Profile: o.profile, Parts: o.parts, Boot: o.boot, UKI: uki, Program: extent.FromBlob(stored(program[installProg])),
		BIOS: o.profile.BIOS(), Signed: o.release.Keys.Programs != nil, BuildID: o.release.BuildID, Created: epoch,
		Source: Blobs(o.engine.Store),
		Sum:    o.sum(ctx),
		Gzip:   func(plan *extent.Plan) (*extent.Plan, error) { return splicer.Gzip(ctx, plan) },
	}, nil
}

func (o *order) packInstaller(ctx context.Context) (*extent.Plan, error) {
	if o.release.Pack == nil {
		return nil, errors.New("internal error: nobody packs installers")
	}
	content, err := o.installer(ctx)
	if err != nil {
		return nil, err
	}
	return o.release.Pack(content)
}
