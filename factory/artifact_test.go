package factory

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/talos-factory/talos-factory/build"
)

// testRelease is a release of small parts, described.
func testRelease(t *testing.T, store *build.Store) Description {
	t.Helper()
	lock, err := os.ReadFile(filepath.Join("..", "pkgs", "lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	d := Description{Schema: 1, Version: "v1.2.3", BuildID: "abc", Arch: "amd64", Parts: map[string]build.Blob{}}
	for _, part := range append(requiredParts(), lockPart) {
		content := []byte("content of " + part)
		if part == lockPart {
			content = lock
		}
		if d.Parts[part], err = store.Put(bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// TestReleaseTravels by registry and by folder, into an empty store.
func TestReleaseTravels(t *testing.T) {
	ctx := context.Background()
	server := httptest.NewServer(registry.New())
	defer server.Close()
	from := testStore(t)
	d := testRelease(t, from)
	pinned, err := d.Push(ctx, from, strings.TrimPrefix(server.URL, "http://")+"/factory/release:v1.2.3", nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "layout")
	if err := d.Export(from, dir); err != nil {
		t.Fatal(err)
	}
	if err := d.Export(from, dir); err == nil {
		t.Error("a release was exported into a layout that was there")
	}
	for _, ref := range []string{pinned, dir} {
		store := testStore(t)
		release, err := OpenRelease(ctx, &build.Engine{Store: store}, ref, "amd64", nil)
		if err != nil {
			t.Fatal(err)
		}
		if release.Version != d.Version || release.BuildID != d.BuildID || len(release.Steps()) != 0 {
			t.Errorf("%s: release %s, build %s, %d steps", ref, release.Version, release.BuildID, len(release.Steps()))
		}
		for part, blob := range d.Parts {
			if !store.Has(blob) {
				t.Errorf("%s: part %s did not arrive", ref, part)
			}
		}
		again, err := release.Describe(ctx, &build.Engine{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, again); diff != "" {
			t.Errorf("%s: description of what arrived (-want +got):\n%s", ref, diff)
		}
	}
	if _, err := OpenRelease(ctx, &build.Engine{Store: testStore(t)}, pinned, "arm64", nil); err == nil {
		t.Error("a release for amd64 was used for arm64")
	}
}

// TestReleaseIsVerified: a part that is not what its digest says never gets into the store.
func TestReleaseIsVerified(t *testing.T) {
	from := testStore(t)
	d := testRelease(t, from)
	dir := filepath.Join(t.TempDir(), "layout")
	if err := d.Export(from, dir); err != nil {
		t.Fatal(err)
	}
	blob := filepath.Join(dir, "blobs", "sha256", d.Parts[vmlinuz].Digest.String())
	text, err := os.ReadFile(blob)
	if err != nil {
		t.Fatal(err)
	}
	text[0] ^= 1
	if err := os.WriteFile(blob, text, 0o600); err != nil {
		t.Fatal(err)
	}
	store := testStore(t)
	_, err = OpenRelease(context.Background(), &build.Engine{Store: store}, dir, "amd64", nil)
	if err == nil || !strings.Contains(err.Error(), "vmlinuz") || store.Has(d.Parts[vmlinuz]) {
		t.Errorf("error %v, want one that names the part, and nothing stored", err)
	}
}

func TestParseDescriptionRefuses(t *testing.T) {
	good := testRelease(t, testStore(t))
	for _, test := range []struct {
		change func(*Description)
		want   string
	}{
		{func(d *Description) { d.Schema = 2 }, "schema 2"},
		{func(d *Description) { delete(d.Parts, vmlinuz) }, "no part vmlinuz"},
		{func(d *Description) { delete(d.Parts, lockPart) }, "no part lock.json"},
		{func(d *Description) { d.Version = "../../x" }, `version "../../x"`},
		{func(d *Description) { d.BuildID = "" }, "build"},
	} {
		text, err := json.Marshal(good)
		if err != nil {
			t.Fatal(err)
		}
		var d Description
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		test.change(&d)
		text, err = json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseDescription(text); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want one with %s", err, test.want)
		}
	}
}

func FuzzParseDescription(f *testing.F) {
	f.Add([]byte(`{"schema":1,"version":"v1","buildID":"x","arch":"amd64","parts":{"vmlinuz":{"sha256":"00","size":1}}}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if d, err := parseDescription(text); err == nil && len(d.Parts) < len(requiredParts()) {
			t.Error("a release with missing parts was accepted")
		}
	})
}
