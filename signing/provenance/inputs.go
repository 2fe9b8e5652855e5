package provenance

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/pkgs"
	"github.com/talos-factory/talos-factory/signing/purl"
	"github.com/talos-factory/talos-factory/signing/verify"
)

// Inputs lists everything that the steps, and the steps they need, are made from: packages and toolchains of the lock, vendored
// modules by the digest of their go.mod, go.sum and imports, and each command's sources of ours as one list of files.
func Inputs(lock *pkgs.Lock, checkout string, steps ...*build.Step) ([]verify.Resource, error) {
	c := collector{lock: index(lock), checkout: checkout, found: map[string]verify.Resource{}}
	if err := build.Walk(steps, c.step); err != nil {
		return nil, fmt.Errorf("listing inputs: %w", err)
	}
	return c.sorted(), nil
}

// Parts lists what a release that somebody else built brings, and Extensions what was added to the image.
func Parts(d factory.Description) []verify.Resource {
	var all []verify.Resource
	for _, name := range slices.Sorted(maps.Keys(d.Parts)) {
		all = append(all, verify.Resource{Name: "release part " + name, Digest: verify.SHA256(d.Parts[name].Digest)})
	}
	return all
}

// Extensions lists system extensions.
func Extensions(used []factory.UsedExtension) []verify.Resource {
	var all []verify.Resource
	for _, e := range used {
		r := verify.Resource{Name: "extension " + e.Name + " " + e.Version}
		if algorithm, sum, ok := strings.Cut(e.Digest, ":"); ok {
			r.Digest = map[string]string{algorithm: sum}
		} else {
			r.Digest = map[string]string{"sha256": e.Digest}
		}
		all = append(all, r)
	}
	return all
}

type collector struct {
	lock     map[build.Digest]string // package URLs
	checkout string
	found    map[string]verify.Resource
}

// index gives the package URL of every locked blob.
func index(lock *pkgs.Lock) map[build.Digest]string {
	urls := map[build.Digest]string{}
	for _, all := range lock.Packages {
		for _, p := range all {
			urls[p.SHA256] = purl.Debian(p)
		}
	}
	for _, t := range lock.Go {
		urls[t.SHA256] = purl.Go(t.Module, t.Version)
	}
	return urls
}

func (c *collector) add(name string, digest build.Digest) {
	c.found[name+" "+digest.String()] = verify.Resource{Name: name, URI: c.lock[digest], Digest: verify.SHA256(digest)}
}

func (c *collector) step(s *build.Step) error {
	for _, m := range s.Mounts {
		for _, f := range m.Tree.Fetches {
			c.add(f.Name, f.Blob.Digest)
		}
		if len(m.Tree.Fetches) == 0 { // what no blob of the lock makes, its own digest pins
			c.add(m.Tree.Name, m.Tree.ID())
		}
	}
	var sources []string
	for _, input := range s.Inputs {
		switch {
		case input.Fetch != nil:
			c.add(input.Fetch.Name, input.Fetch.Blob.Digest)
		case input.HostFile != "":
			line, err := c.source(input.HostFile)
			if err != nil {
				return err
			}
			sources = append(sources, line)
		}
	}
	if len(sources) > 0 {
		slices.Sort(sources)
		c.add("sources of "+s.Name+" (sha256sum of its files)", build.Sum([]byte(strings.Join(sources, ""))))
	}
	return nil
}

// source is a line as sha256sum writes it, so that whoever has the checkout can make the same list.
func (c *collector) source(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	name, err := filepath.Rel(c.checkout, file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]) + "  " + filepath.ToSlash(name) + "\n", nil
}

func (c *collector) sorted() []verify.Resource {
	var all []verify.Resource
	for _, key := range slices.Sorted(maps.Keys(c.found)) {
		all = append(all, c.found[key])
	}
	return all
}
