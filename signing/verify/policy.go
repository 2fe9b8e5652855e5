package verify

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/talos-factory/talos-factory/config/strict"
)

// ErrNoRule is returned, wrapped, for an image that no rule of a policy matches.
var ErrNoRule = errors.New("no rule matches")

// ErrDenied is returned, wrapped, for an image that a rule denies.
var ErrDenied = errors.New("a rule denies it")

// policySchema is the version of policy files that this code reads.
const policySchema = 1

// Policy says whose signature an image must have. The first rule that matches decides; no match means refuse.
type Policy struct {
	Schema int    `yaml:"schema"`
	Rules  []Rule `yaml:"rules"`
}

// Rule says one of three things of the images that it matches: the key that must have signed them, the identity that must have, or
// that they are denied.
type Rule struct {
	// Image is a pattern for a reference without tag and digest. * stands for a part of a name without a slash (path.Match), and
	// /** at the end for everything below.
	Image   string    `yaml:"image"`
	Key     string    `yaml:"key"` // a public key in PEM
	Keyless *Identity `yaml:"keyless"`
	Deny    bool      `yaml:"deny"`
}

// Identity is whom a short-lived certificate was given to.
type Identity struct {
	Issuer  string `yaml:"issuer"`  // URL of the OpenID Connect issuer
	Subject string `yaml:"subject"` // an address or URL
}

// ParsePolicy reads a policy file.
func ParsePolicy(text []byte) (*Policy, error) {
	var p Policy
	if err := strict.Decode(text, &p); err != nil {
		return nil, fmt.Errorf("reading verification policy: %w", err)
	}
	if p.Schema != policySchema {
		return nil, fmt.Errorf("cannot read verification policy of schema %d: this program knows %d", p.Schema, policySchema)
	}
	for i, rule := range p.Rules {
		if err := rule.check(); err != nil {
			return nil, fmt.Errorf("reading verification policy: rule %d: %w", i+1, err)
		}
	}
	return &p, nil
}

func (r Rule) check() error {
	if _, err := path.Match(r.Image, ""); err != nil || r.Image == "" {
		return fmt.Errorf("cannot use image pattern %q", r.Image)
	}
	said := 0
	for _, is := range []bool{r.Key != "", r.Keyless != nil, r.Deny} {
		if is {
			said++
		}
	}
	if said != 1 {
		return fmt.Errorf("cannot use the rule for %s: want one of key, keyless and deny", r.Image)
	}
	if r.Keyless != nil && (r.Keyless.Issuer == "" || r.Keyless.Subject == "") {
		return fmt.Errorf("cannot use the rule for %s: keyless wants an issuer and a subject", r.Image)
	}
	if r.Key != "" {
		_, err := ParseKey([]byte(r.Key))
		return err
	}
	return nil
}

// Match returns the rule for an image, whose reference may have a tag and a digest. The error is ErrNoRule or ErrDenied if it must be
// refused.
func (p *Policy) Match(ref string) (Rule, error) {
	name := repository(ref)
	for _, rule := range p.Rules {
		if !rule.matches(name) {
			continue
		}
		if rule.Deny {
			return rule, fmt.Errorf("cannot trust image %s: %w (%s)", ref, ErrDenied, rule.Image)
		}
		return rule, nil
	}
	return Rule{}, fmt.Errorf("cannot trust image %s: %w", ref, ErrNoRule)
}

// repository is a reference without its digest and its tag, which follows a colon behind the last slash.
func repository(ref string) string {
	name, _, _ := strings.Cut(ref, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name
}

func (r Rule) matches(name string) bool {
	pattern, below := strings.CutSuffix(r.Image, "/**")
	if r.Image == "**" {
		return true
	}
	if below {
		depth := strings.Count(pattern, "/") + 1
		parts := strings.Split(name, "/")
		if len(parts) <= depth {
			return false
		}
		name = strings.Join(parts[:depth], "/")
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil // patterns were checked when they were read
}
