//go:build linux

package supervisor

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/talos-factory/talos-factory/machine/machined/reaper"
)

// run keeps a service going until ctx ends or the policy gives up.
func (s *Supervisor) run(ctx context.Context, svc *service) {
	for inARow := 0; ; {
		if err := s.await(ctx, svc); err != nil {
			s.ended(ctx, svc, err)

			return
		}

		begun := time.Now()
		err := s.runOnce(ctx, svc)

		if ctx.Err() != nil {
			s.ended(ctx, svc, err)

			return
		}

		restart, delay, now := decide(time.Since(begun), inARow, svc.spec.RestartLimit)
		inARow = now
		reason := exitReason(err)

		if !restart {
			s.exited(svc, reason)
			s.record(svc, Failed, "exited: %s, not restarted: %d restarts in a row (%s)", reason, inARow-1, lastLine(svc.output.Tail(1)))

			return
		}

		s.mu.Lock()
		svc.status.LastExit = reason
		svc.status.Restarts++
		s.event(svc, Waiting, "exited: %s, restarting in %s (restart %d)", reason, delay, svc.status.Restarts)
		s.mu.Unlock()

		if line := lastLine(svc.output.Tail(1)); line != "" {
			s.log.Warn("service exited", "id", svc.spec.ID, "reason", reason, "lastOutput", line)
		}

		if !sleep(ctx, delay) {
			s.ended(ctx, svc, nil)

			return
		}
	}
}

func exitReason(err error) string {
	if err == nil {
		return "exit status 0"
	}

	return err.Error()
}

func lastLine(b []byte) string {
	return strings.TrimSpace(string(b[:min(len(b), 300)]))
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// await waits for what the service needs.
func (s *Supervisor) await(ctx context.Context, svc *service) error {
	if deps := svc.spec.DependsOn; len(deps) > 0 {
		s.record(svc, Waiting, "waiting for services %s", strings.Join(deps, ", "))

		if err := s.Await(ctx, Up, deps...); err != nil {
			return err
		}
	}

	return nil
}

// ended records that the service is not run any more: because it was told so, or because its conditions cannot be met.
func (s *Supervisor) ended(ctx context.Context, svc *service, err error) {
	if ctx.Err() != nil {
		s.record(svc, Finished, "stopped")

		return
	}

	s.record(svc, Failed, "%v", err)
}

func (s *Supervisor) exited(svc *service, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	svc.status.LastExit = reason
}

// runOnce starts the process and returns when it has ended; how it ended is the error. When ctx ends it stops the process.
func (s *Supervisor) runOnce(ctx context.Context, svc *service) error {
	if svc.spec.Prepare != nil {
		s.record(svc, Preparing, "preparing")

		if err := svc.spec.Prepare(ctx); err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
	}

	s.record(svc, Starting, "starting %s", strings.Join(svc.spec.Command.Argv, " "))

	child, err := s.start(svc)
	if err != nil {
		return err
	}

	s.mu.Lock()
	svc.status.PID = child.PID
	s.event(svc, Running, "Process %s started with PID %d", svc.spec.ID, child.PID)
	s.mu.Unlock()

	healthCtx, stopHealth := context.WithCancel(ctx)
	defer stopHealth()

	go s.watchHealth(healthCtx, svc, child)

	select {
	case <-child.Done():
		return child.Err()
	case <-ctx.Done():
		s.record(svc, Stopping, "stopping PID %d", child.PID)

		return s.stopProcess(svc, child)
	}
}

// start starts the process with its output going to the service's buffer.
func (s *Supervisor) start(svc *service) (*reaper.Child, error) {
	c := svc.spec.Command

	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()

	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()

	sys := &syscall.SysProcAttr{Setsid: true}
	if c.UID != 0 || c.GID != 0 {
		sys.Credential = &syscall.Credential{Uid: c.UID, Gid: c.GID}
	}

	if c.Cgroup != "" {
		if err := os.MkdirAll(c.Cgroup, 0o755); err != nil {
			read.Close()

			return nil, fmt.Errorf("making its cgroup: %w", err)
		}

		dir, err := os.Open(c.Cgroup)
		if err != nil {
			read.Close()

			return nil, err
		}
		defer dir.Close()

		sys.UseCgroupFD, sys.CgroupFD = true, int(dir.Fd())
	}

	child, err := s.reaper.Start(c.Path, c.Argv, &os.ProcAttr{
		Dir: "/", Env: c.Env, Files: []*os.File{null, write, write}, Sys: sys,
	}, reaper.Options{NoNewPrivileges: c.UID != 0})
	if err != nil {
		read.Close()

		return nil, err
	}

	go func() {
		defer read.Close()
		_, _ = io.Copy(svc.output, read) // ends when the process and all that inherited its output have closed it
	}()

	return child, nil
}

// stopProcess asks the process to end, and kills it if it does not. What else is in its cgroup lives on: containers' shims must
// outlive a containerd that is restarted.
func (s *Supervisor) stopProcess(svc *service, child *reaper.Child) error {
	timeout := svc.spec.StopTimeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}

	_ = child.Signal(syscall.SIGTERM)

	select {
	case <-child.Done():
	case <-time.After(timeout):
		s.record(svc, Stopping, "killing PID %d: it did not end within %s", child.PID, timeout)
		_ = child.Signal(syscall.SIGKILL)
		<-child.Done()
	}

	return child.Err()
}

// Health checks: soon after the start and whenever unhealthy, rarely when all is well.
const (
	healthTimeout  = 5 * time.Second
	healthSoon     = 100 * time.Millisecond
	healthInterval = 5 * time.Second
	healthGrace    = 5 * time.Second // not answering yet is no news that long
)

func (s *Supervisor) watchHealth(ctx context.Context, svc *service, child *reaper.Child) {
	begun := time.Now()

	for wait := time.Duration(0); sleep(ctx, wait); {
		err := error(nil)

		if svc.spec.Health != nil {
			checkCtx, cancel := context.WithTimeout(ctx, healthTimeout)
			err = svc.spec.Health(checkCtx)

			cancel()
		}

		if ctx.Err() != nil {
			return
		}

		s.setHealth(svc, child.PID, err, time.Since(begun) < healthGrace)

		switch {
		case svc.spec.Health == nil:
			return
		case err == nil:
			wait = healthInterval
		default:
			wait = min(max(2*wait, healthSoon), healthInterval)
		}
	}
}

// setHealth records the result of a check of one process, if that still is the service's process.
func (s *Supervisor) setHealth(svc *service, pid int, err error, grace bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	st := &svc.status
	if st.PID != pid {
		return
	}

	healthy, message := err == nil, ""
	if err != nil {
		message = err.Error()
	}

	if !st.HealthUnknown && st.Healthy == healthy {
		st.HealthMessage = message

		return
	}

	st.HealthMessage = message

	if grace && st.HealthUnknown && !healthy {
		return
	}

	st.Healthy, st.HealthUnknown, st.HealthChanged = healthy, false, time.Now()

	if healthy {
		s.event(svc, Running, "Health check successful")
	} else {
		s.event(svc, Running, "Health check failed: %s (last output: %s)", message, lastLine(svc.output.Tail(1)))
	}
}
