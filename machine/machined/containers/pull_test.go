//go:build linux

package containers

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/talos-factory/talos-factory/config"
)

// TestPullFromMirror runs an image that comes from another place than its name says.
func TestPullFromMirror(t *testing.T) {
	c := start(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()

	content := archive(t)
	img := must(tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, nil))
	pushed := must(name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/hello:v1"))
	if err := remote.Write(pushed, img); err != nil {
		t.Fatal(err)
	}

	c.SetRegistries(config.Registries{Mirrors: map[string]config.Mirror{"images.invalid": {Endpoints: []string{server.URL}, SkipFallback: true}}})

	byDigest := "images.invalid/hello:v1@" + must(img.Digest()).String()
	for _, ref := range []string{"images.invalid/hello:v1", byDigest} {
		got, err := c.PullToRun(t.Context(), System, ref)
		if err != nil || got != ref {
			t.Fatalf("got %s, %v; want %s", got, err, ref)
		}
	}

	var out bytes.Buffer
	code, err := c.Run(t.Context(), Job{Namespace: System, Image: byDigest, Privileged: true, HostDev: true, Stdout: &out, Stderr: &out})
	if err != nil || code != 7 || !strings.HasPrefix(out.String(), "hello") {
		t.Errorf("run: got %d, %v, %q", code, err, out.String())
	}

	wrong := "images.invalid/hello@sha256:" + strings.Repeat("0", 64)
	if _, err := c.PullToRun(t.Context(), System, wrong); err == nil {
		t.Error("pulled an image of another digest")
	}

	if _, err := c.PullToRun(t.Context(), System, "images.invalid/nothing:v1"); !errdefs.IsNotFound(err) {
		t.Errorf("an image that is not there: got %v", err)
	}

	server.Close()
	begun := time.Now()
	if _, err := c.PullToRun(t.Context(), System, "images.invalid/other:v1"); err == nil || time.Since(begun) > time.Minute {
		t.Errorf("without a registry: %v after %v", err, time.Since(begun))
	}
}
