//go:build linux

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/talos-factory/talos-factory/machine/machined/logbuf"
	"github.com/talos-factory/talos-factory/machine/machined/reaper"
)

// logSize is how much of each service's output is kept.
const logSize = 512 << 10

// ErrUnknown is returned for a service ID that was not added.
var ErrUnknown = errors.New("no such service")

// Supervisor runs services. Its methods may be called from anywhere.
type Supervisor struct {
	reaper   *reaper.Reaper
	log      *slog.Logger
	onChange func(Status)

	mu       sync.Mutex
	services map[string]*service
	order    []string
	changed  chan struct{} // closed and replaced at every change of any status
	closing  bool
}

// service is one service. Its fields belong to Supervisor.mu, except spec and output, which do not change.
type service struct {
	spec   Spec
	output *logbuf.Buffer
	status Status
	cancel context.CancelFunc // ends the goroutine that runs it; nil if there is none
	done   chan struct{}      // closed when that goroutine has ended
}

// New returns an empty supervisor. onChange, if not nil, is called with every new status, in order for one service, and must not
// call back.
func New(r *reaper.Reaper, log *slog.Logger, onChange func(Status)) *Supervisor {
	if onChange == nil {
		onChange = func(Status) {}
	}

	return &Supervisor{reaper: r, log: log, onChange: onChange, services: map[string]*service{}, changed: make(chan struct{})}
}

// Add makes a service known; it is not started.
func (s *Supervisor) Add(spec Spec) {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc := &service{spec: spec, output: logbuf.New(logSize), status: Status{ID: spec.ID, HealthUnknown: true}}
	if _, ok := s.services[spec.ID]; !ok {
		s.order = append(s.order, spec.ID)
	}

	s.services[spec.ID] = svc
	s.event(svc, Initialized, "known, not started")
}

// Start starts a service; nothing happens if it is started already.
func (s *Supervisor) Start(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc, ok := s.services[id]

	switch {
	case !ok:
		return fmt.Errorf("%w: %q", ErrUnknown, id)
	case s.closing:
		return fmt.Errorf("cannot start %s: the machine is stopping", id)
	case svc.cancel != nil:
		return nil
	}

	ctx, cancel := context.WithCancel(context.Background())
	svc.cancel, svc.done = cancel, make(chan struct{})

	go func() {
		s.run(ctx, svc)

		s.mu.Lock()
		svc.cancel = nil
		close(svc.done)
		s.mu.Unlock()
	}()

	return nil
}

// Stop stops a service and waits for its end.
func (s *Supervisor) Stop(ctx context.Context, id string) error {
	s.mu.Lock()

	svc, ok := s.services[id]
	if !ok {
		s.mu.Unlock()

		return fmt.Errorf("%w: %q", ErrUnknown, id)
	}

	if svc.cancel == nil {
		s.mu.Unlock()

		return nil
	}

	svc.cancel()
	done := svc.done
	s.mu.Unlock()

	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping %s: %w", id, ctx.Err())
	}
}

// StopAll stops every service, those that depend on others first, and refuses new starts.
func (s *Supervisor) StopAll(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	specs := make([]Spec, 0, len(s.order))

	for _, id := range s.order {
		specs = append(specs, s.services[id].spec)
	}
	s.mu.Unlock()

	var errs []error

	for _, id := range stopOrder(specs) {
		errs = append(errs, s.Stop(ctx, id))
	}

	return errors.Join(errs...)
}

// stopOrder lists the services so that each comes before all that it depends on; ties go to the one added last.
func stopOrder(specs []Spec) []string {
	var order []string

	byID := map[string]Spec{}
	for _, spec := range specs {
		byID[spec.ID] = spec
	}

	var visit func(id string)
	visit = func(id string) {
		if _, known := byID[id]; !known || slices.Contains(order, id) {
			return
		}

		for _, other := range specs {
			if slices.Contains(other.DependsOn, id) {
				visit(other.ID)
			}
		}

		order = append(order, id)
	}

	for _, spec := range slices.Backward(specs) {
		visit(spec.ID)
	}

	return order
}

// List returns the status of all services in the order they were added.
func (s *Supervisor) List() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()

	out := make([]Status, 0, len(s.order))
	for _, id := range s.order {
		out = append(out, s.services[id].copy())
	}

	return out
}

// Status returns one service's status.
func (s *Supervisor) Status(id string) (Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc, ok := s.services[id]
	if !ok {
		return Status{}, fmt.Errorf("%w: %q", ErrUnknown, id)
	}

	return svc.copy(), nil
}

// Output returns the buffer with what the service wrote.
func (s *Supervisor) Output(id string) (*logbuf.Buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc, ok := s.services[id]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknown, id)
	}

	return svc.output, nil
}

// Await waits until ok says yes to the status of all the services named.
func (s *Supervisor) Await(ctx context.Context, ok func(Status) bool, ids ...string) error {
	for {
		s.mu.Lock()
		changed := s.changed
		missing := ""

		for _, id := range ids {
			if svc := s.services[id]; svc == nil || !ok(svc.status) {
				missing = id

				break
			}
		}
		s.mu.Unlock()

		if missing == "" {
			return nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for service %s: %w", missing, ctx.Err())
		}
	}
}

// Up is a condition for Await: running and healthy.
func Up(st Status) bool { return st.up() }

func (svc *service) copy() Status {
	st := svc.status
	st.Events = slices.Clone(st.Events)

	return st
}

// event records a state and its reason. The caller holds mu.
func (s *Supervisor) event(svc *service, state State, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	st := &svc.status
	st.State = state

	if state != Running {
		st.PID, st.Healthy = 0, false
		st.HealthUnknown = true
	}

	st.Events = append(st.Events, Event{State: state, Message: message, At: time.Now()})
	if extra := len(st.Events) - keepEvents; extra > 0 {
		st.Events = slices.Delete(st.Events, 0, extra)
	}

	s.log.Info("service", "id", svc.spec.ID, "state", string(state), "message", message)
	s.publish(svc)
}

// publish tells everybody about a changed status. The caller holds mu.
func (s *Supervisor) publish(svc *service) {
	close(s.changed)
	s.changed = make(chan struct{})

	s.onChange(svc.copy())
}

func (s *Supervisor) record(svc *service, state State, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.event(svc, state, format, args...)
}
