package build

import (
	"context"
	"io"
	"os"
	"time"
)

// Fetch is a pinned thing that may need the network to be had.
type Fetch struct {
	Name string // for people: "deb clang-19 1:19.1.7-3+b1"
	Blob Blob   // what it must be
	// Open is called only when the store has no such blob. What it yields is
	// checked against Blob while it is stored, so Open need not check anything.
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// Tree is a read-only directory made from pinned things. It is kept in the store's
// disposable table of trees under ID, so Spec must say everything that decides its content.
type Tree struct {
	Name    string
	Spec    []byte  // canonical, complete description; hashed
	Fetches []Fetch // in the store before Make is called
	// Make fills dir, which exists and is empty. Afterwards the engine makes all files 0444 or
	// 0555 and all directories 0755, sets every modification time to Epoch, and renames dir in place.
	Make func(ctx context.Context, dir string, open func(Digest) (*os.File, error)) error
}

// ID is the digest of the tree's Spec.
func (t *Tree) ID() Digest { return Sum(t.Spec) }

// Mount puts a tree into the sandbox, read-only. Exactly one mount of a step has the Path "/".
type Mount struct {
	Path string
	Tree *Tree
}

// Input is one read-only file in the sandbox. Exactly one of the sources is set;
// Bytes may be empty but then must not be nil.
type Input struct {
	Path       string
	Executable bool

	Bytes    []byte
	Fetch    *Fetch
	Output   *OutputRef
	HostFile string // read and hashed when the step is planned (sources in the repository)
}

// OutputRef names an output of another step; it is what makes the graph.
type OutputRef struct {
	Step *Step
	Name string
}

// Cache is a mutable directory that outlives the step (GOCACHE). It is never part of
// an ActionID, so it may only make a step faster; Engine.NoCaches leaves it out.
type Cache struct {
	Name, Path string
}

// Step is a repeatable, expensive computation as a recipe writes it. It runs in a sandbox
// that holds its mounts and inputs and nothing else, with no network, at /build by default.
type Step struct {
	Name         string // "kernel amd64"; unique in a graph, not hashed
	Argv         []string
	Env          map[string]string // the whole environment
	Dir          string            // working directory, /build (writable, on disk) if empty
	Host, Target string            // architectures: "amd64", "arm64"
	Mounts       []Mount
	Inputs       []Input
	Outputs      []string // files the step must leave in /out
	Caches       []Cache
	Timeout      time.Duration // 0 is none; not hashed
	// Progress reads how far the step is from a line of its log; optional, not hashed.
	Progress func(line string) (current, total int64, ok bool)
}

// Result is what a step came to.
type Result struct {
	ID        ActionID
	Outputs   map[string]Blob
	Cached    bool          // nothing ran in this build
	Duration  time.Duration // of the run that made the outputs
	Isolation string        // of that run
}
