// Package extension has the documents of system extensions: manifest.yaml, which an extension's image carries and whose
// form is the field's, and extensions.yaml, in which an image of the OS lists the extensions it was given.
//
// It is a leaf that host and machine share. It pulls, unpacks and mounts nothing: package extension/pack does the first two on
// the host, /init mounts, machined lists.
package extension

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/blang/semver/v4"

	"github.com/talos-factory/talos-factory/config/strict"
)

// ManifestVersion is the version of manifest.yaml and extensions.yaml that this code reads.
const ManifestVersion = "v1alpha1"

// Manifest is an extension's manifest.yaml.
type Manifest struct {
	Version  string   `yaml:"version"`
	Metadata Metadata `yaml:"metadata"`
}

// Metadata says what an extension is.
type Metadata struct {
	Name          string        `yaml:"name"`
	Version       string        `yaml:"version"`
	Author        string        `yaml:"author,omitempty"`
	Description   string        `yaml:"description,omitempty"`
	Compatibility Compatibility `yaml:"compatibility,omitempty"`
	ExtraInfo     string        `yaml:"extraInfo,omitempty"`
}

// Compatibility says which systems an extension is for.
type Compatibility struct {
	Talos Constraint `yaml:"talos,omitempty"`
}

// Constraint is a range of semantic versions, such as ">= v1.5.0 < v1.13.0"; an empty one is any version.
type Constraint struct {
	Version string `yaml:"version,omitempty"`
}

// ParseManifest reads a manifest.yaml and validates it.
func ParseManifest(data []byte) (Manifest, error) {
	var m Manifest
	if err := strict.Decode(data, &m); err != nil {
		return Manifest{}, err
	}
	if err := m.Validate(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// Validate checks what the schema alone cannot say. It reports every fault, each with its field.
func (m Manifest) Validate() error {
	if m.Version != ManifestVersion {
		return fmt.Errorf("version: want %s, is %q", ManifestVersion, m.Version)
	}
	return m.Metadata.validate("metadata")
}

// namePattern keeps names usable as a part of file names.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$`)

// Limits of texts that everybody who lists a machine's extensions gets.
const (
	maxLine = 256
	maxText = 64 << 10
)

func (m Metadata) validate(field string) error {
	var faults []error
	check := func(ok bool, name, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s.%s: %s", field, name, fmt.Sprintf(format, args...)))
		}
	}
	check(m.Name != "", "name", "is missing")
	check(m.Name == "" || namePattern.MatchString(m.Name), "name", "%.100q is no name: want up to 64 letters, digits, dots, dashes", m.Name)
	check(len(m.Version) <= maxLine, "version", "is longer than %d bytes", maxLine)
	check(len(m.Author) <= maxLine, "author", "is longer than %d bytes", maxLine)
	check(len(m.Description) <= maxText, "description", "is longer than %d bytes", maxText)
	check(len(m.ExtraInfo) <= maxText, "extraInfo", "is longer than %d bytes", maxText)
	_, err := parseRange(m.Compatibility.Talos.Version)
	check(err == nil, "compatibility.talos.version", "%v", err)
	return errors.Join(faults...)
}

// CheckCompatible refuses an extension that is not for the given version of the OS. As in the field a pre-release
// counts as the release it leads to: an extension for ">= v1.12.0" is good for v1.12.0-alpha.1.
func (m Metadata) CheckCompatible(version string) error {
	within, err := parseRange(m.Compatibility.Talos.Version)
	if err != nil {
		return fmt.Errorf("reading its compatibility range: %w", err)
	}
	v, err := semver.ParseTolerant(version)
	if err != nil {
		return fmt.Errorf("internal error: %q is no version: %w", version, err)
	}
	v.Pre, v.Build = nil, nil
	if !within(v) {
		return fmt.Errorf("cannot use extension %s with this version: it is for Talos %s, and this is compatible with %s", m.Name, m.Compatibility.Talos.Version, version)
	}
	return nil
}

// numberPrefix is the "v" of "v1.2.3".
var numberPrefix = regexp.MustCompile(`\bv([0-9])`)

// parseRange reads a range in the language of github.com/blang/semver, which extensions' manifests are written in.
func parseRange(text string) (semver.Range, error) {
	if text == "" {
		return func(semver.Version) bool { return true }, nil
	}
	if len(text) > maxLine {
		return nil, fmt.Errorf("is longer than %d bytes", maxLine)
	}
	within, err := semver.ParseRange(numberPrefix.ReplaceAllString(text, "$1"))
	if err != nil {
		return nil, fmt.Errorf("%q is no range of versions, such as \">= v1.0.0\": %w", text, err)
	}
	return within, nil
}
