// Package progress shows what a build engine does: like docker buildx on a terminal, as plain timestamped lines
// elsewhere. The drawing is BuildKit's own, so that a BuildKit executor would look the same.
//
// It does not tell why a build failed: the error that Build returns has the end of the failing step's
// log, and whoever called Build prints it, after Close.
package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/moby/buildkit/client"
	"github.com/moby/buildkit/util/progress/progressui"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/build"
)

// Display draws events. It is a build.Progress.
type Display struct {
	out      io.Writer
	terminal bool
	ch       chan *client.SolveStatus
	done     chan error

	mu       sync.Mutex // guards what follows, and the order of what is sent
	closed   bool
	vertices map[digest.Digest]*vertex
}

// vertex is what the display must remember of one row.
type vertex struct {
	client.Vertex
	kind   build.Kind
	title  string // its name without a count
	share  int64  // twentieths that a plain display has told of
	done   bool
	failed bool
}

// Modes of New.
const (
	Auto  = "auto"  // Terminal if out is one, else Plain
	Plain = "plain" // lines
	TTY   = "tty"   // a terminal, redrawn
	Quiet = "quiet" // nothing but the summary
)

// New starts a display on out, usually os.Stderr. It must be closed.
func New(out io.Writer, mode string) (*Display, error) {
	d := &Display{
		out: out, ch: make(chan *client.SolveStatus, 256), done: make(chan error, 1), vertices: map[digest.Digest]*vertex{},
	}
	if mode == "" {
		mode = Auto
	}
	file, isFile := out.(*os.File)
	if isFile {
		_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
		d.terminal = err == nil && (mode == Auto || mode == TTY)
	}
	var w io.Writer = &withoutLogs{Writer: out}
	if d.terminal {
		w = &consoleWithoutLogs{File: file}
	}
	ui, err := progressui.NewDisplay(w, progressui.DisplayMode(mode))
	if err != nil {
		return nil, fmt.Errorf("cannot show progress as %q: want %s, %s, %s or %s", mode, Auto, Plain, TTY, Quiet)
	}
	go func() {
		_, err := ui.UpdateFrom(context.Background(), d.ch)
		for range d.ch { // whatever happens, nobody may wait for us
		}
		d.done <- err
	}()
	return d, nil
}

// Event shows one event.
func (d *Display) Event(e build.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	id := digest.FromString(string(e.Kind) + " " + e.Name)
	v := d.vertices[id]
	if v == nil {
		v = &vertex{Vertex: client.Vertex{Digest: id, Name: title(e)}, kind: e.Kind, title: title(e)}
		d.vertices[id] = v
	}
	if v.done && (e.Cached || e.State == build.Done) {
		return // asked for again by a later build: nothing new
	}
	if s := v.update(e, d.terminal); s != nil {
		d.ch <- s
	}
}

func title(e build.Event) string {
	if e.Kind == build.KindTree {
		return "tree " + e.Name
	}
	return e.Name
}

// update turns an event into BuildKit's terms.
func (v *vertex) update(e build.Event, terminal bool) *client.SolveStatus {
	at := e.Time
	switch e.State {
	case build.Started:
		v.Started, v.Completed, v.Cached, v.Error = &at, nil, e.Cached, ""
		v.done, v.failed = false, false
		return v.status(nil, nil)
	case build.Done:
		if v.Started == nil {
			v.Started = &at
		}
		v.Completed, v.done = &at, true
		v.Name = v.title
		if e.Err != nil {
			v.Error, v.failed = e.Err.Error(), !errors.Is(e.Err, context.Canceled)
			if !v.failed {
				v.Error = context.Canceled.Error() // by this BuildKit knows it
			}
		}
		return v.status(v.count(e), nil)
	case build.Logged:
		if v.Started == nil {
			v.Started = &at
		}
		return v.status(nil, e.Log)
	case build.Counted:
		if v.kind == build.KindFetch {
			return v.status(v.count(e), nil)
		}
		return v.steps(e, terminal)
	}
	return nil
}

// steps shows how far a step is: in its title where that is redrawn, else as a line for each twentieth.
func (v *vertex) steps(e build.Event, terminal bool) *client.SolveStatus {
	if terminal {
		v.Name = fmt.Sprintf("%s  %d / %d", v.title, e.Current, e.Total)
		return v.status(nil, nil)
	}
	if e.Total <= 0 || e.Current*20/e.Total == v.share {
		return nil
	}
	v.share = e.Current * 20 / e.Total
	return v.status(nil, fmt.Appendf(nil, "%d / %d (%d %%)\n", e.Current, e.Total, e.Current*100/e.Total))
}

// count is the bytes of a fetch.
func (v *vertex) count(e build.Event) *client.VertexStatus {
	if v.kind != build.KindFetch || e.Total == 0 {
		return nil
	}
	return &client.VertexStatus{
		ID: "bytes", Vertex: v.Digest, Current: e.Current, Total: e.Total, Timestamp: e.Time, Started: v.Started, Completed: v.Completed,
	}
}

func (v *vertex) status(count *client.VertexStatus, log []byte) *client.SolveStatus {
	row := v.Vertex // a copy: the display keeps it
	s := &client.SolveStatus{Vertexes: []*client.Vertex{&row}}
	if count != nil {
		s.Statuses = append(s.Statuses, count)
	}
	if log != nil {
		s.Logs = append(s.Logs, &client.VertexLog{Vertex: v.Digest, Data: log, Timestamp: time.Now()})
	}
	return s
}

// Close draws the last state and says how many actions ran.
func (d *Display) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	close(d.ch)
	d.mu.Unlock()
	err := <-d.done
	_, werr := fmt.Fprintln(d.out, d.summary())
	return errors.Join(err, werr)
}

func (d *Display) summary() string {
	var ran, cached, failed int
	for _, v := range d.vertices {
		switch {
		case v.kind != build.KindStep || !v.done:
		case v.failed:
			failed++
		case v.Error != "":
		case v.Cached:
			cached++
		default:
			ran++
		}
	}
	s := fmt.Sprintf("%d actions ran, %d cached", ran, cached)
	if failed > 0 {
		s += fmt.Sprintf(", %d failed", failed)
	}
	return s
}
