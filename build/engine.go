package build

import (
	"context"
)

// Engine runs steps. Its fields are set before its first use.
type Engine struct {
	Store    *Store
	Executor Executor
	Progress Progress                 // nil: silent
	Jobs     int                      // actions at the same time; 0 is the number of CPUs
	NoCaches bool                     // run steps without their mutable caches
	Replay   func(step string) string // the command that runs one step again, for error texts; may be nil
}

var errTODO error

// Build brings the results of the steps, running what is missing.
func (e *Engine) Build(ctx context.Context, steps ...*Step) (map[*Step]Result, error) {
	return nil, errTODO
}

// MakeTree brings a tree and returns its directory.
func (e *Engine) MakeTree(ctx context.Context, t *Tree) (dir string, release func(), err error) {
	return "", nil, errTODO
}

// Run runs a tool.
func (e *Engine) Run(ctx context.Context, t Tool) error { return errTODO }
