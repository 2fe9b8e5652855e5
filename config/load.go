package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v4"
)

// maxSize is far more than any configuration, and less than would hurt a machine.
const maxSize = 1 << 20

// Load reads a machine configuration and validates it. Every fault that it finds has its
// own line in the error.
func Load(data []byte) (*Config, error) {
	c, err := parse(data)
	if err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

func parse(data []byte) (*Config, error) {
	documents, err := split(data)
	if err != nil {
		return nil, err
	}
	var config *Config
	var extra hostnameDocument
	for _, document := range documents {
		switch kind := document.kind(); {
		case kind == "HostnameConfig":
			err = document.decode(&extra)
		case kind != "":
			err = document.fault("cannot use a document of kind %s: not known here", kind)
		case config != nil:
			err = document.fault("cannot use two machine configurations in one file")
		default:
			config = &Config{}
			err = document.decode(config)
			config.warnings = unused(document.root)
		}
		if err != nil {
			return nil, err
		}
	}
	if config == nil {
		return nil, errors.New("no machine configuration: the file is empty")
	}
	if extra.Hostname != "" {
		config.Machine.Network.Hostname = extra.Hostname
	}
	return config, nil
}

// hostnameDocument is the form in which newer generators give the host name.
type hostnameDocument struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Auto       string `yaml:"auto"`
	Hostname   string `yaml:"hostname"`
}

// A document is one YAML document of the file.
type document struct{ root *yaml.Node }

func split(data []byte) ([]document, error) {
	if len(data) > maxSize {
		return nil, fmt.Errorf("cannot read a configuration of %d bytes: the limit is %d", len(data), maxSize)
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var documents []document
	for {
		var node yaml.Node
		err := loader.Load(&node)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, syntaxError(err)
		}
		root := &node
		if node.Kind == yaml.DocumentNode {
			if len(node.Content) == 0 {
				continue
			}
			root = node.Content[0]
		}
		if root.Tag == "!!null" || root.Kind == 0 {
			continue // "---" with nothing after it
		}
		documents = append(documents, document{root})
	}
}

func (d document) kind() string {
	for i := 0; i+1 < len(d.root.Content) && d.root.Kind == yaml.MappingNode; i += 2 {
		if d.root.Content[i].Value == "kind" {
			return d.root.Content[i+1].Value
		}
	}
	return ""
}

func (d document) fault(format string, args ...any) error {
	return fault(d.root, format, args...)
}

func (d document) decode(into any) error {
	if err := check(d.root, into); err != nil {
		return err
	}
	if err := d.root.Load(into); err != nil {
		return syntaxError(err)
	}
	return nil
}
