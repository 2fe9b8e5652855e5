package pack

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/talos-factory/talos-factory/build"
)

// maxDocument is far more than any index, manifest or configuration of an image has.
const maxDocument = 4 << 20

// parts gets the parts of an image by their descriptors. What they return need not be verified.
type parts interface {
	document(ctx context.Context, d v1.Descriptor) ([]byte, error)
	layer(ctx context.Context, d v1.Descriptor) (func() (io.ReadCloser, error), error)
	expect(layers []v1.Descriptor) // said before the first layer
}

// maxNesting is of indexes in indexes: an image layout's own index, one of platforms, and one more.
const maxNesting = 3

// resolve goes from an index or manifest to the image for the architecture.
func resolve(ctx context.Context, p parts, d v1.Descriptor, arch string) (*image, error) {
	for range maxNesting {
		text, err := document(ctx, p, d)
		if err != nil {
			return nil, err
		}
		if !isIndex(d.MediaType, text) {
			return assemble(ctx, p, text)
		}
		index, err := v1.ParseIndexManifest(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("reading its index: %w", err)
		}
		if d, err = choose(index, arch); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("cannot follow an index of an index of an index")
}

// isIndex goes by the document where the media type is missing, as in references to what is not known yet.
func isIndex(t types.MediaType, text []byte) bool {
	return t.IsIndex() || !t.IsImage() && bytes.Contains(text, []byte(`"manifests"`))
}

// document gets one and holds it to its digest.
func document(ctx context.Context, p parts, d v1.Descriptor) ([]byte, error) {
	want, err := digest(d.Digest)
	if err != nil {
		return nil, err
	}
	text, err := p.document(ctx, d)
	if err != nil {
		return nil, err
	}
	if got := build.Sum(text); got != want {
		return nil, fmt.Errorf("cannot accept %s: it hashes to sha256:%s", d.Digest, got)
	}
	return text, nil
}

func digest(h v1.Hash) (build.Digest, error) {
	if h.Algorithm != "sha256" {
		return build.Digest{}, fmt.Errorf("cannot use digest %s: only sha256 is known here", h)
	}
	return build.ParseDigest(h.Hex)
}

// choose finds the one image of an index that is for the architecture. An only one that says nothing will do.
func choose(index *v1.IndexManifest, arch string) (v1.Descriptor, error) {
	var fit, all []v1.Descriptor
	var there []string
	for _, d := range index.Manifests {
		if !d.MediaType.IsImage() && !d.MediaType.IsIndex() {
			continue
		}
		all = append(all, d)
		if p := d.Platform; p != nil {
			if name := p.OS + "/" + p.Architecture; name != "unknown/unknown" && !slices.Contains(there, name) { // attestations
				there = append(there, name)
			}
			if p.OS == "linux" && p.Architecture == arch {
				fit = append(fit, d)
			}
		}
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) == 0 && len(all) == 1 && len(there) == 0:
		return all[0], nil
	case len(fit) == 0 && len(there) > 0:
		return v1.Descriptor{}, fmt.Errorf("it has no image for linux/%s (there is: %s)", arch, strings.Join(there, ", "))
	}
	return v1.Descriptor{}, fmt.Errorf("it has %d images that could be meant", len(all))
}

// assemble makes an image of a manifest: it checks the configuration, and that there are as many layers as it says.
func assemble(ctx context.Context, p parts, text []byte) (*image, error) {
	m, err := v1.ParseManifest(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading its manifest: %w", err)
	}
	raw, err := document(ctx, p, m.Config)
	if err != nil {
		return nil, fmt.Errorf("reading its configuration: %w", err)
	}
	config, err := parseConfig(raw, len(m.Layers))
	if err != nil {
		return nil, err
	}
	img := &image{digest: build.Sum(text), arch: config.Architecture}
	p.expect(m.Layers)
	for i, d := range m.Layers {
		open, err := p.layer(ctx, d)
		if err != nil {
			return nil, err
		}
		img.layers = append(img.layers, layer{name: d.Digest.String(), number: i, diffID: config.RootFS.DiffIDs[i].String(), open: open})
	}
	return img, nil
}

func parseConfig(text []byte, layers int) (*v1.ConfigFile, error) {
	config, err := v1.ParseConfigFile(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading its configuration: %w", err)
	}
	if len(config.RootFS.DiffIDs) != layers {
		return nil, fmt.Errorf("its configuration is of %d layers, and it has %d: this is no container image", len(config.RootFS.DiffIDs), layers)
	}
	for _, id := range config.RootFS.DiffIDs {
		if _, err := hex.DecodeString(id.Hex); err != nil || id.Algorithm != "sha256" {
			return nil, fmt.Errorf("cannot use digest %s: only sha256 is known here", id)
		}
	}
	return config, nil
}
