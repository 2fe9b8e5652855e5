//go:build linux

// Package supervisor runs the machine's services: each its own process, cgroup and user, started when what it needs is there,
// restarted with back-off when it ends, stopped in reverse order of need.
//
// It does not know what the services are, speak to containerd or keep anything on disk. Processes go through a reaper.
package supervisor

import (
	"context"
	"time"
)

// Spec describes a service.
type Spec struct {
	ID        string
	DependsOn []string // services that must be running and healthy first

	// Prepare is called before each start.
	Prepare func(ctx context.Context) error
	// Health says whether the service answers. Without it a running service is healthy.
	Health func(ctx context.Context) error

	Command Command
	// StopTimeout is how long the process may take to end on SIGTERM before it is killed. Zero means 10 s.
	StopTimeout time.Duration
	// RestartLimit is how many restarts in a row, none up for a minute in between, end in Failed. Zero is no limit: for the
	// services without which nobody could reach the machine to repair it.
	RestartLimit int
}

// Command is the process.
type Command struct {
	Path string
	Argv []string // with argv[0]
	Env  []string
	// UID and GID other than 0 also take away all privileges for good (see reaper.Options).
	UID, GID uint32
	// Cgroup is the directory, made if needed, that the process and its children live in; "" is none.
	Cgroup string
}

// State of a service. The names are those of the public API.
type State string

// The states.
const (
	Initialized State = "Initialized"
	Preparing   State = "Preparing"
	Waiting     State = "Waiting"
	Starting    State = "Starting"
	Running     State = "Running"
	Stopping    State = "Stopping"
	Finished    State = "Finished"
	Failed      State = "Failed"
	Skipped     State = "Skipped"
)

// Event is one change of state and its reason.
type Event struct {
	State   State
	Message string
	At      time.Time
}

// Status is what is known of a service. It is a copy.
type Status struct {
	ID            string
	State         State
	PID           int // 0 when not running
	Restarts      int
	LastExit      string
	Healthy       bool
	HealthUnknown bool
	HealthMessage string
	HealthChanged time.Time
	Events        []Event // the last ones, oldest first
}

// up says whether dependents may start.
func (s Status) up() bool { return s.State == Running && s.Healthy && !s.HealthUnknown }

// Restart policy: delays double from the first to the last; a service that stayed up for healthyAfter starts anew.
const (
	firstDelay   = time.Second
	lastDelay    = time.Minute
	healthyAfter = time.Minute
	keepEvents   = 32
)

// backoff is the delay before the n-th restart in a row, n from 1.
func backoff(n int) time.Duration {
	if n < 1 {
		n = 1
	}

	delay := firstDelay
	for ; n > 1 && delay < lastDelay; n-- {
		delay *= 2
	}

	return min(delay, lastDelay)
}

// decide is the restart policy: after an end of a process that was up for so long, with so many restarts in a row before, whether
// to restart, after what delay, and how many in a row that makes.
func decide(up time.Duration, inARow, limit int) (restart bool, delay time.Duration, now int) {
	if up >= healthyAfter {
		inARow = 0
	}

	now = inARow + 1
	if limit > 0 && now > limit {
		return false, 0, now
	}

	return true, backoff(now), now
}
