// Package debiantest makes small Debian archives for tests: signed with a throw-away key, served by
// HTTP, of the shape real ones have. It is not a tool to publish packages with.
package debiantest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ulikunitz/xz"
)

// Repository is an archive in memory. Change Files to tamper with it.
type Repository struct {
	Key *openpgp.Entity
	URL string // base of the archives: a mirror as ParseMirrors takes it

	mu       sync.Mutex
	Files    map[string][]byte // by path, "/debian/dists/trixie/InRelease"
	stanzas  map[string]map[string]string
	requests []string
}

// New serves an empty repository until the test ends.
func New(t *testing.T) *Repository {
	t.Helper()
	key, err := openpgp.NewEntity("Throw-away", "", "nobody@example.invalid", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &Repository{Key: key, Files: map[string][]byte{}, stanzas: map[string]map[string]string{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

func (r *Repository) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	data, ok := r.Files[req.URL.Path]
	r.requests = append(r.requests, req.URL.Path)
	r.mu.Unlock()
	if !ok {
		http.NotFound(w, req)
		return
	}
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
}

// Requests lists the paths asked for so far.
func (r *Repository) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// AddDeb adds a package to a suite ("debian/trixie") and architecture and returns its path below the server's root. The
// fields are lines of its stanza, "Depends: b"; the package has one file, /usr/share/NAME.
func (r *Repository) AddDeb(t *testing.T, suite, arch, name, version string, fields ...string) string {
	t.Helper()
	deb := Deb(t, File{Name: "./usr/share/" + name, Body: name + " " + version})
	archive, _, _ := strings.Cut(suite, "/")
	file := fmt.Sprintf("pool/main/%s/%s_%s_%s.deb", name, name, version, arch)
	stanza := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: %s\nFilename: %s\nSize: %d\nSHA256: %x\n",
		name, version, arch, file, len(deb), sha256.Sum256(deb))
	for _, f := range fields {
		stanza += f + "\n"
	}
	if r.stanzas[suite] == nil {
		r.stanzas[suite] = map[string]string{}
	}
	r.stanzas[suite][arch] += stanza + "\n"
	full := "/" + archive + "/" + file
	r.Files[full] = deb
	return full
}

// Publish writes the indexes and signs the suite.
func (r *Repository) Publish(t *testing.T, suite string, date time.Time, archs ...string) {
	t.Helper()
	_, name, _ := strings.Cut(suite, "/")
	dists := "/" + strings.Replace(suite, "/", "/dists/", 1)
	release := fmt.Sprintf("Origin: Debian\nCodename: %s\nDate: %s\nSHA256:\n", name, date.UTC().Format(time.RFC1123))
	for _, arch := range archs {
		data := XZ(t, []byte(r.stanzas[suite][arch]))
		file := "main/binary-" + arch + "/Packages.xz"
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		release += fmt.Sprintf(" %s %d %s\n", sum, len(data), file)
		r.Files[dists+"/"+file] = data
		r.Files[dists+"/"+path.Dir(file)+"/by-hash/SHA256/"+sum] = data
	}
	var out bytes.Buffer
	w, err := clearsign.Encode(&out, r.Key.PrivateKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(release)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r.Files[dists+"/InRelease"] = out.Bytes()
}

// Paths lists the files whose path contains the text.
func (r *Repository) Paths(part string) []string {
	var all []string
	for _, p := range slices.Sorted(maps.Keys(r.Files)) {
		if strings.Contains(p, part) {
			all = append(all, p)
		}
	}
	return all
}

// XZ compresses.
func XZ(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := xz.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// File is a file of a package; its type is regular unless it says otherwise.
type File struct {
	Name, Body, Link string
	Type             byte
	Mode             int64
}

// Deb packs files as a .deb with a data.tar.gz.
func Deb(t *testing.T, files ...File) []byte {
	t.Helper()
	var data bytes.Buffer
	z := gzip.NewWriter(&data)
	tw := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Linkname: f.Link, Typeflag: f.Type, Mode: f.Mode, Size: int64(len(f.Body)), Format: tar.FormatGNU}
		if f.Type == 0 {
			h.Typeflag = tar.TypeReg
		}
		if f.Mode == 0 {
			h.Mode = 0o644
		}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(f.Body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return Ar("debian-binary", "2.0\n", "control.tar.gz", "", "data.tar.gz", data.String())
}

// Ar packs an ar archive from pairs of name and content.
func Ar(members ...string) []byte {
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for i := 0; i+1 < len(members); i += 2 {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n%s", members[i], 0, 0, 0, 0o100644, len(members[i+1]), members[i+1])
		if len(members[i+1])%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
