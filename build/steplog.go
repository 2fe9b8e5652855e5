package build

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// tailLines is how much of a log an error shows.
const tailLines = 20

// maxLine is where a line that does not end is broken for the display, so that no step can fill the memory.
const maxLine = 64 << 10

// stepLog writes what a step prints to a file of the store, hands whole lines to the display, and
// keeps the last ones for an error. It is written to by one goroutine.
type stepLog struct {
	e       *Engine
	step    *Step
	file    *os.File
	path    string
	err     error // the first of writing to the file; the step goes on without
	partial []byte
	tail    []string
}

func (e *Engine) newStepLog(s *Step, id ActionID) (*stepLog, error) {
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '-'
		}
		return r
	}, s.Name)
	path := e.Store.path("logs", fmt.Sprintf("%s-%.12s.log", name, id))
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &stepLog{e: e, step: s, file: f, path: path}, nil
}

func (l *stepLog) Write(p []byte) (int, error) {
	if l.err == nil {
		_, l.err = l.file.Write(p)
	}
	l.partial = append(l.partial, p...)
	if len(l.partial) > maxLine && bytes.IndexByte(l.partial, '\n') < 0 {
		l.partial = append(l.partial, '\n')
	}
	if end := bytes.LastIndexByte(l.partial, '\n') + 1; end > 0 {
		l.lines(l.partial[:end])
		l.partial = append([]byte(nil), l.partial[end:]...)
	}
	return len(p), nil
}

// lines takes whole lines.
func (l *stepLog) lines(text []byte) {
	l.e.emit(Event{Kind: KindStep, Name: l.step.Name, State: Logged, Log: bytes.Clone(text)})
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		l.tail = append(l.tail, line)
		if l.step.Progress == nil {
			continue
		}
		if current, total, ok := l.step.Progress(line); ok {
			l.e.emit(Event{Kind: KindStep, Name: l.step.Name, State: Counted, Current: current, Total: total})
		}
	}
	if extra := len(l.tail) - tailLines; extra > 0 {
		l.tail = append([]string(nil), l.tail[extra:]...)
	}
}

func (l *stepLog) Close() error {
	if len(l.partial) > 0 {
		l.lines(append(l.partial, '\n'))
	}
	if err := l.file.Close(); l.err == nil {
		l.err = err
	}
	return l.err
}

// StepError says that a step failed. Its text is several lines: what failed, the end of the log,
// where the whole log is, and how to run the step again.
type StepError struct {
	Step   string
	Tail   []string
	Log    string // path of the whole log
	Replay string // may be empty
	Err    error
}

func (e *Engine) stepError(s *Step, log *stepLog, err error) *StepError {
	se := &StepError{Step: s.Name, Tail: log.tail, Log: log.path, Err: err}
	if e.Replay != nil {
		se.Replay = e.Replay(s.Name)
	}
	return se
}

func (e *StepError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "running step %q: %v\n", e.Step, e.Err)
	for _, line := range e.Tail {
		fmt.Fprintf(&b, "  | %s\n", line)
	}
	fmt.Fprintf(&b, "whole log: %s", e.Log)
	if e.Replay != "" {
		fmt.Fprintf(&b, "\nrun it again: %s", e.Replay)
	}
	return b.String()
}

func (e *StepError) Unwrap() error { return e.Err }
