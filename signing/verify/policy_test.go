package verify_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/signing/verify"
)

func policy(t *testing.T, text string) *verify.Policy {
	t.Helper()
	p, err := verify.ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPolicy(t *testing.T) {
	pem := "      " + strings.ReplaceAll(strings.TrimSpace(string(testdata(t, "one.pub"))), "\n", "\n      ")
	p := policy(t, `schema: 1
rules:
  - image: registry.example/talos/installer-bad
    deny: true
  - image: registry.example/talos/installer*
    key: |
`+pem+`
  - image: registry.example:5000/mirror/**
    keyless: {issuer: https://issuer.example, subject: release@example.com}
`)
	for ref, want := range map[string]string{
		"registry.example/talos/installer:v1":                 "registry.example/talos/installer*",
		"registry.example/talos/installer-metal@sha256:00":    "registry.example/talos/installer*",
		"registry.example/talos/installer-metal:v1@sha256:00": "registry.example/talos/installer*",
		"registry.example:5000/mirror/a/b":                    "registry.example:5000/mirror/**",
		"registry.example:5000/mirror/a:v1":                   "registry.example:5000/mirror/**",
		"registry.example/talos/installer-bad:v1":             "denied",
		"registry.example/talos/installer/more":               "none",
		"registry.example:5000/mirror":                        "none",
		"registry.example:5000/mirrors/a":                     "none",
		"elsewhere.example/registry.example/talos/installer":  "none",
		"installer": "none",
		"":          "none",
		"registry.example/talos/installer-bad@sha256:00:registry.example/talos": "denied",
	} {
		got := "none"
		rule, err := p.Match(ref)
		switch {
		case err == nil:
			got = rule.Image
		case errors.Is(err, verify.ErrDenied):
			got = "denied"
		case !errors.Is(err, verify.ErrNoRule):
			t.Errorf("%s: %v", ref, err)
		}
		if got != want {
			t.Errorf("%s: got rule %s, want %s", ref, got, want)
		}
	}
}

func TestEmptyPolicyRefuses(t *testing.T) {
	if _, err := policy(t, "schema: 1\nrules: []\n").Match("registry.example/a"); !errors.Is(err, verify.ErrNoRule) {
		t.Errorf("got %v, want ErrNoRule", err)
	}
}

func TestBadPolicies(t *testing.T) {
	for _, text := range []string{
		"", "schema: 2\nrules: []\n", "rules: []\n",
		"schema: 1\nrules: [{image: a}]\n",
		"schema: 1\nrules: [{deny: true}]\n",
		"schema: 1\nrules: [{image: '[', deny: true}]\n",
		"schema: 1\nrules: [{image: a, deny: true, key: x}]\n",
		"schema: 1\nrules: [{image: a, key: x}]\n",
		"schema: 1\nrules: [{image: a, keyless: {issuer: x}}]\n",
		"schema: 1\nrules: [{image: a, deny: true, allow: true}]\n",
	} {
		if p, err := verify.ParsePolicy([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, p)
		}
	}
}
