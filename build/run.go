package build

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// run is one call of Build: everything in it happens once.
type run struct {
	e      *Engine
	ctx    context.Context // ends at the first failure, which is its cause
	cancel context.CancelCauseFunc

	preflight flight[struct{}, struct{}]
	resolved  flight[*Step, Result] // digests are known; the bytes need not be there
	ensured   flight[*Step, Result] // the bytes are there
	trees     flight[Digest, struct{}]
	fetched   flight[Digest, struct{}]
}

func newRun(ctx context.Context, e *Engine) *run {
	r := &run{e: e}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	return r
}

// group starts functions of which the first to fail ends the whole run.
func (r *run) group() *group { return &group{r: r} }

type group struct {
	errgroup.Group
	r *run
}

func (g *group) Go(fn func() error) {
	g.Group.Go(func() error {
		err := fn()
		if err != nil {
			g.r.cancel(err)
		}
		return err
	})
}

// wait returns the failure that came first, not one of those that it caused.
func (r *run) wait(g *group) error {
	if err := g.Wait(); err != nil {
		return context.Cause(r.ctx)
	}
	return nil
}

// results is what all steps came to that were touched.
func (r *run) results() map[*Step]Result {
	all := r.resolved.values()
	for s, res := range r.ensured.values() {
		all[s] = res
	}
	return all
}

// resolve finds out what a step's outputs are, running it only if no record tells.
func (r *run) resolve(s *Step) (Result, error) {
	return r.resolved.do(s, func() (Result, error) {
		a, err := r.action(s, r.resolve)
		if err != nil {
			return Result{}, err
		}
		rec, found, err := r.e.Store.loadRecord(a.ID())
		if err != nil {
			return Result{}, err
		}
		if !found || !rec.fits(a) {
			return r.execute(s)
		}
		return r.cached(s, rec), nil
	})
}

// ensure resolves a step and makes sure that its outputs are in the store.
func (r *run) ensure(s *Step) (Result, error) {
	return r.ensured.do(s, func() (Result, error) {
		res, err := r.resolve(s)
		if err != nil || r.e.Store.hasAll(res.Outputs) {
			return res, err
		}
		return r.execute(s)
	})
}

// action resolves a step's inputs, those that are outputs of steps by way of bring.
func (r *run) action(s *Step, bring func(*Step) (Result, error)) (*Action, error) {
	var mu sync.Mutex
	results := map[*Step]Result{}
	g := r.group()
	for _, need := range s.needs() {
		g.Go(func() error {
			res, err := bring(need)
			mu.Lock()
			defer mu.Unlock()
			results[need] = res
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return newAction(s, func(ref *OutputRef) (Blob, error) {
		return results[ref.Step].Outputs[ref.Name], nil
	})
}

func (r *run) cached(s *Step, rec record) Result {
	r.e.Store.keep(s, rec.Outputs)
	r.e.count(rec.Action, true)
	r.e.emit(Event{Kind: KindStep, Name: s.Name, State: Started, Cached: true})
	r.e.emit(Event{Kind: KindStep, Name: s.Name, State: Done, Cached: true})
	return rec.result(true)
}

func (rec record) result(cached bool) Result {
	return Result{ID: rec.Action, Outputs: rec.Outputs, Cached: cached, Duration: rec.Duration, Isolation: rec.Isolation}
}

// fits reports whether a record has just the outputs that the action declares.
func (rec record) fits(a *Action) bool {
	for _, name := range a.Outputs {
		if _, ok := rec.Outputs[name]; !ok {
			return false
		}
	}
	return len(rec.Outputs) == len(a.Outputs)
}

// execute runs a step: it brings its inputs, and then looks once more, because another process may have been faster
// or an input that had to be made again may have come out different.
func (r *run) execute(s *Step) (Result, error) {
	if _, err := r.preflight.do(struct{}{}, func() (struct{}, error) {
		return struct{}{}, r.e.Executor.Preflight(r.ctx)
	}); err != nil {
		return Result{}, err
	}
	a, err := r.inputs(s)
	if err != nil {
		return Result{}, err
	}
	id := a.ID()
	unlock, err := r.e.Store.lockEntry(r.ctx, Digest(id), func() {
		r.e.emit(Event{Kind: KindStep, Name: s.Name, State: Logged, Log: []byte("waiting for another process that runs the same action\n")})
	})
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	rec, found, err := r.e.Store.loadRecord(id)
	if err != nil {
		return Result{}, err
	}
	if found && rec.fits(a) && r.e.Store.hasAll(rec.Outputs) {
		return r.cached(s, rec), nil
	}
	select {
	case r.e.slots <- struct{}{}:
		defer func() { <-r.e.slots }()
	case <-r.ctx.Done():
		return Result{}, r.ctx.Err()
	}
	return r.executeNow(s, a)
}

func (r *run) executeNow(s *Step, a *Action) (res Result, err error) {
	done := r.e.vertex(KindStep, s.Name)
	defer func() {
		var failed *StepError
		if errors.As(err, &failed) {
			done(failed.Err) // the rest is told once, by whoever called Build
			return
		}
		done(err)
	}()
	log, err := r.e.newStepLog(s, a.ID())
	if err != nil {
		return Result{}, err
	}
	if r.e.NoCaches {
		a.Caches = nil
	}
	began := time.Now()
	outputs, err := r.e.Executor.Execute(r.ctx, a, log)
	logErr := log.Close()
	if err != nil {
		if r.ctx.Err() != nil {
			return Result{}, r.ctx.Err() // not the step's fault
		}
		return Result{}, r.e.stepError(s, log, err)
	}
	if logErr != nil {
		return Result{}, fmt.Errorf("writing the log of %q: %w", s.Name, logErr)
	}
	rec := record{
		Action: a.ID(), Step: s.Name, Outputs: outputs,
		Duration: time.Since(began).Round(time.Millisecond), Isolation: r.e.Executor.Isolation(),
	}
	if err := r.e.Store.saveRecord(rec); err != nil {
		return Result{}, fmt.Errorf("recording the result of %q: %w", s.Name, err)
	}
	r.e.count(rec.Action, false)
	return rec.result(false), nil
}
