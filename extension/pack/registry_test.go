package pack

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/talos-factory/talos-factory/build"
)

// site is a registry whose answers a test may spoil.
type site struct {
	host string
	mu   sync.Mutex
	log  []string
	// spoil answers a request itself if it returns true; n counts requests of the path, from 1.
	spoil func(w http.ResponseWriter, r *http.Request, n int) bool
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	counts := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		counts[r.URL.Path]++
		n := counts[r.URL.Path]
		s.log = append(s.log, r.Method+" "+r.URL.Path)
		spoil := s.spoil
		s.mu.Unlock()
		if spoil != nil && spoil(w, r, n) {
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

func (s *site) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

func (s *site) ref(t testing.TB, text string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(s.host + "/" + text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func (s *site) push(t testing.TB, ref string, img v1.Image) string {
	t.Helper()
	if err := remote.Write(s.ref(t, ref), img); err != nil {
		t.Fatal(err)
	}
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// events records progress.
type events struct{ list []build.Event }

func (e *events) Event(ev build.Event) { e.list = append(e.list, ev) }

func TestPull(t *testing.T) {
	s := newSite(t)
	digest := s.push(t, "ext/hello:v1", newImage(t, "amd64", hello(good)))
	opts := options(t)
	seen := &events{}
	opts.Progress = seen
	first, err := Load(context.Background(), Source{Image: s.host + "/ext/hello:v1"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if first.Digest != digest {
		t.Errorf("loaded %s, want %s", first.Digest, digest)
	}
	if n := len(seen.list); n < 3 || seen.list[0].State != build.Started || seen.list[n-1].State != build.Done || seen.list[n-1].Current == 0 || seen.list[n-1].Current != seen.list[n-1].Total {
		t.Errorf("progress was %+v", seen.list)
	}

	// By digest it needs no registry any more; by tag it asks what the tag is now, and gets nothing else.
	before := s.requests()
	again, err := Load(context.Background(), Source{Image: s.host + "/ext/hello@" + digest}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if again.Tree != first.Tree || s.requests() != before {
		t.Errorf("tree %v, want %v; %d requests, want none", again.Tree, first.Tree, s.requests()-before)
	}
	moved := s.push(t, "ext/hello:v1", newImage(t, "amd64", hello(good), []file{{name: "rootfs/usr/local/more", text: "x"}}))
	third, err := Load(context.Background(), Source{Image: s.host + "/ext/hello:v1"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if third.Digest != moved || third.Tree == first.Tree {
		t.Errorf("the tag moved to %s, but %s was loaded", moved, third.Digest)
	}
}

func TestPullChoosesPlatform(t *testing.T) {
	s := newSite(t)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: newImage(t, "arm64", hello(file{name: "rootfs/usr/local/arm", text: "x"})), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: newImage(t, "amd64", hello(good)), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: newImage(t, "", []file{{name: "in-toto.json"}}), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}},
	)
	if err := remote.WriteIndex(s.ref(t, "ext/many:v1"), index); err != nil {
		t.Fatal(err)
	}
	opts := options(t)
	ext, err := Load(context.Background(), Source{Image: s.host + "/ext/many:v1"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if got := listing(t, opts.Store, ext.Tree); !strings.Contains(got, "usr/local/good") {
		t.Errorf("loaded the wrong image:\n%s", got)
	}
	opts.Arch = "riscv64"
	_, err = Load(context.Background(), Source{Image: s.host + "/ext/many:v1"}, opts)
	if want := "it has no image for linux/riscv64 (there is: linux/arm64, linux/amd64)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// drop sends half of what the registry has and cuts the connection.
func drop(w http.ResponseWriter) bool {
	w.Header().Set("Content-Length", "100000")
	w.WriteHeader(http.StatusOK)
	if f, ok := w.(http.Flusher); ok {
		_, _ = w.Write(make([]byte, 100))
		f.Flush()
	}
	panic(http.ErrAbortHandler)
}

func answer(status int) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.URL.Path == "/v2/" {
			return false
		}
		http.Error(w, "<html>\n<h1>no</h1>\n</html>", status)
		return true
	}
}

func onBlobs(spoil func(w http.ResponseWriter, n int) bool) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, r *http.Request, n int) bool {
		return strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet && spoil(w, n)
	}
}

func TestPullFails(t *testing.T) {
	for _, test := range []struct {
		summary string
		spoil   func(http.ResponseWriter, *http.Request, int) bool
		want    string
	}{
		{"401", answer(http.StatusUnauthorized), "the registry wants other credentials: 401 Unauthorized"},
		{"403", answer(http.StatusForbidden), "the registry wants other credentials: 403 Forbidden"},
		{"404", answer(http.StatusNotFound), "the registry has no such image: 404 Not Found"},
		{"500", answer(http.StatusInternalServerError), "the registry has failed: 500 Internal Server Error (tried 4 times)"},
		{"503 at once", func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			http.Error(w, "later", http.StatusServiceUnavailable)
			return true
		}, "the registry has failed: 503 Service Unavailable (tried 4 times)"},
		{"dropped half way", onBlobs(func(w http.ResponseWriter, _ int) bool { return drop(w) }), "the connection broke in the middle of sha256:"},
		{"other bytes", onBlobs(func(w http.ResponseWriter, _ int) bool {
			_, err := w.Write([]byte("not what was asked for"))
			return err == nil
		}), "(tried 4 times)"},
	} {
		s := newSite(t)
		s.push(t, "ext/hello:v1", newImage(t, "amd64", hello(good)))
		s.mu.Lock()
		s.spoil = test.spoil
		s.mu.Unlock()
		opts := options(t)
		_, err := Load(context.Background(), Source{Image: s.host + "/ext/hello:v1"}, opts)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that says %q", test.summary, err, test.want)
			continue
		}
		if want := "cannot pull " + s.host + "/ext/hello:v1: "; !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: want one line that begins with %q: %v", test.summary, want, err)
		}
		t.Logf("%s: %v", test.summary, err)
	}
}

func TestPullRetries(t *testing.T) {
	s := newSite(t)
	s.push(t, "ext/hello:v1", newImage(t, "amd64", hello(good)))
	s.mu.Lock()
	s.spoil = func(w http.ResponseWriter, r *http.Request, n int) bool {
		switch {
		case r.URL.Path == "/v2/" || n > 2 || r.Method != http.MethodGet:
			return false
		case n == 1:
			http.Error(w, "a moment", http.StatusBadGateway)
			return true
		}
		return drop(w)
	}
	s.mu.Unlock()
	if _, err := Load(context.Background(), Source{Image: s.host + "/ext/hello:v1"}, options(t)); err != nil {
		t.Error(err)
	}
}

type keychain struct{ user, password string }

func (k keychain) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: k.user, Password: k.password}, nil
}

func TestPullWithCredentials(t *testing.T) {
	s := newSite(t)
	s.push(t, "ext/hello:v1", newImage(t, "amd64", hello(good)))
	s.mu.Lock()
	s.spoil = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if user, password, _ := r.BasicAuth(); user == "me" && password == "secret" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="here"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return true
	}
	s.mu.Unlock()
	opts := options(t)
	opts.Keychain = keychain{"me", "secret"}
	if _, err := Load(context.Background(), Source{Image: s.host + "/ext/hello:v1"}, opts); err != nil {
		t.Error(err)
	}
	opts = options(t)
	opts.Keychain = keychain{"me", "wrong"}
	_, err := Load(context.Background(), Source{Image: s.host + "/ext/hello:v1"}, opts)
	if err == nil || !strings.Contains(err.Error(), "401 Unauthorized") || strings.Contains(err.Error(), "wrong") {
		t.Errorf("error %v, want one about 401, without the password", err)
	}
}

func TestPullStops(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	s.spoil = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		cancel()
		http.Error(w, "", http.StatusInternalServerError)
		return true
	}
	s.mu.Unlock()
	if _, err := Load(ctx, Source{Image: s.host + "/ext/hello:v1"}, options(t)); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func ExampleParseSource() {
	src, err := ParseSource("ghcr.io/siderolabs/gvisor:20250505.0")
	fmt.Println(src, err)
	// Output: ghcr.io/siderolabs/gvisor:20250505.0 <nil>
}
