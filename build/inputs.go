package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// parallelFetches is how many things are fetched at the same time: enough to hide
// round trips, few enough for a mirror to like us.
const parallelFetches = 8

// inputs brings all that an action needs into the store: fetches, trees, outputs of other steps, files.
func (r *run) inputs(s *Step) (*Action, error) {
	var a *Action
	var fetches []*Fetch
	for _, in := range s.Inputs {
		if in.Fetch != nil {
			fetches = append(fetches, in.Fetch)
		}
	}
	g := r.group()
	g.Go(func() (err error) {
		a, err = r.action(s, r.ensure)
		return err
	})
	g.Go(func() error { return r.fetchAll(s.Name, fetches) })
	for _, m := range s.Mounts {
		g.Go(func() error { return r.tree(m.Tree) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return a, r.e.Store.putFiles(s, a)
}

// putFiles stores the inputs that the step brings itself. A file of the host that was changed since the
// action was planned would be a lie in the action's ID, so that is an error.
func (s *Store) putFiles(step *Step, a *Action) error {
	want := map[string]Blob{}
	for _, in := range a.Inputs {
		want[in.Path] = in.Blob
	}
	for _, in := range step.Inputs {
		if in.Fetch != nil || in.Output != nil || s.Has(want[in.Path]) {
			continue
		}
		content := in.Bytes
		if in.HostFile != "" {
			var err error
			if content, err = os.ReadFile(in.HostFile); err != nil {
				return fmt.Errorf("reading an input of %q: %w", step.Name, err)
			}
		}
		if err := s.PutExact(bytes.NewReader(content), want[in.Path]); err != nil {
			return fmt.Errorf("storing input %s of %q, which must not change during a build: %w", in.Path, step.Name, err)
		}
	}
	return nil
}

// tree makes a tree unless the store has it.
func (r *run) tree(t *Tree) error {
	_, err := r.trees.do(t.ID(), func() (_ struct{}, err error) {
		if r.e.Store.hasTree(t.ID()) {
			return struct{}{}, nil
		}
		var fetches []*Fetch
		for i := range t.Fetches {
			fetches = append(fetches, &t.Fetches[i])
		}
		if err := r.fetchAll(t.Name, fetches); err != nil {
			return struct{}{}, err
		}
		done := r.e.vertex(KindTree, t.Name)
		defer func() { done(err) }()
		if err := r.e.Store.makeTree(r.ctx, t); err != nil {
			return struct{}{}, fmt.Errorf("making tree %q: %w", t.Name, err)
		}
		return struct{}{}, nil
	})
	return err
}

// fetchAll fetches what the store lacks; it is one vertex of the display.
func (r *run) fetchAll(label string, all []*Fetch) (err error) {
	var missing []*Fetch
	seen := map[Digest]bool{}
	var total int64
	for _, f := range all {
		if !seen[f.Blob.Digest] && !r.e.Store.Has(f.Blob) {
			missing = append(missing, f)
			total += f.Blob.Size
		}
		seen[f.Blob.Digest] = true
	}
	if len(missing) == 0 {
		return nil
	}
	name := fmt.Sprintf("fetch %d files for %s", len(missing), label)
	if len(missing) == 1 {
		name = "fetch " + missing[0].Name
	}
	r.e.emit(Event{Kind: KindFetch, Name: name, State: Started, Total: total})
	defer func() {
		ev := Event{Kind: KindFetch, Name: name, State: Done, Total: total, Err: err}
		if err == nil {
			ev.Current = total
		}
		r.e.emit(ev)
	}()
	c := &byteCount{report: func(n int64) {
		r.e.emit(Event{Kind: KindFetch, Name: name, State: Counted, Current: min(n, total), Total: total})
	}}
	g := r.group()
	g.SetLimit(parallelFetches)
	for _, f := range missing {
		g.Go(func() error {
			if r.ctx.Err() != nil {
				return r.ctx.Err()
			}
			_, err := r.fetched.do(f.Blob.Digest, func() (struct{}, error) {
				return struct{}{}, r.e.fetch(r.ctx, f, c)
			})
			return err
		})
	}
	return g.Wait()
}

// fetch tries again when a connection breaks, but not when it was refused or brought wrong bytes: Open knows its mirrors.
func (e *Engine) fetch(ctx context.Context, f *Fetch, c *byteCount) (err error) {
	for range 3 {
		var body io.ReadCloser
		if body, err = f.Open(ctx); err != nil {
			break
		}
		err = e.Store.PutExact(io.TeeReader(body, c), f.Blob)
		body.Close() // nothing more is wanted of it
		var mismatch *MismatchError
		if err == nil || ctx.Err() != nil || errors.As(err, &mismatch) || isDiskError(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("fetching %s: %w", f.Name, err)
	}
	return nil
}

// isDiskError reports whether an error is the store's rather than the connection's.
func isDiskError(err error) bool {
	var p *os.PathError
	return errors.As(err, &p)
}

// byteCount counts what passes, and reports ten times a second at most.
type byteCount struct {
	n, last atomic.Int64
	report  func(int64)
}

func (c *byteCount) Write(p []byte) (int, error) {
	n := c.n.Add(int64(len(p)))
	now := time.Now().UnixMilli()
	if last := c.last.Load(); now-last >= 100 && c.last.CompareAndSwap(last, now) {
		c.report(n)
	}
	return len(p), nil
}
