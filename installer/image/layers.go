package image

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/tar"
	"github.com/talos-factory/talos-factory/installer"
)

// contents is a layer to be.
type contents struct {
	name  string
	files []tar.File
}

// layers are in the order in which they change: a new customization changes the last one only, a new kernel or root the last two.
// No file of theirs has a time, so that what did not change between two releases is the same layer.
func (c Content) layers(record []byte) []contents {
	program := []tar.File{
		{Path: "usr/bin/installer", Mode: 0o755, Content: c.Program},
		{Path: "bin", Mode: fs.ModeSymlink | 0o777, Link: "usr/bin"},
	}
	loaders := []tar.File{c.file(installer.SystemdBoot, extent.FromBytes(c.Parts.SystemdBoot))}
	if !c.Signed {
		loaders = append(loaders, c.file(installer.SystemdStub, extent.FromBytes(c.Parts.SystemdStub)))
	}
	if c.BIOS {
		loaders = append(loaders,
			c.file(installer.GRUBBoot, extent.FromBytes(c.Parts.GRUBBoot)),
			c.file(installer.GRUBCore, extent.FromBytes(c.Parts.GRUBCore)))
	}
	custom := []tar.File{c.file(installer.UKI, c.UKI), c.file(installer.RecordFile, extent.FromBytes(record))}
	if c.carriesExtra() {
		custom = append(custom, c.file(installer.Extra, c.Boot.Extra))
	}
	all := []contents{{"installer", program}, {"boot loaders", loaders}}
	if c.carriesParts() {
		all = append(all, contents{"kernel and initramfs", []tar.File{
			c.file(installer.Kernel, c.Parts.Kernel), c.file(installer.Initramfs, c.Parts.Initramfs),
		}})
	}
	return append(all, contents{"customization", custom})
}

// carriesParts says whether anybody needs what the UKI is made of: GRUB, and an installer that makes another UKI.
func (c Content) carriesParts() bool { return c.BIOS || !c.Signed }

func (c Content) carriesExtra() bool { return c.Boot.Extra != nil && c.carriesParts() }

func (c Content) file(name string, content *extent.Plan) tar.File {
	return tar.File{Path: path.Join(installer.Dir, installer.Path(c.Parts.Arch, name))[1:], Mode: 0o644, Content: content}
}

// layer is one packed.
type layer struct {
	name           string
	plan, packed   *extent.Plan // the archive, and what travels
	diffID, digest v1.Hash      // likewise
	source         extent.Source
}

func (c contents) pack(tools Tools) (*layer, error) {
	plan, err := tar.Plan(withFolders(c.files), tar.Options{Time: time.Unix(0, 0)})
	if err != nil {
		return nil, err
	}
	packed, err := tools.Gzip(plan)
	if err != nil {
		return nil, fmt.Errorf("compressing: %w", err)
	}
	diffID, err := tools.Sum(plan)
	if err != nil {
		return nil, fmt.Errorf("hashing: %w", err)
	}
	digest, err := tools.Sum(packed)
	if err != nil {
		return nil, fmt.Errorf("hashing: %w", err)
	}
	return &layer{name: c.name, plan: plan, packed: packed, diffID: hash(diffID), digest: hash(digest), source: tools.Source}, nil
}

// withFolders adds an entry for each folder on the way to the files, before its first file.
func withFolders(files []tar.File) []tar.File {
	var all []tar.File
	seen := map[string]bool{".": true}
	var folder func(string)
	folder = func(dir string) {
		if seen[dir] {
			return
		}
		seen[dir] = true
		folder(path.Dir(dir))
		all = append(all, tar.File{Path: dir, Mode: fs.ModeDir | 0o755})
	}
	for _, f := range files {
		folder(path.Dir(f.Path))
		all = append(all, f)
	}
	return all
}

// Digest implements partial.CompressedLayer, as the methods below.
func (l *layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID is the digest of the archive.
func (l *layer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// Size is how much travels.
func (l *layer) Size() (int64, error) { return l.packed.Size(), nil }

// MediaType says that it is a compressed tar archive.
func (l *layer) MediaType() (types.MediaType, error) { return types.OCILayer, nil }

// Compressed reads it as it travels.
func (l *layer) Compressed() (io.ReadCloser, error) { return l.packed.NewReader(l.source), nil }
