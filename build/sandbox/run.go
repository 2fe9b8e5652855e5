package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// report is what the stub writes on its status pipe, once.
type report struct {
	Stage  string // of the set-up that went wrong; empty if the command ran
	Error  string
	Errno  syscall.Errno
	Code   int
	Signal syscall.Signal
}

// Run runs the command and waits for it and for everything it started. The error is an *ExitError if the
// command ended badly, and the cause of ctx if that ended first.
func Run(ctx context.Context, spec Spec, std Stdio) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	specR, specW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer specR.Close()
	// The stub reads on until this end is closed: by us, or by the kernel when we are killed.
	defer specW.Close()
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer statusR.Close()
	defer statusW.Close()

	cmd := command(ctx, spec, std, specW)
	cmd.ExtraFiles = []*os.File{specR, statusW}
	done := make(chan error, 1)
	go func() {
		// Pdeathsig is sent at the death of the thread that started the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			done <- explainStart(err)
			return
		}
		statusW.Close()
		specR.Close()
		if _, err := specW.Write(text); err != nil && !errors.Is(err, syscall.EPIPE) {
			killErr := cmd.Process.Kill()
			cmd.Wait() //nolint:errcheck // it says that we killed it
			done <- errors.Join(err, killErr)
			return
		}
		err := cmd.Wait()
		if ctx.Err() == nil {
			err = readReport(statusR, err)
		}
		done <- err
	}()
	err = <-done
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func command(ctx context.Context, spec Spec, std Stdio, lifeline io.Closer) *exec.Cmd {
	// The link leads to the running binary even after that was replaced on disk.
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{Name}
	cmd.Env = []string{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = std.In, std.Out, std.Err
	flags := syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	if spec.Isolation != SharedPID {
		flags |= syscall.CLONE_NEWPID
	}
	if !spec.HostNet {
		flags |= syscall.CLONE_NEWNET
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  uintptr(flags),
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
		Setsid:      !spec.Foreground,
	}
	cmd.WaitDelay = 5 * time.Second
	switch {
	case spec.Foreground:
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	case spec.Isolation == SharedPID:
		// Killing the stub would leave the processes behind that it has to kill.
		cmd.Cancel = lifeline.Close
	}
	return cmd
}

// readReport turns the stub's last words into an error.
func readReport(status io.Reader, wait error) error {
	var r report
	if err := json.NewDecoder(status).Decode(&r); err != nil {
		if wait != nil {
			return fmt.Errorf("the sandbox's first process ended without a word: %w", wait)
		}
		return fmt.Errorf("reading the sandbox's report: %w", err)
	}
	switch {
	case r.Stage != "":
		return explainStage(r)
	case r.Code != 0 || r.Signal != 0:
		return &ExitError{r.Code, r.Signal}
	}
	return nil
}
