package attest_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/profiles"
	"github.com/talos-factory/talos-factory/signing/attest"
	"github.com/talos-factory/talos-factory/signing/provenance"
	"github.com/talos-factory/talos-factory/signing/verify"
)

// key reads a committed test key, which signs nothing but tests.
func key(t testing.TB, name string) *ecdsa.PrivateKey {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return private.(*ecdsa.PrivateKey)
}

func public(t testing.TB, signer crypto.Signer) *verify.Key {
	t.Helper()
	k, err := verify.NewKey(signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// publish writes a signed artifact and returns its path.
func publish(t *testing.T, signer crypto.Signer) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "metal-amd64.raw")
	image := bytes.Repeat([]byte("image "), 4096)
	digest := sha256.Sum256(image)
	put(t, path, image)
	put(t, path+verify.SumSuffix, fmt.Appendf(nil, "%x  %s\n", digest, filepath.Base(path)))
	profile, err := profiles.Load("metal")
	if err != nil {
		t.Fatal(err)
	}
	profile.Customization.EmbeddedConfig = "secret: yes"
	from := provenance.Build{Profile: profile, Version: "v0.1.0", BuildID: "abc", Factory: "v0.1.0", Inputs: []verify.Resource{
		{Name: "deb example 1", Digest: verify.SHA256(sha256.Sum256([]byte("deb")))},
	}}
	if err := attest.Artifact(signer, path, digest, []byte(`{"spdxVersion":"SPDX-2.3"}`), from); err != nil {
		t.Fatal(err)
	}
	if err := attest.Release(signer, filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	return path
}

func put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[name.Name()] = string(text)
	}
	return all
}

func TestArtifactVerifies(t *testing.T) {
	signer := key(t, "one.key")
	path := publish(t, signer)
	report, err := verify.File(context.Background(), path, public(t, signer))
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK || len(report.Checks) != 5 {
		t.Errorf("a signed artifact does not verify: %+v", report)
	}
	for name, text := range files(t, filepath.Dir(path)) {
		if strings.Contains(text, "secret: yes") {
			t.Errorf("%s tells the embedded machine configuration", name)
		}
	}
	other, err := verify.File(context.Background(), path, public(t, key(t, "two.key")))
	if err != nil {
		t.Fatal(err)
	}
	if other.OK {
		t.Error("another key verifies it")
	}
}

func TestSameBytesTwice(t *testing.T) {
	signer := key(t, "one.key")
	one, two := files(t, filepath.Dir(publish(t, signer))), files(t, filepath.Dir(publish(t, signer)))
	if diff := cmp.Diff(one, two); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	if len(one) != 7 {
		t.Errorf("got %d files, want 7", len(one))
	}
}

// TestTampering flips a byte in the middle of each file, and takes each away.
func TestTampering(t *testing.T) {
	signer := key(t, "one.key")
	for _, test := range []struct {
		suffix string
		want   []string // checks that must fail, joined
	}{
		{"", []string{"checksum", "signature", "provenance", "release"}},
		{verify.SumSuffix, []string{"checksum"}},
		{verify.BundleSuffix, []string{"signature"}},
		{verify.ProvenanceSuffix, []string{"provenance"}},
		{verify.SBOMSuffix, []string{"sbom"}},
		{"/../" + verify.SumsFile, []string{"release"}},
		{"/../" + verify.SumsFile + verify.BundleSuffix, []string{"release"}},
	} {
		for _, how := range []string{"flipped", "missing"} {
			if test.suffix == "" && how == "missing" || test.suffix == "/../"+verify.SumsFile && how == "missing" {
				continue // no file to verify; a folder without a list is no release
			}
			t.Run(how+" "+test.suffix, func(t *testing.T) {
				path := publish(t, signer)
				target := filepath.Clean(path + test.suffix)
				if how == "missing" {
					if err := os.Remove(target); err != nil {
						t.Fatal(err)
					}
				} else {
					text, err := os.ReadFile(target)
					if err != nil {
						t.Fatal(err)
					}
					text[len(text)/2] ^= 1
					put(t, target, text)
				}
				report, err := verify.File(context.Background(), path, public(t, signer))
				if err != nil {
					t.Fatal(err)
				}
				failed := map[string]bool{}
				for _, c := range report.Checks {
					failed[c.Name] = !c.OK
				}
				for _, name := range test.want {
					if !failed[name] {
						t.Errorf("check %s passes: %+v", name, report.Checks)
					}
				}
				if report.OK {
					t.Error("the report says it is good")
				}
			})
		}
	}
}
