package debian

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/pkgs/debian/debiantest"
)

func TestHostMirrors(t *testing.T) {
	apt := fstest.MapFS{
		"sources.list": {Data: []byte("deb http://one.example/debian bookworm main # x\n#deb http://no.example/debian x y\n" +
			"deb-src http://no.example/debian bookworm main\ndeb [arch=amd64 signed-by=/k] https://sec.example/ bookworm-security main\n")},
		"sources.list.d/a.sources": {Data: []byte("Types: deb deb-src\n# comment\nURIs: http://two.example/debian\n http://one.example/debian/\nSuites: bookworm bookworm-updates\n\n" +
			"Types: deb\nURIs: http://two.example/debian-security\nSuites: bookworm-security\n\nEnabled: no\nTypes: deb\nURIs: http://no.example/debian\nSuites: x\n")},
		"sources.list.d/b.list":       {Data: []byte("deb https://other.example/apt stable main\ndeb cdrom:[x]/ bookworm main\n")},
		"sources.list.d/c.list.saved": {Data: []byte("deb http://no.example/debian x main\n")},
	}
	got, err := HostMirrors(apt)
	if err != nil {
		t.Fatal(err)
	}
	want := Mirrors{
		Main:     {"http://one.example/debian", "http://two.example/debian"},
		Security: {"https://sec.example", "http://two.example/debian-security"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseMirrors(t *testing.T) {
	got, err := ParseMirrors([]string{"http://a.example/debian/", "http://b.example/mirror"})
	if err != nil {
		t.Fatal(err)
	}
	want := Mirrors{Main: {"http://a.example/debian", "http://b.example/mirror/debian"}, Security: {"http://b.example/mirror/debian-security"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := ParseMirrors([]string{"/srv/mirror"}); err == nil {
		t.Error("a path was accepted as a mirror")
	}
}

// TestKeyring: the committed keys are those of trixie and its security suite (Debian publishes
// the fingerprints), and nothing else.
func TestKeyring(t *testing.T) {
	keys, err := Keyring()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range keys {
		for name := range k.Identities {
			got = append(got, name)
		}
	}
	want := []string{
		"Debian Archive Automatic Signing Key (13/trixie) <ftpmaster@debian.org>",
		"Debian Security Archive Automatic Signing Key (13/trixie) <ftpmaster@debian.org>",
		"Debian Stable Release Key (13/trixie) <debian-release@lists.debian.org>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestInRelease(t *testing.T) {
	repo := debiantest.New(t)
	repo.AddDeb(t, "debian/trixie", "amd64", "a", "1")
	repo.Publish(t, "debian/trixie", time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC), "amd64")
	good := string(repo.Files["/debian/dists/trixie/InRelease"])
	keyring := openpgp.EntityList{repo.Key}
	stranger, err := openpgp.NewEntity("s", "", "s@example.invalid", nil)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		text string
		keys openpgp.EntityList
		ok   bool
	}{
		"good":                  {good, keyring, true},
		"another key":           {good, openpgp.EntityList{stranger}, false},
		"no key":                {good, nil, false},
		"one byte":              {strings.Replace(good, "Codename: trixie", "Codename: trixiE", 1), keyring, false},
		"text before":           {"Codename: sid\n" + good, keyring, false},
		"text after":            {good + "\nCodename: sid\n", keyring, false},
		"no signature":          {good[:strings.Index(good, "-----BEGIN PGP SIGNATURE")], keyring, false},
		"not signed in the end": {"Codename: trixie\n", keyring, false},
		"empty":                 {"", keyring, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := ParseInRelease([]byte(c.text), c.keys)
			if !c.ok {
				if !errors.Is(err, ErrSignature) {
					t.Errorf("got error %v, want ErrSignature", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Codename != "trixie" || len(r.Files) != 1 || !r.Date.Equal(time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)) {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// TestOpen: transient answers and broken connections are overcome, permanent ones are told apart.
func TestOpen(t *testing.T) {
	content := strings.Repeat("0123456789", 1000)
	var calls int
	flaky := func(w http.ResponseWriter, r *http.Request) {
		calls++
		switch {
		case r.URL.Path == "/debian/gone":
			http.NotFound(w, r)
		case r.URL.Path == "/debian/bad":
			http.Error(w, "no", http.StatusForbidden)
		case calls == 1:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		case calls == 2: // breaks off
			w.Header().Set("Content-Length", "10000")
			if _, err := io.WriteString(w, content[:3333]); err != nil {
				t.Error(err)
			}
		case calls == 3: // sends nothing more
			w.Header().Set("Content-Range", "bytes 3333-9999/10000")
			w.WriteHeader(http.StatusPartialContent)
			if _, err := io.WriteString(w, content[3333:5000]); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
		}
	}
	server := httptest.NewServer(http.HandlerFunc(flaky))
	defer server.Close()
	a := &Archive{Mirrors: Mirrors{Main: {server.URL + "/debian"}}, Pause: time.Millisecond, Stall: 200 * time.Millisecond}
	got, err := a.Read(t.Context(), Main, "flaky", 1<<20)
	if err != nil || string(got) != content {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if _, err := a.Open(t.Context(), Main, "gone"); !errors.Is(err, ErrGone) {
		t.Errorf("gone: got %v", err)
	}
	if _, err := a.Open(t.Context(), Main, "bad"); !errors.Is(err, ErrNetwork) || !strings.Contains(err.Error(), "403") {
		t.Errorf("forbidden: got %v", err)
	}
	if _, err := a.Open(t.Context(), Security, "x"); !errors.Is(err, ErrNetwork) {
		t.Errorf("no mirror: got %v", err)
	}
	server.Close()
	before := time.Now()
	if _, err := a.Open(t.Context(), Main, "x"); !errors.Is(err, ErrNetwork) || time.Since(before) > 5*time.Second {
		t.Errorf("refused: got %v", err)
	}
}
