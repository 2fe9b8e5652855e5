package provenance_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/profiles"
	"github.com/talos-factory/talos-factory/signing/provenance"
	"github.com/talos-factory/talos-factory/signing/verify"
)

var checkout = filepath.Join("..", "..")

func inputs(t *testing.T) ([]verify.Resource, *factory.Release) {
	t.Helper()
	release, err := factory.NewRelease(checkout, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	all, err := provenance.Inputs(release.Lock(), checkout, release.Steps()...)
	if err != nil {
		t.Fatal(err)
	}
	return all, release
}

// TestInputs: every blob that a step of the release may fetch is an input with its digest, and so are modules and sources.
func TestInputs(t *testing.T) {
	all, release := inputs(t)
	have := map[string]verify.Resource{}
	sum := regexp.MustCompile(`^[0-9a-f]{64}$`)
	for _, r := range all {
		have[r.Digest["sha256"]] = r
		if r.Name == "" || !sum.MatchString(r.Digest["sha256"]) {
			t.Errorf("an input is not pinned: %+v", r)
		}
	}
	fetched := 0
	err := build.Walk(release.Steps(), func(s *build.Step) error {
		for _, m := range s.Mounts {
			for _, f := range m.Tree.Fetches {
				fetched++
				if r := have[f.Blob.Digest.String()]; !strings.HasPrefix(r.URI, "pkg:") {
					t.Errorf("%s, which %s is made from, is no input, or has no package URL: %+v", f.Name, s.Name, r)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if fetched < 100 {
		t.Errorf("only %d fetches were looked for", fetched)
	}
	for _, want := range []string{"go v0.0.1-go1.26.8.linux-amd64", "modules of machined", "modules of runc", "sources of machined amd64 (sha256sum of its files)", "sources of init amd64 (sha256sum of its files)"} {
		if !slices.ContainsFunc(all, func(r verify.Resource) bool { return r.Name == want }) {
			t.Errorf("there is no input %q", want)
		}
	}
	again, _ := inputs(t)
	if diff := cmp.Diff(all, again); diff != "" {
		t.Errorf("the same checkout has other inputs the second time:\n%s", diff)
	}
}

func TestStatement(t *testing.T) {
	profile, err := profiles.Load("metal")
	if err != nil {
		t.Fatal(err)
	}
	profile.Customization.EmbeddedConfig = "token: secret"
	b := provenance.Build{Profile: profile, Version: "v0.1.0", BuildID: "abc", Factory: "v0.2.0", Inputs: provenance.Extensions([]factory.UsedExtension{
		{Name: "tools", Version: "v1", Source: "registry.example/tools:v1", Digest: "sha256:" + strings.Repeat("ab", 32)},
	})}
	s, err := b.Statement([]verify.Resource{{Name: "disk.raw", Digest: verify.SHA256([32]byte{1})}}, []verify.Resource{{Name: "disk.raw.spdx.json", Digest: verify.SHA256([32]byte{2})}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	read, err := verify.ParseStatement(text)
	if err != nil {
		t.Fatal(err)
	}
	if !read.About([32]byte{1}) || read.About([32]byte{2}) {
		t.Error("it is not about the file, or about more")
	}
	byproducts, err := read.Byproducts()
	if err != nil || len(byproducts) != 1 || byproducts[0].Name != "disk.raw.spdx.json" {
		t.Errorf("got byproducts %v, %v", byproducts, err)
	}
	for _, want := range []string{"buildDefinition", provenance.BuildType, provenance.BuilderID, "extension tools v1", strings.Repeat("ab", 32), "embeddedConfigDigest", "name: metal"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the statement has no %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "secret") {
		t.Error("the statement tells the embedded machine configuration")
	}
}
