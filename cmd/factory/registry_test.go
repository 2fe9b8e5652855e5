package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// badRegistry answers by the first part of a repository's name: denied, broken, dropped, and 404 for the rest.
func badRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		part, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
		switch part {
		case "":
		case "denied":
			w.WriteHeader(http.StatusUnauthorized)
		case "broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "dropped":
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "{")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// writeExtensions leaves tarballs of images that are extensions, more or less.
func writeExtensions(dir string) error {
	manifest := func(constraint string) string {
		return "version: v1alpha1\nmetadata:\n  name: hello\n  version: v1\n  author: test\n  description: says hello\n  compatibility:\n    talos:\n      version: '" + constraint + "'\n"
	}
	for name, files := range map[string][][2]string{
		"none.tar":    {{"bin/sh", "#!"}},
		"old.tar":     {{"manifest.yaml", manifest("< v1.0.0")}, {"rootfs/usr/local/hello", "hello"}},
		"escapes.tar": {{"manifest.yaml", manifest(">= v1.0.0")}, {"rootfs/../../etc/passwd", "root::0:0"}},
		"shell.tar":   {{"manifest.yaml", manifest(">= v1.0.0")}, {"rootfs/usr/bin/sh", "#!"}},
		"module.tar":  {{"manifest.yaml", manifest(">= v1.0.0")}, {"rootfs/usr/lib/modules/6.12/x.ko", "x"}},
		"field.tar":   {{"manifest.yaml", strings.Replace(manifest(">= v1.0.0"), "author:", "autor:", 1)}, {"rootfs/usr/local/hello", "hello"}},
	} {
		if err := writeImage(filepath.Join(dir, name), files); err != nil {
			return err
		}
	}
	return nil
}

func writeImage(file string, files [][2]string) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}); err != nil {
			return err
		}
		if _, err := io.WriteString(w, f[1]); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", "amd64", v1.Time{}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	tag, err := name.NewTag("extension:v1")
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, tag, img)
}
