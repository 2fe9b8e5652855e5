// Package boot holds the machine's start and stop as one printable list: phases of tasks, run top to bottom to start and read
// backwards to stop.
//
// It knows nothing of what the tasks do, runs nothing in parallel and retries nothing: a task that may wait or be tried again does
// so itself. A task that panics is a task that returned an error.
package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// Task is one step. Up is what it does at start; Down, which may be nil, is what has to be done about it at stop.
type Task struct {
	Name string
	Up   func(ctx context.Context) error
	Down func(ctx context.Context) error
	// Deadline is how long Down may take before the stop goes on without it. Zero means DefaultDeadline.
	Deadline time.Duration
}

// Phase is a named group of tasks.
type Phase struct {
	Name  string
	Tasks []Task
}

// Table is the whole list.
type Table []Phase

// DefaultDeadline is the time a task's Down gets if it names none.
const DefaultDeadline = 10 * time.Second

// Print writes the table as it will run; with backwards, the part of it that a stop runs, in that order.
func (t Table) Print(w io.Writer, backwards bool) error {
	var out []byte

	if backwards {
		for i := len(t) - 1; i >= 0; i-- {
			out = appendDown(out, t[i])
		}
	} else {
		for i, p := range t {
			out = fmt.Appendf(out, "%2d %s\n", i+1, p.Name)
			for _, task := range p.Tasks {
				out = fmt.Appendf(out, "     %s\n", task.Name)
			}
		}
	}

	_, err := w.Write(out)

	return err
}

func appendDown(out []byte, p Phase) []byte {
	named := false

	for i := len(p.Tasks) - 1; i >= 0; i-- {
		task := p.Tasks[i]
		if task.Down == nil {
			continue
		}

		if !named {
			out = fmt.Appendf(out, "%s\n", p.Name)
			named = true
		}

		out = fmt.Appendf(out, "     undo %s (at most %s)\n", task.Name, task.deadline())
	}

	return out
}

func (t Task) deadline() time.Duration {
	if t.Deadline == 0 {
		return DefaultDeadline
	}

	return t.Deadline
}

// Run is one run of a table. A reboot can be asked for while Up still waits in a task: the caller then cancels Up's context and
// waits for its end, before Down. Should they overlap all the same, nothing is undone twice.
type Run struct {
	Table Table
	Log   *slog.Logger

	mu   sync.Mutex
	done []Task // tasks whose Up was begun, in that order
}

// Up runs the table until its end or the first error, which names the phase and the task.
func (r *Run) Up(ctx context.Context) error {
	for i, p := range r.Table {
		r.Log.Info("phase", "name", p.Name, "number", fmt.Sprintf("%d/%d", i+1, len(r.Table)))

		for _, task := range p.Tasks {
			if err := ctx.Err(); err != nil {
				return err
			}

			r.mu.Lock()
			r.done = append(r.done, task)
			r.mu.Unlock()

			start := time.Now()

			if err := guard(ctx, task.Up); err != nil {
				return fmt.Errorf("phase %s, task %q: %w", p.Name, task.Name, err)
			}

			if took := time.Since(start); took > 500*time.Millisecond {
				r.Log.Info("task took long", "task", task.Name, "took", took.Round(time.Millisecond).String())
			}
		}
	}

	return nil
}

// Down undoes, last first, every task whose Up was begun. An error or a passed deadline is logged and kept, and the rest goes on: a
// stop that stops half way loses more than one that skips a step.
func (r *Run) Down(ctx context.Context) error {
	r.mu.Lock()
	done := r.done
	r.done = nil
	r.mu.Unlock()

	var errs []error

	for i := len(done) - 1; i >= 0; i-- {
		task := done[i]
		if task.Down == nil {
			continue
		}

		r.Log.Info("undoing", "task", task.Name)

		if err := undo(ctx, task); err != nil {
			err = fmt.Errorf("undoing %q: %w", task.Name, err)
			r.Log.Error(err.Error())
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}

func undo(ctx context.Context, task Task) error {
	ctx, cancel := context.WithTimeout(ctx, task.deadline())
	defer cancel()

	result := make(chan error, 1)
	go func() { result <- guard(ctx, task.Down) }()

	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("not done after %s", task.deadline())
	}
}

func guard(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: panic: %v\n%s", p, debug.Stack())
		}
	}()

	return f(ctx)
}
