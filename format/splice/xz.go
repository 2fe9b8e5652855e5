package splice

import (
	"context"
	"fmt"

	"github.com/talos-factory/talos-factory/format/extent"
)

// xzGrid is how much of a blob is one stream: enough that a dictionary of 8 MiB loses little at its start, little
// enough that several CPUs share a blob.
const xzGrid = 16 << 20

// Tool makes .xz files.
type Tool interface {
	// Compress makes each content a stream of its own, stored where the compressed plan will be read. A content is
	// a range of one blob, or nothing but zeros, or has no blob in it.
	Compress(ctx context.Context, contents []*extent.Plan) ([]Piece, error)
}

// XZ returns the plan compressed as .xz: one stream for each piece (The .xz File Format 1.2.0, 2: streams
// may follow one another, and their sizes are multiples of four). Remembering pieces is left to the tool.
func XZ(ctx context.Context, plan *extent.Plan, tool Tool) (*extent.Plan, error) {
	if err := plan.Err(); err != nil {
		return nil, err
	}
	var contents []*extent.Plan
	var order []int
	place := map[extent.Digest]int{}
	for _, seg := range cut(plan, xzGrid) {
		content := Joined(seg.content).Slice(int64(seg.index)*xzGrid, min(xzGrid, seg.content.Size()-int64(seg.index)*xzGrid))
		if len(seg.content.Extents()) == 0 {
			content = seg.content // zeros are one piece whatever the grid
		}
		id := Identity(content)
		at, ok := place[id]
		if !ok {
			at = len(contents)
			place[id] = at
			contents = append(contents, content)
		}
		order = append(order, at)
	}
	streams, err := tool.Compress(ctx, contents)
	if err != nil {
		return nil, err
	}
	if len(streams) != len(contents) {
		return nil, fmt.Errorf("internal error: %d streams of %d contents", len(streams), len(contents))
	}
	var out output
	for _, at := range order {
		out.piece(streams[at])
	}
	return out.plan()
}
