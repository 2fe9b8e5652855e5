package image

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/talos-factory/talos-factory/build/oci"
)

// PushOptions are the caller's about a push.
type PushOptions struct {
	Insecure bool                    // speak HTTP to a registry that is not on this host
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
	write := oci.Options(ctx, nil)
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
		return "", fmt.Errorf("pushing installer: %w", oci.Explain(ref, err))
	}
	return to.Context().Digest(digest.String()).String(), nil
}
