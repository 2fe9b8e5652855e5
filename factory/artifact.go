package factory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/build/oci"
	"github.com/talos-factory/talos-factory/pkgs"
)

// A release as an OCI artifact is an image manifest whose configuration is a Description and whose layers are the release's blobs, as
// they are.
const (
	releaseType types.MediaType = "application/vnd.talos-factory.release.v1+json"
	partType    types.MediaType = "application/vnd.talos-factory.release.part.v1"

	// titleAnnotation names a layer (OCI image specification 1.1, annotations.md).
	titleAnnotation = "org.opencontainers.image.title"
)

// descriptionSchema is the version of Description.
const descriptionSchema = 1

// lockPart is the name under which a release carries its lock, which tools come from.
const lockPart = "lock.json"

// maxDescription is far more than any description.
const maxDescription = 1 << 20

// Description is a manifest of digests: everything that images of a release are assembled from.
type Description struct {
	Schema  int                   `json:"schema"`
	Version string                `json:"version"`
	BuildID string                `json:"buildID"`
	Arch    string                `json:"arch"`
	Parts   map[string]build.Blob `json:"parts"`
}

// Describe makes the release's parts and lists them. All of them are in the store then.
func (r *Release) Describe(ctx context.Context, engine *build.Engine) (Description, error) {
	parts, err := r.blobs(ctx, engine, append(r.Steps(), r.Program)...)
	if err != nil {
		return Description{}, err
	}
	text, err := r.lock.Marshal()
	if err != nil {
		return Description{}, fmt.Errorf("packing lock: %w", err)
	}
	lock, err := engine.Store.Put(bytes.NewReader(text))
	if err != nil {
		return Description{}, fmt.Errorf("packing lock: %w", err)
	}
	parts = maps.Clone(parts)
	parts[lockPart] = lock
	return Description{descriptionSchema, r.Version, r.BuildID, r.Arch, parts}, nil
}

// image is the description as an artifact.
func (d Description) image(store *build.Store) (v1.Image, error) {
	config, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	a := &artifact{config: config, parts: map[v1.Hash]oci.Layer{}}
	m := v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: releaseType, Size: int64(len(config)), Digest: ociHash(build.Sum(config))},
	}
	for _, part := range slices.Sorted(maps.Keys(d.Parts)) {
		blob := d.Parts[part]
		a.parts[ociHash(blob.Digest)] = oci.Layer{Blob: blob, Type: partType, Open: store.Open}
		m.Layers = append(m.Layers, v1.Descriptor{
			MediaType: partType, Size: blob.Size, Digest: ociHash(blob.Digest), Annotations: map[string]string{titleAnnotation: part},
		})
	}
	if a.manifest, err = json.Marshal(m); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(a)
}

func ociHash(d build.Digest) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: d.String()} }

// artifact implements partial.CompressedImageCore.
type artifact struct {
	config, manifest []byte
	parts            map[v1.Hash]oci.Layer
}

func (a *artifact) RawConfigFile() ([]byte, error)      { return a.config, nil }
func (a *artifact) RawManifest() ([]byte, error)        { return a.manifest, nil }
func (a *artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a *artifact) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	layer, ok := a.parts[h]
	if !ok {
		return nil, fmt.Errorf("internal error: release has no part %s", h)
	}
	return layer, nil
}

// Push writes the release to a registry and returns the reference that pins it.
func (d Description) Push(ctx context.Context, store *build.Store, ref string, client *http.Client) (string, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return "", err
	}
	img, err := d.image(store)
	if err != nil {
		return "", err
	}
	if err := remote.Write(r, img, oci.Options(ctx, client)...); err != nil {
		return "", fmt.Errorf("pushing release: %w", oci.Explain(ref, err))
	}
	digest, err := img.Digest()
	return r.Context().Digest(digest.String()).String(), err
}

// Export writes the release as an OCI image layout, into a folder that has none yet.
func (d Description) Export(store *build.Store, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err == nil {
		return fmt.Errorf("cannot export to %s: it holds an OCI layout already", dir)
	}
	img, err := d.image(store)
	if err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("exporting release: %w", err)
	}
	if err := path.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: d.Arch})); err != nil {
		return fmt.Errorf("exporting release: %w", err)
	}
	return nil
}

// ShowRelease reads the description of a release that somebody pushed or exported: ref is a reference in a registry, or a folder.
func ShowRelease(ctx context.Context, ref, arch string, client *http.Client) (Description, error) {
	_, d, err := describeArtifact(ctx, ref, arch, client)
	return d, err
}

func describeArtifact(ctx context.Context, ref, arch string, client *http.Client) (v1.Image, Description, error) {
	img, err := openArtifact(ctx, ref, arch, client)
	if err != nil {
		return nil, Description{}, fmt.Errorf("opening release: %w", err)
	}
	d, err := readDescription(img)
	if err != nil {
		return nil, d, fmt.Errorf("opening release: %w", oci.Explain(ref, err))
	}
	if d.Arch != arch {
		return nil, d, fmt.Errorf("cannot use release %s: it is for %s, not %s", ref, d.Arch, arch)
	}
	return img, d, nil
}

// OpenRelease gets such a release. What the store has already is not read again; every byte is verified by its digest.
func OpenRelease(ctx context.Context, engine *build.Engine, ref, arch string, client *http.Client) (*Release, error) {
	img, d, err := describeArtifact(ctx, ref, arch, client)
	if err != nil {
		return nil, err
	}
	var fetches []*build.Fetch
	for _, part := range slices.Sorted(maps.Keys(d.Parts)) {
		blob := d.Parts[part]
		fetches = append(fetches, &build.Fetch{Name: "release part " + part, Blob: blob, Open: func(context.Context) (io.ReadCloser, error) {
			layer, err := img.LayerByDigest(ociHash(blob.Digest))
			if err != nil {
				return nil, oci.Explain(ref, err)
			}
			body, err := layer.Compressed()
			return body, oci.Explain(ref, err)
		}})
	}
	if err := engine.Fetch(ctx, "release "+d.Version, fetches...); err != nil {
		return nil, err
	}
	return d.release(engine.Store)
}

// release makes a release of stored parts.
func (d Description) release(store *build.Store) (*Release, error) {
	text, err := readSmall(store, d.Parts[lockPart])
	if err != nil {
		return nil, fmt.Errorf("reading the release's lock: %w", err)
	}
	lock, err := pkgs.Read(text)
	if err != nil {
		return nil, fmt.Errorf("reading the release's lock: %w", err)
	}
	parts := maps.Clone(d.Parts)
	delete(parts, lockPart)
	return &Release{Arch: d.Arch, Version: d.Version, BuildID: d.BuildID, lock: lock, host: runtime.GOARCH, ready: parts}, nil
}

func openArtifact(ctx context.Context, ref, arch string, client *http.Client) (v1.Image, error) {
	if info, err := os.Stat(ref); err == nil && info.IsDir() {
		return openLayout(ref, arch)
	}
	r, err := name.ParseReference(ref)
	if err != nil {
		return nil, err
	}
	img, err := remote.Image(r, append(oci.Options(ctx, client), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))...)
	return img, oci.Explain(ref, err)
}

func openLayout(dir, arch string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is no OCI layout: %w", dir, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		if m.Platform == nil || m.Platform.Architecture == arch {
			return index.Image(m.Digest)
		}
	}
	return nil, fmt.Errorf("%s has no release for %s", dir, arch)
}

// readDescription reads and checks an artifact's configuration.
func readDescription(img v1.Image) (d Description, err error) {
	manifest, err := img.Manifest()
	if err != nil {
		return d, err
	}
	if manifest.Config.MediaType != releaseType {
		return d, fmt.Errorf("it is no release: its configuration is %s", manifest.Config.MediaType)
	}
	if manifest.Config.Size > maxDescription {
		return d, errors.New("it is no release: its configuration is too long")
	}
	text, err := img.RawConfigFile()
	if err != nil {
		return d, err
	}
	return parseDescription(text)
}

// parseDescription reads what may come from anywhere.
func parseDescription(text []byte) (d Description, err error) {
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("reading description: %w", err)
	}
	if d.Schema != descriptionSchema {
		return d, fmt.Errorf("cannot read release schema %d: this factory reads %d", d.Schema, descriptionSchema)
	}
	for _, part := range append(requiredParts(), lockPart) {
		if blob := d.Parts[part]; blob.Size <= 0 {
			return d, fmt.Errorf("cannot use the release: it has no part %s", part)
		}
	}
	if !versionForm.MatchString(d.Version) || d.BuildID == "" {
		return d, fmt.Errorf("cannot use the release: version %q, build %q", d.Version, d.BuildID)
	}
	return d, nil
}

// versionForm is what may be part of a file name.
var versionForm = regexp.MustCompile(`^v[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$`)
