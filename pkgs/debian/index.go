package debian

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"pault.ag/go/debian/control"
	"pault.ag/go/debian/dependency"
	"pault.ag/go/debian/version"
)

// Package is one stanza of a Packages index, as far as we use it.
type Package struct {
	Name, Architecture, Source, Priority, MultiArch string
	Version                                         version.Version
	Filename                                        string // below the archive root: "pool/main/..."
	Size                                            int64
	SHA256                                          string
	Suite                                           string // set by the caller

	Depends   []dependency.Relation // Pre-Depends, then Depends
	Provides  []dependency.Relation
	Conflicts []dependency.Relation // Conflicts and Breaks: neither can be satisfied by a set

	fields map[string]string
}

// stanzaFields are kept when a stanza is written again: what a resolver looks at, and what names the file.
var stanzaFields = []string{
	"Package", "Source", "Version", "Architecture", "Multi-Arch", "Essential", "Priority",
	"Pre-Depends", "Depends", "Provides", "Conflicts", "Breaks", "Replaces", "Filename", "Size", "SHA256",
}

// ParsePackages reads a Packages index of the given architecture.
func ParsePackages(in io.Reader) ([]*Package, error) {
	paragraphs, err := control.NewParagraphReader(in, nil)
	if err != nil {
		return nil, err
	}
	var all []*Package
	for {
		p, err := paragraphs.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		pkg, err := newPackage(p.Values)
		if err != nil {
			return nil, fmt.Errorf("reading package %q: %w", p.Values["Package"], err)
		}
		all = append(all, pkg)
	}
}

func newPackage(values map[string]string) (*Package, error) {
	p := &Package{
		Name: values["Package"], Architecture: values["Architecture"], Priority: values["Priority"],
		MultiArch: values["Multi-Arch"], Filename: values["Filename"], SHA256: values["SHA256"],
		fields: map[string]string{},
	}
	for _, f := range stanzaFields {
		if v := values[f]; v != "" {
			p.fields[f] = v
		}
	}
	if err := p.check(values); err != nil {
		return nil, err
	}
	// "Source: linux (6.12-1)": the version in brackets is there when it differs from the package's.
	p.Source, _, _ = strings.Cut(values["Source"], " ")
	if p.Source == "" {
		p.Source = p.Name
	}
	return p, nil
}

func (p *Package) check(values map[string]string) (err error) {
	if p.Name == "" || strings.ContainsAny(p.Name, "/ \t") {
		return errors.New("bad Package field")
	}
	if p.Version, err = version.Parse(values["Version"]); err != nil {
		return err
	}
	if p.Size, err = strconv.ParseInt(values["Size"], 10, 64); err != nil || p.Size <= 0 {
		return fmt.Errorf("bad Size %q", values["Size"])
	}
	if sum, err := hex.DecodeString(p.SHA256); err != nil || len(sum) != 32 {
		return fmt.Errorf("bad SHA256 %q", p.SHA256)
	}
	if p.Filename == "" || path.IsAbs(p.Filename) || path.Clean(p.Filename) != p.Filename || strings.HasPrefix(p.Filename, "../") {
		return fmt.Errorf("bad Filename %q", p.Filename)
	}
	return nil
}

// parseRelations fills the relation fields. It is done for the packages a resolver touches only:
// an index has 70,000 stanzas and a closure a hundred.
func (p *Package) parseRelations() error {
	if p.Depends != nil {
		return nil
	}
	p.Depends = []dependency.Relation{}
	for _, f := range []struct {
		name string
		into *[]dependency.Relation
	}{
		{"Pre-Depends", &p.Depends}, {"Depends", &p.Depends},
		{"Conflicts", &p.Conflicts}, {"Breaks", &p.Conflicts},
	} {
		rel, err := parseRelation(p.fields[f.name])
		if err != nil {
			return fmt.Errorf("reading %s of %s: %w", f.name, p.Name, err)
		}
		*f.into = append(*f.into, rel...)
	}
	return nil
}

func parseRelation(s string) ([]dependency.Relation, error) {
	if s == "" {
		return nil, nil
	}
	d, err := dependency.Parse(s)
	if err != nil {
		return nil, err
	}
	return d.Relations, nil
}

// WriteStanza writes what a resolver needs to see of the package.
func (p *Package) WriteStanza(w io.Writer) error {
	for _, f := range stanzaFields {
		v := p.fields[f]
		if v == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", f, strings.ReplaceAll(v, "\n", " ")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}
