package progress

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/build"
)

func TestPlain(t *testing.T) {
	var out bytes.Buffer
	d, err := New(&out, Auto)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	send := func(after time.Duration, e build.Event) {
		e.Time = at.Add(after)
		d.Event(e)
		time.Sleep(120 * time.Millisecond) // the display draws ten times a second
	}
	send(0, build.Event{Kind: build.KindStep, Name: "old", State: build.Started, Cached: true})
	send(0, build.Event{Kind: build.KindStep, Name: "old", State: build.Done, Cached: true})
	send(0, build.Event{Kind: build.KindFetch, Name: "fetch 2 files", State: build.Started})
	send(time.Second, build.Event{Kind: build.KindFetch, Name: "fetch 2 files", State: build.Counted, Current: 500, Total: 2000})
	send(2*time.Second, build.Event{Kind: build.KindFetch, Name: "fetch 2 files", State: build.Done, Current: 2000, Total: 2000})
	send(2*time.Second, build.Event{Kind: build.KindStep, Name: "kernel", State: build.Started})
	send(2*time.Second, build.Event{Kind: build.KindStep, Name: "kernel", State: build.Logged, Log: []byte("CC init.o\n")})
	send(2*time.Second, build.Event{Kind: build.KindStep, Name: "kernel", State: build.Counted, Current: 5, Total: 10})
	send(4*time.Second, build.Event{Kind: build.KindStep, Name: "kernel", State: build.Done})
	send(4*time.Second, build.Event{Kind: build.KindStep, Name: "bad", State: build.Started})
	send(4*time.Second, build.Event{Kind: build.KindStep, Name: "bad", State: build.Logged, Log: []byte("its log\n")})
	send(5*time.Second, build.Event{Kind: build.KindStep, Name: "bad", State: build.Done, Err: errors.New("exit status 1")})
	send(5*time.Second, build.Event{Kind: build.KindStep, Name: "other", State: build.Started})
	send(5*time.Second, build.Event{Kind: build.KindStep, Name: "other", State: build.Done, Err: context.Canceled})
	send(5*time.Second, build.Event{Kind: build.KindStep, Name: "old", State: build.Started, Cached: true})
	send(5*time.Second, build.Event{Kind: build.KindStep, Name: "old", State: build.Done, Cached: true})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d.Event(build.Event{Kind: build.KindStep, Name: "late", State: build.Started}) // must not panic
	// Log lines carry the real time.
	got := regexp.MustCompile(`(?m)^(#\d+) [0-9.]+ (CC|5|its)`).ReplaceAllString(out.String(), "$1 T $2")
	want := `#1 old
#1 CACHED

#2 fetch 2 files
#2 bytes 500B / 2.00kB 1.0s
#2 bytes 2.00kB / 2.00kB 2.0s done
#2 DONE 2.0s

#3 kernel
#3 T CC init.o
#3 T 5 / 10 (50 %)
#3 DONE 2.0s

#4 bad
#4 T its log
#4 ERROR: exit status 1

#5 other
#5 CANCELED
1 actions ran, 1 cached, 1 failed
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plain display (-want +got):\n%s", diff)
	}
}

func TestUnknownMode(t *testing.T) {
	if _, err := New(&bytes.Buffer{}, "fancy"); err == nil || err.Error() != `cannot show progress as "fancy": want auto, plain, tty or quiet` {
		t.Errorf("got %v", err)
	}
}
