package extension

import (
	"errors"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v4"

	"github.com/talos-factory/talos-factory/config/strict"
)

// List is extensions.yaml: the extensions an image of the OS was given.
type List struct {
	Version string  `yaml:"version"`
	Layers  []Layer `yaml:"layers"` // in stacking order: a later one hides files of an earlier one
}

// Layer is one extension of a list.
type Layer struct {
	Image    string   `yaml:"image"`  // name of its squashfs file, "00-hello.sqsh"
	SHA256   string   `yaml:"sha256"` // of that file
	Size     int64    `yaml:"size"`   // of that file, in bytes
	Metadata Metadata `yaml:"metadata"`
}

// ListPath is where a running machine has its extensions.yaml. The one that lies beside the squashfs files in the initramfs is
// hidden once the root is another.
const ListPath = "/usr/local/etc/talos/extensions.yaml"

// MaxLayers is as many extensions as an image may have: file names number them with two digits.
const MaxLayers = 100

// ImageName is the file name of the squashfs of the extension that is stacked as number n, from 0. Files sort by it in stacking
// order, which is all that /init goes by.
func ImageName(n int, name string) string { return fmt.Sprintf("%02d-%s.sqsh", n, name) }

// ParseList reads an extensions.yaml and validates it.
func ParseList(data []byte) (List, error) {
	var l List
	if err := strict.Decode(data, &l); err != nil {
		return List{}, err
	}
	if err := l.Validate(); err != nil {
		return List{}, err
	}
	return l, nil
}

var sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Validate checks what the schema alone cannot say. It reports every fault, each with its field.
func (l List) Validate() error {
	if l.Version != ManifestVersion {
		return fmt.Errorf("version: want %s, is %q", ManifestVersion, l.Version)
	}
	if len(l.Layers) > MaxLayers {
		return fmt.Errorf("cannot stack %d extensions: the limit is %d", len(l.Layers), MaxLayers)
	}
	var faults []error
	names := map[string]bool{}
	for i, layer := range l.Layers {
		field := fmt.Sprintf("layers[%d]", i)
		if err := layer.Metadata.validate(field + ".metadata"); err != nil {
			faults = append(faults, err)
		} else if want := ImageName(i, layer.Metadata.Name); layer.Image != want {
			faults = append(faults, fmt.Errorf("%s.image: want %s, is %q", field, want, layer.Image))
		}
		if !sha256Pattern.MatchString(layer.SHA256) {
			faults = append(faults, fmt.Errorf("%s.sha256: want 64 hexadecimal digits", field))
		}
		if layer.Size <= 0 {
			faults = append(faults, fmt.Errorf("%s.size: want a positive number, is %d", field, layer.Size))
		}
		if names[layer.Metadata.Name] {
			faults = append(faults, fmt.Errorf("%s: cannot add extension %s twice", field, layer.Metadata.Name))
		}
		names[layer.Metadata.Name] = true
	}
	return errors.Join(faults...)
}

// Marshal validates the list and writes it as YAML.
func (l List) Marshal() ([]byte, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return yaml.Dump(l)
}
