//go:build linux

// Package persist keeps the two files of the STATE partition: the node's identity, made once, and the machine's configuration; and
// it knows the order in which a configuration is looked for.
//
// It does not mount STATE or judge a configuration.
package persist

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"regexp"

	"go.yaml.in/yaml/v4"
)

// Names of the files.
const (
	IdentityFile = "node-identity.yaml"
	ConfigFile   = "config.yaml"
	StagedFile   = "config-staged.yaml" // becomes the configuration at the next boot
)

// WriteFile writes a file so that it is either as it was or as it shall be: beside it, synced, renamed, and the directory synced.
func WriteFile(name string, data []byte, mode fs.FileMode) (err error) {
	dir := filepath.Dir(name)

	f, err := os.CreateTemp(dir, "."+filepath.Base(name)+"-")
	if err != nil {
		return err
	}

	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()

	if err = f.Chmod(mode); err != nil {
		return err
	}

	if _, err = f.Write(data); err != nil {
		return err
	}

	if err = f.Sync(); err != nil {
		return err
	}

	if err = f.Close(); err != nil {
		return err
	}

	if err = os.Rename(f.Name(), name); err != nil {
		return err
	}

	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()

	return d.Sync()
}

// Identity is what a node is known by, besides its names.
type Identity struct {
	NodeID string `yaml:"nodeId"`
}

// identityBytes is how much chance an identity holds; it is written in base 62.
const identityBytes = 32

var identityForm = regexp.MustCompile(`^[0-9A-Za-z]{20,44}$`)

// LoadIdentity reads the identity or, on the first boot, makes it. A damaged one is an error: a node does not quietly become
// another.
func LoadIdentity(dir string) (id Identity, created bool, err error) {
	name := filepath.Join(dir, IdentityFile)

	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		id, err = newIdentity()
		if err != nil {
			return id, false, err
		}

		data, err = yaml.Marshal(id)
		if err != nil {
			return id, false, err
		}

		return id, true, WriteFile(name, data, 0o600)
	}

	if err != nil {
		return id, false, err
	}

	if err := yaml.Unmarshal(data, &id); err != nil {
		return id, false, fmt.Errorf("reading %s: %w", name, err)
	}

	if !identityForm.MatchString(id.NodeID) {
		return id, false, fmt.Errorf("reading %s: it holds no node identity", name)
	}

	return id, false, nil
}

func newIdentity() (Identity, error) {
	for {
		var b [identityBytes]byte
		if _, err := rand.Read(b[:]); err != nil {
			return Identity{}, err
		}

		if s := new(big.Int).SetBytes(b[:]).Text(62); identityForm.MatchString(s) { // short ones are one in 2^100
			return Identity{NodeID: s}, nil
		}
	}
}

func (i Identity) derive(use string) string {
	sum := sha256.Sum256([]byte(use + " " + i.NodeID))

	return hex.EncodeToString(sum[:])
}

// MachineID is the content of /etc/machine-id (machine-id(5)): 32 hexadecimal digits, the same at each boot.
func (i Identity) MachineID() string { return i.derive("machine-id")[:32] }

// Hostname is the node's name if nothing else names it.
func (i Identity) Hostname() string {
	s := i.derive("hostname")

	return "talos-" + s[:3] + "-" + s[3:6]
}

// Source is one place where a configuration may be.
type Source struct {
	Name string
	Path string
	// Keep says that the configuration found there has to be written to STATE.
	Keep bool
	// Proposal says that one found there that is not valid is passed over. Any other that is not valid is not: an older one in its
	// place would make the machine another.
	Proposal bool
}

// Sources are the places, the first that has a file wins. Maintenance mode is what is left.
func Sources(state, embedded string) []Source {
	return []Source{
		{Name: "staged on STATE", Path: filepath.Join(state, StagedFile), Keep: true, Proposal: true},
		{Name: "STATE", Path: filepath.Join(state, ConfigFile)},
		{Name: "embedded in the image", Path: embedded, Keep: true},
	}
}

// FindConfig returns the first configuration there is; ok is false if there is none.
func FindConfig(sources []Source) (data []byte, from Source, ok bool, err error) {
	for _, s := range sources {
		data, err := os.ReadFile(s.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			return nil, s, false, fmt.Errorf("reading the configuration %s: %w", s.Name, err)
		}

		return data, s, true, nil
	}

	return nil, Source{}, false, nil
}

// SaveConfig makes data the configuration on STATE, in place of a staged one if there is any.
func SaveConfig(state string, data []byte) error {
	if err := WriteFile(filepath.Join(state, ConfigFile), data, 0o600); err != nil {
		return fmt.Errorf("saving the configuration: %w", err)
	}

	err := os.Remove(filepath.Join(state, StagedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err == nil {
		err = syncDir(state) // or it comes back after a power failure, and replaces what was saved here
	}

	if err != nil {
		return fmt.Errorf("removing the staged configuration: %w", err)
	}

	return nil
}

// StageConfig keeps data for the next boot.
func StageConfig(state string, data []byte) error {
	if err := WriteFile(filepath.Join(state, StagedFile), data, 0o600); err != nil {
		return fmt.Errorf("staging the configuration: %w", err)
	}

	return nil
}
