// Package oci lets stored blobs travel in registries: a blob as a layer that is not compressed, so that the layer's digest is the
// blob's own.
//
// It knows no store's layout and no artifact's meaning, and retries nothing: package remote does.
package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/talos-factory/talos-factory/build"
)

// Layer is a stored blob as a layer.
type Layer struct {
	Blob build.Blob
	Type types.MediaType
	Open func(build.Digest) (*os.File, error)
}

// Digest implements v1.Layer, as do the others.
func (l Layer) Digest() (v1.Hash, error)             { return v1.NewHash("sha256:" + l.Blob.Digest.String()) }
func (l Layer) DiffID() (v1.Hash, error)             { return l.Digest() }
func (l Layer) Compressed() (io.ReadCloser, error)   { return l.Open(l.Blob.Digest) }
func (l Layer) Uncompressed() (io.ReadCloser, error) { return l.Open(l.Blob.Digest) }
func (l Layer) Size() (int64, error)                 { return l.Blob.Size, nil }
func (l Layer) MediaType() (types.MediaType, error)  { return l.Type, nil }

// Options are how registries are talked to: with what docker login and its like have stored. client may be nil.
func Options(ctx context.Context, client *http.Client) []remote.Option {
	opts := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if client != nil && client.Transport != nil {
		opts = append(opts, remote.WithTransport(client.Transport))
	}
	return opts
}

// Explain makes one line of what a registry said or did not say.
func Explain(ref string, err error) error {
	var said *transport.Error
	var network net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said) && (said.StatusCode == http.StatusUnauthorized || said.StatusCode == http.StatusForbidden):
		return fmt.Errorf("%s: the registry refuses access (%d): log in with docker login or the like", ref, said.StatusCode)
	case errors.As(err, &said) && said.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s: the registry has no such artifact (404)", ref)
	case errors.As(err, &said):
		return fmt.Errorf("%s: the registry answers %d", ref, said.StatusCode)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%s: the registry dropped the connection: %w", ref, err)
	case errors.As(err, &network):
		return fmt.Errorf("%s: cannot reach the registry: %w", ref, err)
	}
	return fmt.Errorf("%s: %w", ref, err)
}
