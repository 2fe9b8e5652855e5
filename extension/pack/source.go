package pack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/talos-factory/talos-factory/build"
)

// Source is where an extension's image comes from; exactly one of Image, Layout and Tarball is set.
type Source struct {
	Image    string // reference of a registry: "ghcr.io/siderolabs/gvisor:20250505.0@sha256:..."
	Layout   string // folder with an OCI image layout
	Tarball  string // file as docker save writes it, or an OCI image layout as a tar
	Insecure bool   // plain HTTP, or TLS that nobody vouches for, is good enough for the registry
}

// ParseSource reads what a person writes: the path of a folder or file that exists, or else a reference.
func ParseSource(s string) (Source, error) {
	info, err := os.Stat(s)
	switch {
	case err == nil && info.IsDir():
		return Source{Layout: s}, nil
	case err == nil:
		return Source{Tarball: s}, nil
	case s == "" || filepath.IsAbs(s) || strings.HasPrefix(s, "."): // no reference begins so
		return Source{}, fmt.Errorf("cannot find extension %q: %w", s, err)
	}
	if _, err := parseReference(s, false); err != nil {
		return Source{}, err
	}
	return Source{Image: s}, nil
}

func (s Source) String() string { return s.Image + s.Layout + s.Tarball }

// image is an image whose layers can be read.
type image struct {
	digest  build.Digest // names its content
	arch    string       // "" if it does not say
	layers  []layer      // the lowest first
	closers []io.Closer
}

// layer is one of an image's layers, compressed or not.
type layer struct {
	name   string
	number int
	diffID string // "sha256:..." of the uncompressed tar
	open   func() (io.ReadCloser, error)
}

func (img *image) close() error {
	var errs []error
	for _, c := range img.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (s Source) open(ctx context.Context, opts *Options) (*image, error) {
	var img *image
	var err error
	switch {
	case s.Image != "":
		return pull(ctx, s, opts) // says itself what it cannot do
	case s.Layout != "":
		img, err = openLayout(s.Layout, opts.Arch)
	case s.Tarball != "":
		img, err = openTarball(s.Tarball, opts.Arch)
	default:
		err = errors.New("internal error: no source")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use %s as a system extension: %w", s, err)
	}
	return img, nil
}
