package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// PushOptions are the caller's about a push.
type PushOptions struct {
	Insecure bool                    // speak HTTP to a registry that is not on this host
	Keychain authn.Keychain          // nil is Docker's configuration file
	Progress func(done, total int64) // may be nil; bytes of layers, those the registry has already count as done
	Backoff  remote.Backoff          // between tries; zero is the library's: three within five seconds
}

// Push puts an image into a registry under ref and returns its name by digest. What the registry has already is not sent again;
// what fails for a reason that may pass is tried again.
func Push(ctx context.Context, ref string, img v1.Image, o PushOptions) (string, error) {
	var options []name.Option
	if o.Insecure {
		options = append(options, name.Insecure)
	}
	to, err := name.ParseReference(ref, options...)
	if err != nil {
		return "", fmt.Errorf("cannot push to %q: %w\nhint: a reference is REGISTRY/NAME:TAG, such as 127.0.0.1:5000/installer:v1", ref, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return "", err
	}
	if o.Keychain == nil {
		o.Keychain = authn.DefaultKeychain
	}
	write := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(o.Keychain)}
	if o.Backoff != (remote.Backoff{}) {
		write = append(write, remote.WithRetryBackoff(o.Backoff))
	}
	var watch sync.WaitGroup
	if o.Progress != nil {
		updates := make(chan v1.Update, 64)
		write = append(write, remote.WithProgress(updates))
		watch.Go(func() {
			for u := range updates { // it is closed by remote.Write
				if u.Error == nil {
					o.Progress(u.Complete, u.Total)
				}
			}
		})
	}
	err = remote.Write(to, img, write...)
	watch.Wait()
	if err != nil {
		return "", explain(to, err)
	}
	return to.Context().Digest(digest.String()).String(), nil
}

// explain says what to do about the errors that people meet.
func explain(to name.Reference, err error) error {
	registry := to.Context().RegistryStr()
	var refused *transport.Error
	switch {
	case errors.As(err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden):
		return fmt.Errorf("cannot push to %s: the registry refuses access (%w)\nhint: docker login %s, or give an account that may write", to, err, registry)
	case errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound:
		return fmt.Errorf("cannot push to %s: the registry knows no such place (%w)\nhint: does %s exist, and is %s a registry?", to, err, to.Context().RepositoryStr(), registry)
	case errors.As(err, &refused) && refused.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("cannot push to %s: the registry fails (%w)\nhint: try again later", to, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("cannot push to %s: the registry dropped the connection (%w)\nhint: try again; what has arrived is not sent again", to, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot push to %s: nobody answers (%w)\nhint: is %s running?", to, err, registry)
	}
	return fmt.Errorf("pushing to %s: %w", to, err)
}
