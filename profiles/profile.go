// Package profiles holds the declarative descriptions of the images the factory makes.
//
// It reads and checks them; it does not build anything.
package profiles

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"

	"gopkg.in/yaml.v3"
)

// Schema is the version of the profile document this package reads.
const Schema = 1

// ErrUnknown is returned, wrapped, by Load for a name that no built-in profile has.
var ErrUnknown = errors.New("unknown profile")

// Profile describes one image.
type Profile struct {
	Schema     int      `yaml:"schema"`
	Name       string   `yaml:"name"`
	Platform   string   `yaml:"platform"`
	KernelArgs []string `yaml:"kernelArgs"`
	Output     Output   `yaml:"output"`
}

// Output says what is written.
type Output struct {
	Kind   string `yaml:"kind"`   // image
	Format string `yaml:"format"` // raw
}

//go:embed *.yaml
var builtin embed.FS

// Names lists the built-in profiles, sorted.
func Names() []string {
	files, err := fs.Glob(builtin, "*.yaml")
	if err != nil {
		panic("internal error: " + err.Error()) // the pattern is a constant
	}
	for i := range files {
		files[i] = strings.TrimSuffix(files[i], ".yaml")
	}
	sort.Strings(files)
	return files
}

// Load returns the built-in profile called name. The error of an unknown name is ErrUnknown.
func Load(name string) (Profile, error) {
	text, err := builtin.ReadFile(name + ".yaml")
	if err != nil {
		return Profile{}, fmt.Errorf("%w %q (there is: %s)", ErrUnknown, name, strings.Join(Names(), ", "))
	}
	p, err := Parse(text)
	if err != nil {
		return Profile{}, fmt.Errorf("reading profile %q: %w", name, err)
	}
	return p, nil
}

// Parse reads one profile document. Unknown fields, another schema and values no code stands behind are errors.
func Parse(text []byte) (Profile, error) {
	var p Profile
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&p); err != nil {
		return Profile{}, err
	}
	switch {
	case p.Schema != Schema:
		return Profile{}, fmt.Errorf("cannot read profile schema %d: this factory reads schema %d", p.Schema, Schema)
	case p.Name == "" || p.Platform == "":
		return Profile{}, errors.New("cannot use a profile without name and platform")
	case p.Output.Kind != "image" || p.Output.Format != "raw":
		return Profile{}, fmt.Errorf("cannot make output kind %q, format %q: there is image, raw", p.Output.Kind, p.Output.Format)
	}
	return p, nil
}
