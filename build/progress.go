package build

import "time"

// Progress is told what the engine does. Event is called from many goroutines.
type Progress interface {
	Event(Event)
}

// Kind says what a vertex of the progress display is.
type Kind string

const (
	KindStep  Kind = "step"
	KindTree  Kind = "tree"
	KindFetch Kind = "fetch"
)

// State says what happened to a vertex.
type State string

const (
	Started State = "started" // it runs; Cached steps are started and done at once
	Logged  State = "logged"  // Log has whole lines
	Counted State = "counted" // Current and Total have moved
	Done    State = "done"    // Err, Cached and Replaced say how it ended
)

// Event is one thing that happened to one vertex.
type Event struct {
	Time    time.Time
	Kind    Kind
	Name    string // of the vertex: a step's or tree's name, or "fetch 95 files for X"
	State   State
	Log     []byte
	Current int64 // bytes if Kind is KindFetch, else what Step.Progress said
	Total   int64
	Cached  bool
	Err     error
}
