package image

import (
	"encoding/json"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/tar"
)

// Repository is the name an image has in an archive, before somebody gives it another.
const Repository = "installer"

// Archive plans the image as one file that `docker load` and `podman load` take, and that is an OCI layout, too (OCI image
// specification 1.1, image-layout.md), as newer versions of `docker save` write it.
func (i *Image) Archive() (*extent.Plan, error) {
	blob := func(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }
	files := []tar.File{
		{Path: blob(hashOf(i.core.config)), Mode: 0o444, Content: extent.FromBytes(i.core.config)},
		{Path: blob(hashOf(i.core.manifest)), Mode: 0o444, Content: extent.FromBytes(i.core.manifest)},
	}
	docker := dockerImage{Config: blob(hashOf(i.core.config)), RepoTags: []string{Repository + ":" + i.tag}}
	seen := map[v1.Hash]bool{}
	for _, l := range i.core.layers {
		docker.Layers = append(docker.Layers, blob(l.digest))
		if !seen[l.digest] {
			files = append(files, tar.File{Path: blob(l.digest), Mode: 0o444, Content: l.packed})
		}
		seen[l.digest] = true
	}
	index := v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType: types.OCIManifestSchema1, Size: int64(len(i.core.manifest)), Digest: hashOf(i.core.manifest),
			Annotations: map[string]string{"org.opencontainers.image.ref.name": i.tag},
		}},
	}
	for _, f := range []struct {
		name  string
		value any
	}{
		{"index.json", index},
		{"manifest.json", []dockerImage{docker}},
		{"oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}},
	} {
		text, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		files = append(files, tar.File{Path: f.name, Mode: 0o444, Content: extent.FromBytes(text)})
	}
	return tar.Plan(withFolders(files), tar.Options{Time: time.Unix(0, 0)})
}

// dockerImage is an entry of manifest.json (Docker image specification 1.2, "Combined Image JSON + Filesystem Changeset Format").
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// tag makes a tag of a version, whose build metadata may hold a plus (OCI distribution specification 1.1, "Pulling manifests").
func tag(version string) string { return strings.ReplaceAll(version, "+", "-") }
