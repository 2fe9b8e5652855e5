// Package pack brings system extensions into an image of the OS: it gets an extension's image from a registry, an OCI layout or a
// tarball, checks what it may bring, and describes how that is packed as a squashfs and put, with the others, into
// the customization cpio that lies behind the constant initramfs.
//
// Nothing of an image is ever unpacked into a folder of the host: layers are merged in memory, with file contents
// in one unlinked spool file, and written as one normalized tar into the store. It runs nothing itself (the step is the
// engine's), mounts nothing (/init does), and verifies no signatures.
package pack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/extension"
)

// Options say for what extensions are loaded, and how.
type Options struct {
	Store   *build.Store
	Arch    string // of the machine: "amd64", "arm64"
	Version string // the Talos version that the OS is compatible with
	Modules bool   // its kernel can load modules

	Progress  build.Progress    // nil: silent
	Transport http.RoundTripper // nil: the default one
	Keychain  authn.Keychain    // nil: what docker login and its like have stored
	Pause     time.Duration     // before the first retry, doubled before each further one; 0: one second
}

// Extension is a system extension that may be used: its image is in the store and was checked.
type Extension struct {
	Manifest extension.Manifest
	Source   Source
	Digest   string     // of the image's manifest (of its configuration if it came as docker save writes it): "sha256:..."
	Tree     build.Blob // its rootfs as a normalized tar
}

// Load gets an extension and checks it. A registry is asked only for what the store does not have: not at all, if the
// reference has a digest and was loaded before.
func Load(ctx context.Context, src Source, opts Options) (*Extension, error) {
	img, err := src.open(ctx, &opts)
	if err != nil {
		return nil, err
	}
	ext, err := img.load(src, &opts)
	if err := errors.Join(err, img.close()); err != nil {
		return nil, fmt.Errorf("cannot use %s as a system extension: %w", src, err)
	}
	return ext, nil
}

func (img *image) load(src Source, opts *Options) (*Extension, error) {
	if img.arch != "" && img.arch != opts.Arch {
		return nil, fmt.Errorf("it is for linux/%s, not linux/%s", img.arch, opts.Arch)
	}
	c, err := img.content(opts.Store)
	if err != nil {
		return nil, err
	}
	m, err := extension.ParseManifest([]byte(c.Manifest))
	if err != nil {
		return nil, fmt.Errorf("reading its %s: %w", manifestName, err)
	}
	if err := m.Metadata.CheckCompatible(opts.Version); err != nil {
		return nil, err
	}
	if c.Module != "" && !opts.Modules {
		return nil, fmt.Errorf("it brings %s, and this system's kernel has no loadable modules", c.Module)
	}
	return &Extension{Manifest: m, Source: src, Digest: "sha256:" + img.digest.String(), Tree: c.Tree}, nil
}

// content is what an image comes to, whatever it is to be used for.
type content struct {
	Manifest string     `json:"manifest"`
	Module   string     `json:"module"` // the first file below /usr/lib/modules
	Tree     build.Blob `json:"tree"`
}

// contentVersion names the rules that an image went through: a change of them changes the name.
const contentVersion = "extension content v1"

// content merges the image's layers, unless that was done before.
func (img *image) content(store *build.Store) (content, error) {
	make := func() ([]byte, error) {
		c, err := img.merge(store)
		if err != nil {
			return nil, err
		}
		return json.Marshal(c)
	}
	text, err := store.Remember(contentVersion, img.digest, make)
	if err != nil {
		return content{}, err
	}
	var c content
	if err := json.Unmarshal(text, &c); err != nil {
		return content{}, fmt.Errorf("reading what the store remembers of it: %w", err)
	}
	if store.Has(c.Tree) {
		return c, nil
	}
	return img.merge(store) // the tar has been thrown away since
}

func (img *image) merge(store *build.Store) (content, error) {
	m := newMerge()
	defer m.close()
	for _, l := range img.layers {
		if err := m.layer(l); err != nil {
			return content{}, fmt.Errorf("reading layer %s: %w", l.name, err)
		}
	}
	manifest, err := m.manifest()
	if err != nil {
		return content{}, err
	}
	tree, err := m.tree()
	if err != nil {
		return content{}, err
	}
	blob, err := tree.store(store)
	return content{Manifest: manifest, Module: tree.module, Tree: blob}, err
}
