package image

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/talos-factory/talos-factory/format/extent"
)

// counted is a registry that counts the bytes of blobs it takes, and does with a request what spoil says first.
type counted struct {
	registry http.Handler
	spoil    func(http.ResponseWriter, *http.Request) bool

	mu    sync.Mutex
	taken int64
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.spoil != nil && c.spoil(w, r) {
		return
	}
	if strings.Contains(r.URL.Path, "/blobs/uploads/") && r.Body != nil {
		r.Body = &counter{r.Body, c}
	}
	c.registry.ServeHTTP(w, r)
}

type counter struct {
	io.ReadCloser
	of *counted
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.of.mu.Lock()
	c.of.taken += int64(n)
	c.of.mu.Unlock()
	return n, err
}

func serve(t *testing.T, c *counted) string {
	t.Helper()
	c.registry = registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(c)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestPush(t *testing.T) {
	m := extent.Memory{}
	img := newImage(t, m, newContent(t, m, "v1.2.3"))
	c := &counted{}
	host := serve(t, c)
	var done, total int64
	got, err := Push(t.Context(), host+"/installer:v1.2.3", img, PushOptions{Progress: func(d, all int64) { done, total = d, all }})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if want := host + "/installer@" + digest.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if done == 0 || done != total {
		t.Errorf("progress ended with %d of %d", done, total)
	}
	ref, err := name.ParseReference(got)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(pulled); err != nil {
		t.Error(err)
	}

	whole := c.taken
	c.taken = 0
	if _, err := Push(t.Context(), host+"/installer:again", img, PushOptions{}); err != nil || c.taken != 0 {
		t.Errorf("pushed again: %d bytes, %v; want none", c.taken, err)
	}
	other := newImage(t, m, newContent(t, m, "v1.2.3", "debug"))
	if _, err := Push(t.Context(), host+"/installer:other", other, PushOptions{}); err != nil {
		t.Fatal(err)
	}
	layers := other.core.layers
	if last := layers[len(layers)-1].packed.Size(); c.taken < last || c.taken > last+8<<10 {
		t.Errorf("another customization sent %d bytes of %d, want its last layer of %d", c.taken, whole, last)
	}
}

func TestPushFailures(t *testing.T) {
	m := extent.Memory{}
	img := newImage(t, m, newContent(t, m, "v1.2.3"))
	status := func(code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				w.WriteHeader(code)
				return true
			}
			return false
		}
	}
	drop := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch {
			return false
		}
		_, _ = io.CopyN(io.Discard, r.Body, 1000)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
		return true
	}
	for name, tt := range map[string]struct {
		spoil func(http.ResponseWriter, *http.Request) bool
		want  string
	}{
		"401":  {status(401), "the registry refuses access (401): log in"},
		"404":  {status(404), "the registry has no such"},
		"500":  {status(500), "the registry answers 500"},
		"drop": {drop, "the registry"},
	} {
		t.Run(name, func(t *testing.T) {
			host := serve(t, &counted{spoil: tt.spoil})
			_, err := Push(t.Context(), host+"/installer:v1", img, PushOptions{Backoff: remote.Backoff{Duration: time.Millisecond, Steps: 2}})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}

	if _, err := Push(t.Context(), "NOT A REF", img, PushOptions{}); err == nil || !strings.Contains(err.Error(), "hint: a reference is") {
		t.Errorf("got %v", err)
	}
	once := sync.Once{}
	host := serve(t, &counted{spoil: func(w http.ResponseWriter, r *http.Request) (spoiled bool) {
		if r.Method == http.MethodPatch {
			once.Do(func() { spoiled = drop(w, r) })
		}
		return spoiled
	}})
	if _, err := Push(t.Context(), host+"/installer:v1", img, PushOptions{Backoff: remote.Backoff{Duration: time.Millisecond, Steps: 3}}); err != nil {
		t.Errorf("a connection that was dropped once: %v", err)
	}
}
