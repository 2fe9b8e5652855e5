package factory

import (
	gotar "archive/tar"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/ova"
	"github.com/talos-factory/talos-factory/format/qcow2"
	"github.com/talos-factory/talos-factory/format/splice"
	"github.com/talos-factory/talos-factory/format/tar"
	"github.com/talos-factory/talos-factory/format/vhd"
	"github.com/talos-factory/talos-factory/format/vmdk"
	"github.com/talos-factory/talos-factory/profiles"
	"github.com/talos-factory/talos-factory/version"
)

// image plans a disk in the format and with the compression that the profile asks for.
func (o *order) image(ctx context.Context) ([]File, error) {
	raw, err := o.disk()
	if err != nil {
		return nil, err
	}
	formatted, err := o.format(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", o.profile.Output.DiskFormat, err)
	}
	return o.one(o.compress(ctx, formatted))
}

func (o *order) format(ctx context.Context, raw *extent.Plan) (*extent.Plan, error) {
	switch out := o.profile.Output; out.DiskFormat {
	case profiles.Raw:
		return raw, nil
	case profiles.QCOW2:
		return qcow2.Plan(raw, qcow2.Options{ClusterSize: int64(out.ClusterSize)})
	case profiles.VHD:
		kind := vhd.Dynamic
		if out.Subformat == "fixed" {
			kind = vhd.Fixed
		}
		return vhd.Plan(raw, vhd.Options{Kind: kind, Time: epoch})
	case profiles.VMDK:
		return vmdk.Plan(ctx, raw, o.profile.FileName(), o.splicer())
	case profiles.OVA:
		return o.ova(ctx, raw)
	}
	return nil, fmt.Errorf("internal error: no planner")
}

// ova wraps the disk in a description of a virtual machine, which asks for a configuration when it is deployed.
func (o *order) ova(ctx context.Context, raw *extent.Plan) (*extent.Plan, error) {
	machine := ova.Machine{
		Name: strings.TrimSuffix(o.profile.FileName(), ".ova"), Product: version.Name, Version: o.release.Version,
		SecureBoot: o.profile.SecureBoot, Time: epoch,
		Properties: []ova.Property{{Key: "talos.config", Label: "Machine configuration", Description: "The machine configuration, in base64"}},
	}
	disk, err := vmdk.Plan(ctx, raw, machine.DiskName(), o.splicer())
	if err != nil {
		return nil, err
	}
	return ova.Plan(machine, ova.Disk{Image: disk, Capacity: raw.Size()}, o.sum(ctx))
}

// splicer compresses what is planned; pieces stay in the store.
func (o *order) splicer() splice.Splicer {
	return splice.Splicer{Source: Blobs(o.engine.Store), Cache: pieces{o.engine.Store}}
}

// sum hashes plans, and remembers.
func (o *order) sum(ctx context.Context) func(*extent.Plan) ([32]byte, error) {
	return func(plan *extent.Plan) ([32]byte, error) {
		id, err := planID(plan)
		if err != nil {
			return [32]byte{}, err
		}
		return writer{o.engine.Store}.checksum(ctx, id, plan)
	}
}

func (o *order) compress(ctx context.Context, plan *extent.Plan) (*extent.Plan, error) {
	s := o.splicer()
	switch o.profile.Output.Compression {
	case profiles.None, "":
		return plan, nil
	case profiles.Zstd:
		return s.Zstd(ctx, plan)
	case profiles.Gzip:
		return s.Gzip(ctx, plan)
	case profiles.TarGz:
		archive, err := tar.Plan([]tar.File{{Path: gcpDisk, Mode: 0o644, Content: plan}}, tar.Options{Format: gotar.FormatGNU, Time: epoch})
		if err != nil {
			return nil, err
		}
		return s.Gzip(ctx, archive)
	case profiles.XZ:
		tools, err := o.release.Tree("xz")
		if err != nil {
			return nil, err
		}
		return splice.XZ(ctx, plan, xzTool{engine: o.engine, tools: tools, host: o.release.host})
	}
	return nil, fmt.Errorf("internal error: no compressor")
}

// gcpDisk is the name that Compute Engine expects in the archive
// (cloud.google.com/compute/docs/import/import-existing-image, "Compress the disk image").
const gcpDisk = "disk.raw"

// epoch is the time that artifacts carry: of the release, not of the clock. A release has no date of its own; this is the
// earliest that FAT can say, as on the partitions.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
