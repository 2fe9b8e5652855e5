package factory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/splice"
)

// xzScript compresses each line of the cuts - a file, an offset, a length - to a stream of its own. One thread, since what
// more of them write depends on the limits of memory they find; level 6, since the higher ones only have a larger
// dictionary, and -9 takes 674 MiB to compress; the check that xz has by default, by name.
const xzScript = `: >/out/streams.xz
: >/out/sizes
while read -r file offset length; do
	dd if="$file" bs=1M iflag=skip_bytes,count_bytes skip="$offset" count="$length" status=none |
		xz --format=xz --threads=1 -6 --check=crc64 --stdout >stream
	cat stream >>/out/streams.xz
	wc -c <stream >>/out/sizes
done </in/cuts`

// xzTool runs the locked xz as steps of the engine, which remembers the streams: one step for each range of a blob and
// each long run of zeros, and one for all literals of a file.
type xzTool struct {
	engine *build.Engine
	tools  *build.Tree // the locked toolset "xz"
	host   string
}

var _ splice.Tool = xzTool{}

// Names inside the sandbox.
const (
	xzInput   = "/in/content"
	xzCuts    = "/in/cuts"
	xzStreams = "streams.xz"
	xzSizes   = "sizes" // of the streams, one a line
)

// Compress implements splice.Tool.
func (x xzTool) Compress(ctx context.Context, contents []*extent.Plan) ([]splice.Piece, error) {
	var steps []*build.Step
	var owners [][]int // of each step, the contents it compresses
	var literal []int
	for i, content := range contents {
		// Short runs of zeros between blobs are of any size; they go with the literals.
		if content.Literals() == 0 && (len(content.Extents()) > 0 || content.Size() >= splice.MinZeros) {
			step, err := x.constant(content)
			if err != nil {
				return nil, err
			}
			steps, owners = append(steps, step), append(owners, []int{i})
		} else {
			literal = append(literal, i)
		}
	}
	if len(literal) > 0 {
		step, err := x.literals(contents, literal)
		if err != nil {
			return nil, err
		}
		steps, owners = append(steps, step), append(owners, literal)
	}
	results, err := x.engine.Build(ctx, steps...)
	if err != nil {
		return nil, err
	}
	pieces := make([]splice.Piece, len(contents))
	for i, step := range steps {
		if err := x.collect(results[step].Outputs, contents, owners[i], pieces); err != nil {
			return nil, fmt.Errorf("reading what %q made: %w", step.Name, err)
		}
	}
	return pieces, nil
}

// constant is the step for a range of a blob, or for zeros.
func (x xzTool) constant(content *extent.Plan) (*build.Step, error) {
	extents, size := content.Extents(), content.Size()
	if len(extents) == 0 {
		return x.step(fmt.Sprintf("xz %d zeros", size), fmt.Sprintf("/dev/zero 0 %d\n", size)), nil
	}
	e := extents[0]
	if len(extents) > 1 || e.Len != size {
		return nil, errors.New("internal error: cannot compress more than one range of a blob as one")
	}
	blob := build.Blob{Digest: e.Blob.SHA256, Size: e.Blob.Size}
	name := fmt.Sprintf("xz %d+%d of %s", e.BlobOff, size, blob.Digest)
	fetch := &build.Fetch{Name: name, Blob: blob, Open: func(context.Context) (io.ReadCloser, error) {
		return nil, build.ErrMissing // a plan's blobs are in the store
	}}
	return x.step(name, fmt.Sprintf("%s %d %d\n", xzInput, e.BlobOff, size), build.Input{Path: xzInput, Fetch: fetch}), nil
}

// literals is the step for what is particular to one file.
func (x xzTool) literals(contents []*extent.Plan, which []int) (*build.Step, error) {
	all := []byte{}
	var cuts strings.Builder
	for _, i := range which {
		b, err := io.ReadAll(contents[i].NewReader(nil))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&cuts, "%s %d %d\n", xzInput, len(all), len(b))
		all = append(all, b...)
	}
	name := "xz literals " + build.Sum(append([]byte(cuts.String()), all...)).String()
	return x.step(name, cuts.String(), build.Input{Path: xzInput, Bytes: all}), nil
}

func (x xzTool) step(name, cuts string, inputs ...build.Input) *build.Step {
	return &build.Step{
		Name: name,
		Argv: []string{"/bin/bash", "-euo", "pipefail", "-c", xzScript},
		Env:  map[string]string{"PATH": "/usr/bin", "LC_ALL": "C"},
		Host: x.host, Target: x.host,
		Mounts:  []build.Mount{{Path: "/", Tree: x.tools}},
		Inputs:  append(inputs, build.Input{Path: xzCuts, Bytes: []byte(cuts)}),
		Outputs: []string{xzStreams, xzSizes},
	}
}

// collect finds the streams of a step for the contents it compressed.
func (x xzTool) collect(outputs map[string]build.Blob, contents []*extent.Plan, which []int, pieces []splice.Piece) error {
	f, err := x.engine.Store.Open(outputs[xzSizes].Digest)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	sizes := strings.Fields(string(text))
	if len(sizes) != len(which) {
		return fmt.Errorf("internal error: %d streams of %d contents", len(sizes), len(which))
	}
	streams := extent.Blob{SHA256: outputs[xzStreams].Digest, Size: outputs[xzStreams].Size}
	off := int64(0)
	for i, content := range which {
		n, err := strconv.ParseInt(sizes[i], 10, 64)
		if err != nil {
			return err
		}
		pieces[content] = splice.Piece{Raw: contents[content].Size(), Size: n, Blob: streams, Off: off}
		off += n
	}
	if off != streams.Size {
		return fmt.Errorf("internal error: streams of %d bytes in a file of %d", off, streams.Size)
	}
	return nil
}
