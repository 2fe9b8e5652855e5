package boot

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func record(trace *[]string, name string, err error) func(context.Context) error {
	return func(context.Context) error {
		*trace = append(*trace, name)

		return err
	}
}

func table(trace *[]string, failing error) Table {
	return Table{
		{"early", []Task{
			{Name: "mounts", Up: record(trace, "+mounts", nil), Down: record(trace, "-mounts", nil)},
			{Name: "limits", Up: record(trace, "+limits", nil)},
		}},
		{"disk", []Task{
			{Name: "state", Up: record(trace, "+state", failing), Down: record(trace, "-state", errors.New("busy")), Deadline: time.Second},
			{Name: "var", Up: record(trace, "+var", nil), Down: record(trace, "-var", nil)},
		}},
	}
}

func TestUpDown(t *testing.T) {
	for name, tt := range map[string]struct {
		failing error
		want    []string
		up      string
	}{
		"whole":          {nil, []string{"+mounts", "+limits", "+state", "+var", "-var", "-state", "-mounts"}, ""},
		"fails half way": {errors.New("no disk"), []string{"+mounts", "+limits", "+state", "-state", "-mounts"}, `phase disk, task "state": no disk`},
	} {
		t.Run(name, func(t *testing.T) {
			var trace []string
			r := Run{Table: table(&trace, tt.failing), Log: slog.New(slog.DiscardHandler)}

			got := ""
			if err := r.Up(t.Context()); err != nil {
				got = err.Error()
			}
			if got != tt.up {
				t.Errorf("Up: got %q, want %q", got, tt.up)
			}
			if err := r.Down(t.Context()); err == nil || !strings.Contains(err.Error(), "busy") {
				t.Errorf("Down: got %v, want the error of the one task", err)
			}
			if diff := cmp.Diff(tt.want, trace); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPanicIsAnErrorAndDeadlineHolds(t *testing.T) {
	r := Run{Log: slog.New(slog.DiscardHandler), Table: Table{{"p", []Task{
		{
			Name: "hangs", Deadline: 20 * time.Millisecond,
			Up:   func(context.Context) error { return nil },
			Down: func(context.Context) error { select {} },
		},
		{Name: "panics", Up: func(context.Context) error { panic("boom") }},
	}}}}

	if err := r.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "panic: boom") {
		t.Errorf("Up: got %v", err)
	}
	if err := r.Down(t.Context()); err == nil || !strings.Contains(err.Error(), `undoing "hangs": not done after 20ms`) {
		t.Errorf("Down: got %v", err)
	}
}

func TestPrint(t *testing.T) {
	var got bytes.Buffer
	tab := table(nil, nil)
	_ = tab.Print(&got, false)
	got.WriteString("--\n")
	_ = tab.Print(&got, true)

	want := ` 1 early
     mounts
     limits
 2 disk
     state
     var
--
disk
     undo var (at most 10s)
     undo state (at most 1s)
early
     undo mounts (at most 10s)
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
