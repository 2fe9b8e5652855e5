package pack

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/talos-factory/talos-factory/build"
)

func parseReference(s string, insecure bool) (name.Reference, error) {
	var opts []name.Option
	if insecure {
		opts = append(opts, name.Insecure)
	}
	ref, err := name.ParseReference(s, opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot use %q as the reference of an image: %w", s, err)
	}
	return ref, nil
}

// pull brings an image into the store, as far as it is not there.
func pull(ctx context.Context, src Source, opts *Options) (*image, error) {
	ref, err := parseReference(src.Image, src.Insecure)
	if err != nil {
		return nil, err
	}
	p := &puller{ref: ref, opts: opts}
	img, err := p.pull(ctx)
	p.done(err)
	if err != nil {
		return nil, fmt.Errorf("cannot pull %s: %w", src, err)
	}
	return img, nil
}

// puller gets the parts of one image from a registry into the store.
type puller struct {
	ref    name.Reference
	opts   *Options
	remote *remote.Puller // made when first needed
	name   string         // of the vertex of the progress display, once there is one
	got    int64
	total  int64 // 0 until it is known
}

func (p *puller) pull(ctx context.Context) (*image, error) {
	if d, ok := p.ref.(name.Digest); ok {
		h, err := v1.NewHash(d.DigestStr())
		if err != nil {
			return nil, err
		}
		return resolve(ctx, p, v1.Descriptor{Digest: h}, p.opts.Arch)
	}
	top, err := p.fetchDocument(ctx, p.ref)
	if err != nil {
		return nil, err
	}
	return resolve(ctx, p, top.Descriptor, p.opts.Arch)
}

// document takes it from the store, or else from the registry.
func (p *puller) document(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	sum, err := digest(d.Digest)
	if err != nil {
		return nil, err
	}
	if text, err := p.stored(sum); err == nil || !errors.Is(err, build.ErrMissing) {
		return text, err
	}
	if d.MediaType.IsConfig() {
		open, err := p.layer(ctx, d)
		if err != nil {
			return nil, err
		}
		return readFile(func(string) (io.ReadCloser, error) { return open() }, d.Digest.String())
	}
	got, err := p.fetchDocument(ctx, p.ref.Context().Digest(d.Digest.String()))
	if err != nil {
		return nil, err
	}
	return got.Manifest, nil
}

func (p *puller) stored(sum build.Digest) ([]byte, error) {
	return readFile(func(string) (io.ReadCloser, error) { return p.opts.Store.Open(sum) }, "sha256:"+sum.String())
}

func (p *puller) fetchDocument(ctx context.Context, ref name.Reference) (*remote.Descriptor, error) {
	var got *remote.Descriptor
	err := p.retry(ctx, func(r *remote.Puller) (err error) {
		got, err = r.Get(ctx, ref)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(got.Manifest) > maxDocument {
		return nil, fmt.Errorf("cannot accept a manifest of %d bytes", len(got.Manifest))
	}
	_, err = p.opts.Store.Put(bytes.NewReader(got.Manifest))
	return got, err
}

// layer brings a blob into the store.
func (p *puller) layer(ctx context.Context, d v1.Descriptor) (func() (io.ReadCloser, error), error) {
	sum, err := digest(d.Digest)
	if err != nil {
		return nil, err
	}
	want := build.Blob{Digest: sum, Size: d.Size}
	if !p.opts.Store.Has(want) {
		err := p.retry(ctx, func(r *remote.Puller) error {
			l, err := r.Layer(ctx, p.ref.Context().Digest(d.Digest.String()))
			if err != nil {
				return err
			}
			body, err := l.Compressed()
			if errors.As(err, new(*transport.Error)) {
				return err
			}
			if err != nil {
				return &brokenError{d.Digest.String(), err}
			}
			before := p.got
			err = p.opts.Store.PutExact(io.TeeReader(body, progress{p}), want)
			if err = errors.Join(err, body.Close()); err != nil {
				p.got = before
				return &brokenError{d.Digest.String(), err}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return func() (io.ReadCloser, error) { return p.opts.Store.Open(sum) }, nil
}

func (p *puller) expect(layers []v1.Descriptor) {
	p.total = p.got
	for _, d := range layers {
		if sum, err := digest(d.Digest); err == nil && !p.opts.Store.Has(build.Blob{Digest: sum, Size: d.Size}) {
			p.total += d.Size
		}
	}
}

// brokenError is of a blob that came, but not whole or not as it should be.
type brokenError struct {
	blob string
	err  error
}

func (e *brokenError) Unwrap() error { return e.err }

func (e *brokenError) Error() string {
	if errors.Is(e.err, io.EOF) || errors.Is(e.err, io.ErrUnexpectedEOF) || errors.As(e.err, new(net.Error)) {
		return fmt.Sprintf("the connection broke in the middle of %s", e.blob)
	}
	return fmt.Sprintf("reading %s: %v", e.blob, e.err)
}

// tries is how often a request is made before it is given up.
const tries = 4

// retry makes a request again after failures that may pass, with growing pauses.
func (p *puller) retry(ctx context.Context, request func(*remote.Puller) error) error {
	pause := p.opts.Pause
	if pause == 0 {
		pause = time.Second
	}
	for try := 1; ; try++ {
		err := p.connect()
		if err == nil {
			err = request(p.remote)
		}
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if !mayPass(err) {
			return explain(err)
		}
		if try == tries {
			return fmt.Errorf("%w (tried %d times)", explain(err), tries)
		}
		p.remote = nil // its connection and its token may be what is wrong
		select {
		case <-time.After(pause << (try - 1)):
		case <-ctx.Done():
		}
	}
}

// connect makes the client. Its own retries are off: they cover neither bodies nor what a proxy answers.
func (p *puller) connect() (err error) {
	if p.remote != nil {
		return nil
	}
	keychain := p.opts.Keychain
	if keychain == nil {
		keychain = authn.DefaultKeychain
	}
	opts := []remote.Option{
		remote.WithAuthFromKeychain(keychain), remote.WithUserAgent("talos-factory"),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), remote.WithRetryStatusCodes(), remote.WithRetryPredicate(func(error) bool { return false }),
	}
	if p.opts.Transport != nil {
		opts = append(opts, remote.WithTransport(p.opts.Transport))
	}
	p.remote, err = remote.NewPuller(opts...)
	return err
}

// mayPass tells failures of a moment from answers that another request would not change.
func mayPass(err error) bool {
	var answer *transport.Error
	switch {
	case errors.As(err, &answer):
		return answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusRequestTimeout
	case errors.As(err, new(*fs.PathError)) || errors.As(err, new(*tls.CertificateVerificationError)):
		return false
	case errors.As(err, new(*brokenError)):
		return true // whatever it says: a body may be cut without its connection telling
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(net.Error))
}

// explain says in one line what a registry answered.
func explain(err error) error {
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return oneLine(err)
	}
	status := fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	switch {
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return fmt.Errorf("the registry wants other credentials: %s", status)
	case answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("the registry has no such image: %s", status)
	case answer.StatusCode >= 500:
		return fmt.Errorf("the registry has failed: %s", status)
	}
	return fmt.Errorf("the registry refuses: %s", status)
}

// oneLine keeps what a proxy or a token server sends, which may be a page of HTML, from filling the screen.
func oneLine(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if text == err.Error() && len(text) <= 500 {
		return err
	}
	return errors.New(text[:min(len(text), 500)])
}

// progress counts what comes of a blob.
type progress struct{ p *puller }

func (c progress) Write(b []byte) (int, error) {
	c.p.got += int64(len(b))
	c.p.emit(build.Counted, nil)
	return len(b), nil
}

// emit tells the progress display of the pull, which begins with its first blob.
func (p *puller) emit(state build.State, err error) {
	if p.opts.Progress == nil || p.name == "" && state == build.Done {
		return
	}
	if p.name == "" {
		p.name = "pull " + p.ref.String()
		p.opts.Progress.Event(build.Event{Time: time.Now(), Kind: build.KindFetch, Name: p.name, State: build.Started})
	}
	p.opts.Progress.Event(build.Event{Time: time.Now(), Kind: build.KindFetch, Name: p.name, State: state, Current: p.got, Total: p.total, Err: err})
}

func (p *puller) done(err error) { p.emit(build.Done, err) }
