package pkgs

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// StanzasFile is where the stanzas of an architecture are kept, below the pkgs folder.
func StanzasFile(arch string) string { return filepath.Join("testdata", "Packages."+arch+".gz") }

// Write puts the lock and the stanzas into a repository's pkgs folder, each file whole or not at all, the lock last.
func (out *Relocked) Write(dir string) error {
	for _, arch := range slices.Sorted(maps.Keys(out.Stanzas)) {
		if err := writeFile(filepath.Join(dir, StanzasFile(arch)), out.Stanzas[arch]); err != nil {
			return err
		}
	}
	data, err := out.Lock.Marshal()
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, LockFile), data)
}

// writeFile leaves either the old content or the new, whatever happens.
func writeFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
