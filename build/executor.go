package build

import (
	"context"
	"io"
)

// Executor runs one action whose trees and input blobs the engine has put in the store.
// An executor caches nothing: the engine asks its own table of actions first, whatever the executor.
type Executor interface {
	// Preflight is called once in a Build, before anything is fetched for the first action that has to run.
	Preflight(ctx context.Context) error
	// Execute returns the declared outputs, which are then in the store. The log gets
	// what the action printed. An action that ran and failed yields an *ExitError.
	Execute(ctx context.Context, a *Action, log io.Writer) (map[string]Blob, error)
	// Isolation names how actions are kept apart from the host; it goes into Result and provenance.
	Isolation() string
}
