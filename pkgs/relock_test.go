package pkgs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/pkgs/debian"
	"github.com/talos-factory/talos-factory/pkgs/debian/debiantest"
)

var day = time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)

// smallArchive has a tool that needs a library, of which the security suite has a newer one.
func smallArchive(t *testing.T) *debiantest.Repository {
	t.Helper()
	repo := debiantest.New(t)
	repo.AddDeb(t, "debian/trixie", "amd64", "tool", "1.0", "Depends: lib (>= 1)")
	repo.AddDeb(t, "debian/trixie", "amd64", "lib", "1.0")
	repo.AddDeb(t, "debian/trixie", "amd64", "data", "3", "Depends: tool")
	repo.AddDeb(t, "debian-security/trixie-security", "amd64", "lib", "1.0+deb13u1", "Source: libsource (1.0+deb13u1)")
	repo.Publish(t, "debian/trixie", day, "amd64")
	repo.Publish(t, "debian-security/trixie-security", day.Add(time.Hour), "amd64")
	return repo
}

func smallRecipes() *Recipes {
	return &Recipes{
		Suites: []string{"debian/trixie", "debian-security/trixie-security"}, Architectures: []string{"amd64"},
		Toolsets: []Toolset{{Name: "tools", Packages: []string{"tool"}}, {Name: "files", Packages: []string{"data"}, Exact: true}},
	}
}

func relocker(repo *debiantest.Repository) *Relocker {
	return &Relocker{
		Fetcher: &Fetcher{Mirrors: []string{repo.URL}, Pause: time.Millisecond},
		Keyring: openpgp.EntityList{repo.Key}, Log: slog.New(slog.DiscardHandler),
		Toolchain: func(_ context.Context, module, version, arch string) (Toolchain, error) {
			return Toolchain{Architecture: arch, Module: module, Version: version}, nil
		},
	}
}

func relock(t *testing.T, repo *debiantest.Repository) *Lock {
	t.Helper()
	r, err := relocker(repo).Relock(t.Context(), smallRecipes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Lock
}

func TestRelock(t *testing.T) {
	repo := smallArchive(t)
	lock := relock(t, repo)
	var got []string
	for _, p := range lock.Packages["amd64"] {
		got = append(got, fmt.Sprintf("%s %s %s %s %s", p.Name, p.Version, p.Source, p.Suite, p.Path))
	}
	want := []string{
		"data 3 data debian/trixie pool/main/data/data_3_amd64.deb",
		"lib 1.0+deb13u1 libsource debian-security/trixie-security pool/main/lib/lib_1.0+deb13u1_amd64.deb",
		"tool 1.0 tool debian/trixie pool/main/tool/tool_1.0_amd64.deb",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	sets := map[string]map[string]Set{
		"tools": {"amd64": {Roots: []string{"tool"}, Packages: []string{"lib", "tool"}}},
		"files": {"amd64": {Roots: []string{"data"}, Packages: []string{"data"}}},
	}
	if diff := cmp.Diff(sets, lock.Sets); diff != "" {
		t.Error(diff)
	}
	text, err := lock.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseLock(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	again.Fetcher = lock.Fetcher
	if diff := cmp.Diff(lock, again, cmpopts.IgnoreUnexported(Lock{})); diff != "" {
		t.Error(diff)
	}
	var diff bytes.Buffer
	newer := *again
	newer.Packages = map[string][]Package{"amd64": append([]Package{}, again.Packages["amd64"][1:]...)}
	newer.Packages["amd64"][0].Version = "2"
	if _, err := WriteDiff(&diff, lock, &newer); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("amd64 - data 3\namd64 ~ lib 1.0+deb13u1 -> 2\n", diff.String()); diff != "" {
		t.Error(diff)
	}
}

// TestTampered: whatever is changed on the way is refused, and the error says what was expected.
func TestTampered(t *testing.T) {
	flip := func(data []byte) []byte {
		data = bytes.Clone(data)
		data[len(data)/2] ^= 1
		return data
	}
	cases := map[string]struct {
		tamper func(*debiantest.Repository) (expected string)
	}{
		"InRelease": {func(r *debiantest.Repository) string {
			p := "/debian/dists/trixie/InRelease"
			was := r.Files[p]
			r.Files[p] = bytes.Replace(was, []byte("Origin: Debian"), []byte("Origin: Debiam"), 1)
			return fmt.Sprintf("(the locked one of 2026-09-01 has sha256 %x)", sha256.Sum256(was))
		}},
		"Packages": {func(r *debiantest.Repository) (expected string) {
			for _, p := range r.Paths("/debian/dists/trixie/main") {
				expected = fmt.Sprintf("expected %x", sha256.Sum256(r.Files[p]))
			}
			for _, p := range r.Paths("/debian/dists/trixie/main") {
				r.Files[p] = flip(r.Files[p])
			}
			return expected
		}},
		"Packages, longer": {func(r *debiantest.Repository) string {
			for _, p := range r.Paths("/debian/dists/trixie/main") {
				r.Files[p] = append(r.Files[p], 0)
			}
			return "larger than"
		}},
		"older InRelease": {func(r *debiantest.Repository) string {
			was := r.Files["/debian/dists/trixie/InRelease"]
			r.Publish(t, "debian/trixie", day.Add(-time.Second), "amd64")
			return fmt.Sprintf("the locked one is newer, of 2026-09-01 00:00:00 +0000 UTC (sha256 %x)", sha256.Sum256(was))
		}},
		"another suite's InRelease": {func(r *debiantest.Repository) string {
			r.Files["/debian/dists/trixie/InRelease"] = r.Files["/debian-security/dists/trixie-security/InRelease"]
			return `it is for "trixie-security"`
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			repo := smallArchive(t)
			old := relock(t, repo)
			expected := c.tamper(repo)
			_, err := relocker(repo).Relock(t.Context(), smallRecipes(), old)
			if err == nil || !strings.Contains(err.Error(), expected) {
				t.Errorf("got %v\nwant %s", err, expected)
			}
		})
	}
}

func TestUnknownPackage(t *testing.T) {
	recipes := smallRecipes()
	recipes.Toolsets[0].Packages = []string{"nonesuch"}
	_, err := relocker(smallArchive(t)).Relock(t.Context(), recipes, nil)
	want := `resolving set tools: unknown package "nonesuch" for amd64`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// openStore has a store of its own for the test.
func openStore(t *testing.T) *build.Store {
	t.Helper()
	store, err := build.OpenStore(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func TestFetch(t *testing.T) {
	repo := smallArchive(t)
	lock := relock(t, repo)
	lock.Fetcher.Date = day
	p, err := lock.Package("tool", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	file := "/debian/" + p.Path
	good := repo.Files[file]
	store := openStore(t)

	repo.Files[file] = append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1)
	err = FetchInto(t.Context(), store, *lock.Fetcher.Fetch(p))
	if err == nil || !strings.Contains(err.Error(), p.SHA256.String()) || !strings.Contains(err.Error(), "deb tool 1.0") {
		t.Errorf("tampered .deb: got %v", err)
	}
	if store.Has(p.Blob()) {
		t.Error("a tampered .deb is in the store")
	}

	delete(repo.Files, file)
	err = FetchInto(t.Context(), store, *lock.Fetcher.Fetch(p))
	want := "fetching deb tool 1.0: it is gone from every mirror (sha256 " + p.SHA256.String() + "): lock is stale: run factory pkgs lock"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}

	lock.Fetcher.Snapshot = repo.URL + "/snapshot"
	repo.Files["/snapshot/debian/20260901T000000Z/"+p.Path] = good
	if err := FetchInto(t.Context(), store, *lock.Fetcher.Fetch(p)); err != nil {
		t.Errorf("from a snapshot service: %v", err)
	}

	lock.Fetcher = &Fetcher{APT: t.TempDir()}
	lib, err := lock.Package("lib", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	err = FetchInto(t.Context(), store, *lock.Fetcher.Fetch(lib))
	if !errors.Is(err, debian.ErrNetwork) || !strings.Contains(err.Error(), "cannot reach a mirror: no mirror of debian-security is configured") {
		t.Errorf("no mirror: got %v", err)
	}
}

// TestTree makes a tree twice, in two stores, and compares.
func TestTree(t *testing.T) {
	lock := relock(t, smallArchive(t))
	tree, err := lock.DebTree("tools", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for range 2 {
		store := openStore(t)
		dir := t.TempDir()
		for _, f := range tree.Fetches {
			if err := FetchInto(t.Context(), store, f); err != nil {
				t.Fatal(err)
			}
		}
		if err := tree.Make(t.Context(), dir, store.Open); err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, name := range []string{"lib", "tool"} {
			body, err := os.ReadFile(filepath.Join(dir, "usr/share", name))
			if err != nil {
				t.Fatal(err)
			}
			out += string(body) + "\n"
		}
		seen = append(seen, out)
	}
	if diff := cmp.Diff([]string{"lib 1.0+deb13u1\ntool 1.0\n", seen[0]}, []string{seen[0], seen[1]}); diff != "" {
		t.Error(diff)
	}
	if _, err := lock.DebTree("nonesuch", "amd64"); err == nil || !strings.Contains(err.Error(), ErrStale.Error()) {
		t.Errorf("unknown set: got %v", err)
	}
}
