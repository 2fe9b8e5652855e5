package pkgs

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/talos-factory/talos-factory/build"
)

// A bundle is an OCI artifact with one layer for each locked blob, as it is. A layer's digest is then the blob's sha256, and fetching
// one needs the repository's name and nothing else.
const bundleType types.MediaType = "application/vnd.talos-factory.bundle.v1+blob"

func bundleOptions(ctx context.Context, client *http.Client) []remote.Option {
	opts := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if client != nil && client.Transport != nil {
		opts = append(opts, remote.WithTransport(client.Transport))
	}
	return opts
}

func openBundle(ctx context.Context, ref string, b build.Blob, client *http.Client) (io.ReadCloser, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return nil, err
	}
	layer, err := remote.Layer(r.Context().Digest("sha256:"+b.Digest.String()), bundleOptions(ctx, client)...)
	if err != nil {
		return nil, err
	}
	return layer.Compressed()
}

// PushBundle writes a bundle of the blobs, which must be in the store, and returns its digest.
func PushBundle(ctx context.Context, ref string, blobs []build.Blob, open func(build.Digest) (*os.File, error), client *http.Client) (string, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return "", err
	}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	layers := make([]mutate.Addendum, 0, len(blobs))
	for _, b := range blobs {
		layers = append(layers, mutate.Addendum{Layer: blobLayer{b, open}, MediaType: bundleType})
	}
	if img, err = mutate.Append(img, layers...); err != nil {
		return "", err
	}
	if err := remote.Write(r, img, bundleOptions(ctx, client)...); err != nil {
		return "", fmt.Errorf("pushing to %s: %w", ref, err)
	}
	digest, err := img.Digest()
	return digest.String(), err
}

// blobLayer is a stored blob as a layer that is not compressed.
type blobLayer struct {
	blob build.Blob
	open func(build.Digest) (*os.File, error)
}

func (l blobLayer) Digest() (v1.Hash, error)             { return v1.NewHash("sha256:" + l.blob.Digest.String()) }
func (l blobLayer) DiffID() (v1.Hash, error)             { return l.Digest() }
func (l blobLayer) Compressed() (io.ReadCloser, error)   { return l.open(l.blob.Digest) }
func (l blobLayer) Uncompressed() (io.ReadCloser, error) { return l.open(l.blob.Digest) }
func (l blobLayer) Size() (int64, error)                 { return l.blob.Size, nil }
func (l blobLayer) MediaType() (types.MediaType, error)  { return bundleType, nil }
