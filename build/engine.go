package build

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// Engine runs steps. Its fields are set before its first use; then it may be used by many goroutines.
type Engine struct {
	Store    *Store
	Executor Executor
	Progress Progress                 // nil: silent
	Jobs     int                      // actions at the same time; 0 is the number of CPUs
	NoCaches bool                     // run steps without their mutable caches
	Replay   func(step string) string // the command that runs one step again, for error texts; may be nil

	once  sync.Once
	slots chan struct{} // one for each action that may run
	mu    sync.Mutex
	stats map[ActionID]bool // whether it came from the store when first asked for
}

// Stats says what the engine did so far.
type Stats struct {
	Ran    int // actions that ran and ended well
	Cached int // actions whose results were known
}

// Stats counts every action once, however often it was asked for.
func (e *Engine) Stats() (s Stats) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, cached := range e.stats {
		if cached {
			s.Cached++
		} else {
			s.Ran++
		}
	}
	return s
}

func (e *Engine) start() {
	e.once.Do(func() {
		if e.Jobs <= 0 {
			e.Jobs = runtime.NumCPU()
		}
		e.slots = make(chan struct{}, e.Jobs)
		e.stats = map[ActionID]bool{}
	})
}

func (e *Engine) count(id ActionID, cached bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if was, ok := e.stats[id]; !ok || was {
		e.stats[id] = cached
	}
}

// Build brings the results of the steps, running what is missing. Their outputs are in the store afterwards; those of
// the steps that they need are there only if something had to run. The map has all of them, though.
// The first failure ends the rest.
func (e *Engine) Build(ctx context.Context, steps ...*Step) (map[*Step]Result, error) {
	e.start()
	if err := Walk(steps, (*Step).check); err != nil {
		return nil, err
	}
	e.Store.running.RLock()
	defer e.Store.running.RUnlock()
	r := newRun(ctx, e)
	defer r.cancel(nil)
	g := r.group()
	for _, s := range steps {
		g.Go(func() error {
			_, err := r.ensure(s)
			return err
		})
	}
	if err := r.wait(g); err != nil {
		return nil, err
	}
	return r.results(), nil
}

// MakeTree brings a tree and returns its directory, which stays until release is called.
func (e *Engine) MakeTree(ctx context.Context, t *Tree) (dir string, release func(), err error) {
	e.start()
	e.Store.running.RLock()
	r := newRun(ctx, e)
	defer r.cancel(nil)
	g := r.group()
	g.Go(func() error { return r.tree(t) })
	if err := r.wait(g); err != nil {
		e.Store.running.RUnlock()
		return "", nil, err
	}
	return e.Store.treeDir(t.ID()), sync.OnceFunc(e.Store.running.RUnlock), nil
}

// Fetch brings pinned things into the store. label says what for, "kernel source".
func (e *Engine) Fetch(ctx context.Context, label string, fetches ...*Fetch) error {
	e.start()
	e.Store.running.RLock()
	defer e.Store.running.RUnlock()
	r := newRun(ctx, e)
	defer r.cancel(nil)
	g := r.group()
	g.Go(func() error { return r.fetchAll(label, fetches) })
	return r.wait(g)
}

func (e *Engine) emit(ev Event) {
	if e.Progress != nil {
		ev.Time = time.Now()
		e.Progress.Event(ev)
	}
}

// vertex reports the start of something and returns the function that reports its end.
func (e *Engine) vertex(kind Kind, name string) (done func(error)) {
	e.emit(Event{Kind: kind, Name: name, State: Started})
	return func(err error) {
		e.emit(Event{Kind: kind, Name: name, State: Done, Err: err})
	}
}
