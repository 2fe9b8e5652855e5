// Package talosconfig is the client's configuration: where clusters are and how to prove
// who one is. It reads and writes the file; it does not connect.
package talosconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/talos-factory/talos-factory/config/secret"
)

// Config is a whole file: several clusters, one of them chosen.
type Config struct {
	Context  string              `yaml:"context"`
	Contexts map[string]*Context `yaml:"contexts"`
}

// Context is one cluster and one way to be let in.
type Context struct {
	Endpoints []string   `yaml:"endpoints"`       // whom to connect to
	Nodes     []string   `yaml:"nodes,omitempty"` // about whom to ask, if not said otherwise
	CA        secret.PEM `yaml:"ca,omitempty"`
	Crt       secret.PEM `yaml:"crt,omitempty"`
	Key       secret.Key `yaml:"key,omitempty"`
}

// Parse reads a file's content.
func Parse(data []byte) (*Config, error) {
	c := &Config{}
	if err := yaml.Load(data, c, yaml.WithKnownFields()); err != nil {
		return nil, fmt.Errorf("not a talosconfig: %w", err)
	}
	for name, context := range c.Contexts {
		if context == nil {
			return nil, fmt.Errorf("not a talosconfig: context %q is empty", name)
		}
	}
	return c, nil
}

// Open reads a file. One that does not exist is an error that is fs.ErrNotExist.
func Open(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return c, nil
}

// DefaultPath is $TALOSCONFIG, or .talos/config in the home folder.
func DefaultPath() (string, error) {
	if path := os.Getenv("TALOSCONFIG"); path != "" {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".talos", "config"), nil
}

// Encode gives the file's content, keys included.
func (c *Config) Encode() ([]byte, error) { return yaml.Dump(c) }

// Choose returns the context of that name; "" is the one the file chooses.
func (c *Config) Choose(name string) (*Context, error) {
	if name == "" {
		name = c.Context
	}
	if context, ok := c.Contexts[name]; ok {
		return context, nil
	}
	if len(c.Contexts) == 0 {
		return nil, errors.New("the talosconfig has no contexts")
	}
	return nil, fmt.Errorf("no context %q in the talosconfig; it has %q", name, slices.Sorted(maps.Keys(c.Contexts)))
}

// Merge adds another file's contexts and chooses its choice. A name that is taken gets a
// number; renamed says which.
func (c *Config) Merge(other *Config) (renamed map[string]string) {
	if c.Contexts == nil {
		c.Contexts = map[string]*Context{}
	}
	renamed = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(other.Contexts)) {
		free := name
		for i := 1; c.Contexts[free] != nil; i++ {
			free = fmt.Sprintf("%s-%d", name, i)
		}
		if free != name {
			renamed[name] = free
		}
		c.Contexts[free] = other.Contexts[name]
		if name == other.Context {
			c.Context = free
		}
	}
	return renamed
}

// IsMissing says that there is no such file.
func IsMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
