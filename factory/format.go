package factory

import (
	"context"
	"fmt"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/qcow2"
	"github.com/talos-factory/talos-factory/format/vhd"
	"github.com/talos-factory/talos-factory/profiles"
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
	}
	return nil, fmt.Errorf("internal error: no planner")
}

func (o *order) compress(ctx context.Context, plan *extent.Plan) (*extent.Plan, error) {
	switch o.profile.Output.Compression {
	case profiles.None, "":
		return plan, nil
	}
	return nil, fmt.Errorf("internal error: no compressor")
}

// epoch is the time that artifacts carry: of the release, not of the clock. A release has no date of its own; this is the
// earliest that FAT can say, as on the partitions.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
