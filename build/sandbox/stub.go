package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Stages of the set-up that preflight tells apart.
const (
	stageSpec    = "reading the sandbox's description"
	stagePrivate = "making mounts private"
	stageOverlay = "mounting the root"
	stageMounts  = "filling the sandbox"
	stageProc    = "mounting /proc"
	stageDev     = "making /dev"
	stagePivot   = "entering the root"
	stageNet     = "bringing the loopback up"
	stageConfine = "confining the command"
	stageStart   = "starting the command"
)

// File descriptors that Run passes.
const (
	specFD   = 3
	statusFD = 4
)

// IsStub reports whether this process was started as the first process of a sandbox.
func IsStub() bool { return len(os.Args) > 0 && os.Args[0] == Name }

// Main is the stub. It does not return.
func Main() {
	// The command inherits what is done to this thread alone: seccomp, capabilities. The others
	// stay free to reap and to kill.
	runtime.LockOSThread()
	// All of them: whoever started the factory may have left files open (make's job server, a shell's "9<file").
	closeErr := unix.CloseRange(specFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	lifeline := os.NewFile(specFD, "spec")
	status := os.NewFile(statusFD, "status")
	var spec Spec
	decoder := json.NewDecoder(lifeline)
	r := report{Stage: stageSpec}
	if err := errors.Join(closeErr, decoder.Decode(&spec)); err != nil {
		r.Error = err.Error()
	} else {
		go func() {
			_, _ = io.Copy(io.Discard, lifeline)
			killAll(spec)
			os.Exit(1) // whoever started us is gone
		}()
		r = run(spec)
	}
	killAll(spec)
	// Nobody is left to hear of an error here; Run notices that the report is missing.
	_ = json.NewEncoder(status).Encode(r)
	os.Exit(0)
}

// stage is one named part of the set-up.
type stage struct {
	name string
	do   func() error
}

// run sets the sandbox up, runs the command and reaps until it ends.
func run(spec Spec) report {
	m := &mounter{spec: spec}
	stages := []stage{
		{stagePrivate, m.private},
		{stageOverlay, m.root},
		{stageMounts, m.binds},
		{stageProc, m.proc},
		{stageDev, m.dev},
		{stagePivot, m.pivot},
		{stageNet, func() error { return loopback(spec.HostNet) }},
		{stageConfine, confine},
	}
	for _, s := range stages {
		if err := s.do(); err != nil {
			return failed(s.name, err)
		}
	}
	if len(spec.Argv) == 0 {
		return report{} // Preflight
	}
	pid, err := start(spec)
	if err != nil {
		return failed(stageStart, err)
	}
	forwardSignals(pid)
	return reap(pid)
}

func failed(stage string, err error) report {
	r := report{Stage: stage, Error: err.Error()}
	errors.As(err, &r.Errno)
	return r
}

func start(spec Spec) (pid int, err error) {
	file, err := lookPath(spec)
	if err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{Dir: spec.Dir, Env: spec.Env, Files: []uintptr{0, 1, 2}}
	if spec.Isolation == SharedPID {
		attr.Sys = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	pid, err = syscall.ForkExec(file, spec.Argv, attr)
	if err != nil {
		return 0, fmt.Errorf("%s in %s: %w", file, spec.Dir, err)
	}
	return pid, nil
}

// lookPath finds the command in the PATH that the command gets, as execvp would.
func lookPath(spec Spec) (string, error) {
	name := spec.Argv[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, kv := range spec.Env {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(list, ":") {
			file := path.Join(dir, name)
			if unix.Access(file, unix.X_OK) == nil {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not in the PATH of the sandbox: %w", name, syscall.ENOENT)
}

// forwardSignals hands on what asks for an orderly end. What the terminal sends to the
// whole process group reaches the command by itself and must not end the stub.
func forwardSignals(pid int) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGTSTP)
	go func() {
		for sig := range c {
			if sig == syscall.SIGTERM {
				_ = syscall.Kill(pid, syscall.SIGTERM) // it may just have ended
			}
		}
	}()
}

// reap waits for the command and for every orphan before it. What outlives the command is killed.
func reap(pid int) report {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return failed("waiting for the command", err)
		}
		if got != pid {
			continue
		}
		if ws.Signaled() {
			return report{Signal: ws.Signal()}
		}
		return report{Code: ws.ExitStatus()}
	}
}

// killAll ends every process of the sandbox but this one. In a pid namespace the kernel does that
// when its first process ends. Otherwise this process is the reaper of all, and kills its children until none is left.
func killAll(spec Spec) {
	if spec.Isolation != SharedPID {
		return
	}
	for {
		children := children()
		if len(children) == 0 {
			return
		}
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(-1, &ws, 0, nil); errors.Is(err, syscall.ECHILD) {
			return
		}
	}
}

func children() (pids []int) {
	entries, _ := os.ReadDir("/proc/self/task") // without /proc there is nothing we could do
	for _, e := range entries {
		list, _ := os.ReadFile("/proc/self/task/" + e.Name() + "/children")
		for _, field := range strings.Fields(string(list)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
