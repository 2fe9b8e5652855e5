package gomod

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/talos-factory/talos-factory/build"
)

// proxyFirst is the setting of GOPROXY that asks a folder and then whatever the host asks.
func proxyFirst(ctx context.Context, dir string) (string, error) {
	host, err := goCommand(ctx, "", nil, "env", "GOPROXY")
	if err != nil {
		return "", fmt.Errorf("asking the host's go command for its proxy: %w", err)
	}
	if dir == "" {
		return "GOPROXY=" + strings.TrimSpace(string(host)), nil
	}
	folder := url.URL{Scheme: "file", Path: dir}
	return "GOPROXY=" + folder.String() + "," + strings.TrimSpace(string(host)), nil
}

// Pack writes the module files that the trees of all modules are made from, as a tar in the layout of a GOPROXY
// (go.dev/ref/mod, "GOPROXY protocol"). What the host's module cache has is taken from there. The same modules
// give the same bytes.
func Pack(ctx context.Context, w io.Writer, all []*Modules) (err error) {
	cache, err := goCommand(ctx, "", nil, "env", "GOMODCACHE")
	if err != nil {
		return fmt.Errorf("asking the host's go command for its cache: %w", err)
	}
	const files = "cache/download" // what is in a module cache has the layout of a GOPROXY
	proxy, err := proxyFirst(ctx, filepath.Join(strings.TrimSpace(string(cache)), files))
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "modules-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	// An empty cache of its own afterwards holds just what was needed.
	own := filepath.Join(tmp, "cache")
	if err := os.MkdirAll(filepath.Join(own, files), 0o755); err != nil {
		return err
	}
	for i, m := range all {
		if err := m.vendor(ctx, filepath.Join(tmp, strconv.Itoa(i)), proxy, "GOMODCACHE="+own, "GOFLAGS=-modcacherw"); err != nil {
			return fmt.Errorf("packing %s: %w", m.name, err)
		}
	}
	return packFiles(w, filepath.Join(own, files))
}

// kinds of module files that a GOPROXY is asked for; a module cache has others beside them.
var kinds = []string{".info", ".mod", ".zip"}

func packFiles(w io.Writer, dir string) error {
	out := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !slices.Contains(kinds, filepath.Ext(name)) {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if filepath.Ext(name) == ".info" { // proxies say more than the version, and not all the same
			data, err = json.Marshal(map[string]string{"Version": strings.TrimSuffix(filepath.Base(name), ".info")})
			if err != nil {
				return err
			}
		}
		inside, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.ToSlash(inside), Mode: 0o644, Size: int64(len(data)), ModTime: build.Epoch}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err = out.Write(data)
		return err
	})
	return errors.Join(err, out.Close())
}

// maxUnpacked is far above what the image's programs need (270 MB).
const maxUnpacked = 2 << 30

// Unpack puts what Pack wrote into a folder, and refuses anything else. It verifies no sum: the go command does, with go.sum.
func Unpack(r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	in := tar.NewReader(io.LimitReader(r, maxUnpacked))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpacking modules: %w", err)
		}
		if h.Typeflag != tar.TypeReg || !slices.Contains(kinds, path.Ext(h.Name)) {
			return fmt.Errorf("cannot unpack %q: it is no module file", h.Name)
		}
		if err := unpackFile(root, h.Name, in); err != nil {
			return fmt.Errorf("unpacking %s: %w", h.Name, err)
		}
	}
}

func unpackFile(root *os.Root, name string, in io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
