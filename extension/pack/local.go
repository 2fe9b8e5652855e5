package pack

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/talos-factory/talos-factory/build"
)

// openFile opens a file of a layout by its slash-separated path.
type openFile func(name string) (io.ReadCloser, error)

// openLayout opens an OCI image layout (OCI image-spec, image-layout.md). No link in it leads out of the folder.
func openLayout(dir, arch string) (*image, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	img, err := openIndex(func(name string) (io.ReadCloser, error) { return root.Open(name) }, arch)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	img.closers = append(img.closers, root)
	return img, nil
}

// indexName is the entry point of a layout.
const indexName = "index.json"

func openIndex(open openFile, arch string) (*image, error) {
	text, err := readFile(open, indexName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("it is no OCI layout: it has no " + indexName)
	}
	if err != nil {
		return nil, err
	}
	h := v1.Hash{Algorithm: "sha256", Hex: build.Sum(text).String()}
	return resolve(context.Background(), &layoutParts{open, h, text}, v1.Descriptor{Digest: h}, arch)
}

func readFile(open openFile, name string) ([]byte, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxDocument {
		return nil, fmt.Errorf("cannot read %s: it has more than %d bytes", name, maxDocument)
	}
	return text, nil
}

// layoutParts are the parts in a layout's folder of blobs. The layout's own index is one, too.
type layoutParts struct {
	open  openFile
	top   v1.Hash
	index []byte
}

func blobPath(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

func (p *layoutParts) document(_ context.Context, d v1.Descriptor) ([]byte, error) {
	if d.Digest == p.top {
		return p.index, nil
	}
	return readFile(p.open, blobPath(d.Digest))
}

func (p *layoutParts) layer(_ context.Context, d v1.Descriptor) (func() (io.ReadCloser, error), error) {
	return func() (io.ReadCloser, error) { return p.open(blobPath(d.Digest)) }, nil
}

func (p *layoutParts) expect([]v1.Descriptor) {}

// openTarball opens an archive of a layout, or what docker save writes.
func openTarball(name, arch string) (*image, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	img, err := openArchive(f, arch)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	img.closers = append(img.closers, f)
	return img, nil
}

func openArchive(f *os.File, arch string) (*image, error) {
	found, err := contents(f)
	if err != nil {
		return nil, fmt.Errorf("it is no tar: %w", err)
	}
	open := func(name string) (io.ReadCloser, error) {
		section, ok := found[path.Clean(name)]
		if !ok {
			return nil, &fs.PathError{Op: "opening", Path: name, Err: fs.ErrNotExist}
		}
		return io.NopCloser(io.NewSectionReader(section, 0, section.Size())), nil
	}
	if found[indexName] != nil { // newer versions of docker write both
		return openIndex(open, arch)
	}
	if found["manifest.json"] != nil {
		return openSaved(open)
	}
	return nil, fmt.Errorf("it holds no image: neither %s nor manifest.json", indexName)
}

// contents finds where the files of a tar lie in it. A file's content follows its header, and the reader takes no
// byte more than the header.
func contents(f *os.File) (map[string]*io.SectionReader, error) {
	found := map[string]*io.SectionReader{}
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		if found[path.Clean(h.Name)] = io.NewSectionReader(f, at, h.Size); len(found) > maxEntries {
			return nil, fmt.Errorf("cannot read more than %d files", maxEntries)
		}
	}
}

// openSaved opens what docker save and crane pull write: manifest.json names the configuration and the layers' files.
func openSaved(open openFile) (*image, error) {
	text, err := readFile(open, "manifest.json")
	if err != nil {
		return nil, err
	}
	var saved []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(text, &saved); err != nil {
		return nil, fmt.Errorf("reading manifest.json: %w", err)
	}
	if len(saved) != 1 {
		return nil, fmt.Errorf("it holds %d images, want one", len(saved))
	}
	raw, err := readFile(open, saved[0].Config)
	if err != nil {
		return nil, err
	}
	config, err := parseConfig(raw, len(saved[0].Layers))
	if err != nil {
		return nil, err
	}
	img := &image{digest: build.Sum(raw), arch: config.Architecture}
	for i, name := range saved[0].Layers {
		img.layers = append(img.layers, layer{
			name: strings.TrimSuffix(name, "/layer.tar"), number: i, diffID: config.RootFS.DiffIDs[i].String(),
			open: func() (io.ReadCloser, error) { return open(name) },
		})
	}
	return img, nil
}
