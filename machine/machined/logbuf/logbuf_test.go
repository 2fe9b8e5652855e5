package logbuf

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestTail(t *testing.T) {
	b := New(16) // two lines and a piece
	for i := range 6 {
		fmt.Fprintf(b, "line %d\n", i)
	}

	for n, want := range map[int]string{-1: "3\nline 4\nline 5\n", 1: "line 5\n", 2: "line 4\nline 5\n", 0: ""} {
		got := string(b.Tail(n))
		if got != want {
			t.Errorf("tail %d: got %q, want %q", n, got, want)
		}
	}
}

func TestWriteLargerThanRing(t *testing.T) {
	b := New(4)
	_, _ = b.Write([]byte("0123456789"))
	if got := string(b.Tail(-1)); got != "6789" {
		t.Errorf("got %q", got)
	}
}

type until struct {
	want string
	got  string
}

var errEnough = errors.New("enough")

func (u *until) Write(p []byte) (int, error) {
	u.got += string(p)
	if u.got == u.want {
		return len(p), errEnough
	}

	return len(p), nil
}

func TestFollow(t *testing.T) {
	b := New(1024)
	_, _ = b.Write([]byte("before\n"))

	go func() {
		for i := range 100 {
			fmt.Fprintf(b, "%02d\n", i)
		}
	}()

	want := "before\n"
	for i := range 100 {
		want += fmt.Sprintf("%02d\n", i)
	}
	if err := b.Copy(t.Context(), &until{want: want}, -1, true); !errors.Is(err, errEnough) {
		t.Errorf("got %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Copy(ctx, &until{}, 0, true); err != nil {
		t.Errorf("ended context: got %v", err)
	}
}
