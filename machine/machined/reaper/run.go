//go:build linux

package reaper

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Run starts a program, waits for its end and returns what it printed; the error has it too. The program gets no standard input
// and an environment of PATH alone. If ctx ends first it is killed.
func (r *Reaper) Run(ctx context.Context, path string, args ...string) (string, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer read.Close()

	null, err := os.Open(os.DevNull)
	if err != nil {
		write.Close()

		return "", err
	}
	defer null.Close()

	child, err := r.Start(path, append([]string{path}, args...), &os.ProcAttr{
		Env:   []string{"PATH=/usr/sbin:/usr/bin"},
		Files: []*os.File{null, write, write},
	}, Options{})

	write.Close()

	if err != nil {
		return "", err
	}

	stop := context.AfterFunc(ctx, func() { _ = child.Signal(syscall.SIGKILL) })
	defer stop()

	var out bytes.Buffer

	_, _ = io.Copy(&out, read) // ends when the program and its children have closed it

	<-child.Done()

	text := strings.TrimSpace(out.String())

	if err := child.Err(); err != nil {
		return text, fmt.Errorf("running %s: %w: %s", filepath.Base(path), err, text)
	}

	return text, nil
}
