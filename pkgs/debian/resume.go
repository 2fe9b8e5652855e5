package debian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// resumed is a body that goes on where a broken connection left it.
type resumed struct {
	ctx   context.Context
	a     *Archive
	url   string
	body  io.ReadCloser
	off   int64
	tries int
}

func (r *resumed) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	r.off += int64(n)
	if err == nil || errors.Is(err, io.EOF) || r.ctx.Err() != nil {
		return n, err
	}
	if r.tries++; r.tries >= tries {
		return n, fmt.Errorf("reading %s: %w", r.url, err)
	}
	body, again := r.a.get(r.ctx, r.url, r.off)
	if again != nil {
		return n, fmt.Errorf("reading %s: %w, and then: %w", r.url, err, again)
	}
	_ = r.body.Close() // its connection is broken already
	r.body = body
	return n, nil
}

func (r *resumed) Close() error { return r.body.Close() }

// atOffset checks that the answer begins where we asked; a server that does not know ranges sends everything again.
func atOffset(resp *http.Response, off int64) error {
	if off == 0 || resp.StatusCode == http.StatusPartialContent {
		return nil
	}
	_, err := io.CopyN(io.Discard, resp.Body, off)
	return err
}

// guarded is a body whose request is given up when nothing comes for too long.
type guarded struct {
	io.ReadCloser
	stall  time.Duration
	cancel context.CancelFunc
}

func (g *guarded) Read(p []byte) (int, error) {
	timer := time.AfterFunc(g.stall, g.cancel)
	defer timer.Stop()
	return g.ReadCloser.Read(p)
}

func (g *guarded) Close() error {
	g.cancel()
	return g.ReadCloser.Close()
}
