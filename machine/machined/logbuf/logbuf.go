// Package logbuf keeps the last bytes that a service wrote, in memory, for any number of readers, who may follow.
//
// It does not write files, know lines' meaning or slow the writer: a reader that is too slow misses the oldest bytes.
package logbuf

import (
	"bytes"
	"context"
	"io"
	"sync"
)

// Buffer is a ring of bytes. The zero value is not usable; see New.
type Buffer struct {
	mu      sync.Mutex
	ring    []byte
	written int64         // bytes ever written; the ring holds the last min(written, len(ring)) of them
	changed chan struct{} // closed and replaced at every write
}

// New returns a buffer that keeps the last size bytes.
func New(size int) *Buffer {
	return &Buffer{ring: make([]byte, size), changed: make(chan struct{})}
}

// Write implements io.Writer and never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for rest := p; len(rest) > 0; {
		n := copy(b.ring[b.written%int64(len(b.ring)):], rest)
		b.written += int64(n)
		rest = rest[n:]
	}

	close(b.changed)
	b.changed = make(chan struct{})

	return len(p), nil
}

func (b *Buffer) oldest() int64 { return max(0, b.written-int64(len(b.ring))) }

// at copies what is there from offset on; it returns the bytes, the offset after them and a channel that is closed when there is more.
func (b *Buffer) at(offset int64) ([]byte, int64, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()

	offset = max(offset, b.oldest())
	out := make([]byte, 0, b.written-offset)

	for offset < b.written {
		start := offset % int64(len(b.ring))
		n := min(b.written-offset, int64(len(b.ring))-start)
		out = append(out, b.ring[start:start+n]...)
		offset += n
	}

	return out, offset, b.changed
}

// Tail returns the last n lines; all of them if n is negative.
func (b *Buffer) Tail(n int) []byte {
	all, _, _ := b.at(0)

	return all[tailStart(all, n):]
}

// tailStart is where the last n lines of text begin.
func tailStart(text []byte, n int) int {
	if n < 0 {
		return 0
	}

	end := len(text)
	if end > 0 && text[end-1] == '\n' {
		end--
	}

	if n == 0 {
		return len(text)
	}

	for ; n > 0; n-- {
		i := bytes.LastIndexByte(text[:end], '\n')
		if i < 0 {
			return 0
		}

		end = i
	}

	return end + 1
}

// Copy writes the last n lines (all if negative) to w and, with follow, what comes after until ctx ends or the write fails.
func (b *Buffer) Copy(ctx context.Context, w io.Writer, n int, follow bool) error {
	text, offset, changed := b.at(0)
	text = text[tailStart(text, n):]

	for {
		if len(text) > 0 {
			if _, err := w.Write(text); err != nil {
				return err
			}
		}

		if !follow {
			return nil
		}

		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}

		text, offset, changed = b.at(offset)
	}
}
