package pkgs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/build/oci"
	"github.com/talos-factory/talos-factory/pkgs/gomod"
)

// A bundle is an OCI artifact with one layer for each locked blob, as it is. A layer's digest is then the blob's sha256, and fetching
// one needs the repository's name and nothing else. The Go modules are one more layer, found by its type since
// no lock has its digest.
const (
	bundleType  types.MediaType = "application/vnd.talos-factory.bundle.v1+blob"
	modulesType types.MediaType = "application/vnd.talos-factory.go-modules.v1.tar"
)

func openBundle(ctx context.Context, ref string, b build.Blob, client *http.Client) (io.ReadCloser, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return nil, err
	}
	layer, err := remote.Layer(r.Context().Digest("sha256:"+b.Digest.String()), oci.Options(ctx, client)...)
	if err != nil {
		return nil, err
	}
	return layer.Compressed()
}

// moduleProxy gets the Go modules of the bundle, if there is one when a tree is made.
func (f *Fetcher) moduleProxy() gomod.Proxy {
	return func(ctx context.Context) (string, func(), error) {
		ref := orEnv(f.Bundle, BundleEnv)
		if ref == "" {
			return "", func() {}, nil
		}
		dir, err := os.MkdirTemp("", "modules-")
		if err != nil {
			return "", nil, err
		}
		release := func() { _ = os.RemoveAll(dir) } // a left-over in the folder for temporary files
		if err := unpackModules(ctx, ref, dir, f.Client); err != nil {
			release()
			return "", nil, fmt.Errorf("taking Go modules out of the bundle: %w", err)
		}
		return dir, release, nil
	}
}

// unpackModules leaves the folder empty if the bundle has no modules: the host's proxy is asked then.
func unpackModules(ctx context.Context, ref, dir string, client *http.Client) error {
	r, err := name.ParseReference(ref)
	if err != nil {
		return err
	}
	img, err := remote.Image(r, oci.Options(ctx, client)...)
	if err != nil {
		return err
	}
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	for _, d := range m.Layers {
		if d.MediaType != modulesType {
			continue
		}
		layer, err := remote.Layer(r.Context().Digest(d.Digest.String()), oci.Options(ctx, client)...)
		if err != nil {
			return err
		}
		body, err := layer.Compressed()
		if err != nil {
			return err
		}
		return errors.Join(gomod.Unpack(body, dir), body.Close())
	}
	return nil
}

// PushBundle writes a bundle of the blobs and of what PackModules wrote, all of which must be in the store, and returns its digest.
func PushBundle(ctx context.Context, ref string, blobs []build.Blob, modules build.Blob, open func(build.Digest) (*os.File, error), client *http.Client) (string, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return "", err
	}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	layers := make([]mutate.Addendum, 0, len(blobs)+1)
	for _, b := range blobs {
		layers = append(layers, mutate.Addendum{Layer: oci.Layer{Blob: b, Type: bundleType, Open: open}, MediaType: bundleType})
	}
	layers = append(layers, mutate.Addendum{Layer: oci.Layer{Blob: modules, Type: modulesType, Open: open}, MediaType: modulesType})
	if img, err = mutate.Append(img, layers...); err != nil {
		return "", err
	}
	if err := remote.Write(r, img, oci.Options(ctx, client)...); err != nil {
		return "", fmt.Errorf("pushing to %s: %w", ref, err)
	}
	digest, err := img.Digest()
	return digest.String(), err
}
