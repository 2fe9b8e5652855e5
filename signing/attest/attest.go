// Package attest signs what the factory wrote: it puts a Sigstore bundle, an SBOM and signed provenance beside each file, and a
// signed list of checksums into a folder of them. Signatures have fixed bytes, so the same inputs and key give the same files.
//
// It decides nothing about what is in an artifact, an SBOM or provenance, verifies nothing (package verify does), knows no key
// format, and talks to no transparency log.
package attest

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/talos-factory/talos-factory/signing/provenance"
	"github.com/talos-factory/talos-factory/signing/verify"
)

// Artifact puts beside the file at path, which has the digest, its bundle, its SBOM, and provenance that names both: a
// statement about the file, with the SBOM's digest as a byproduct, so that one signature covers them.
func Artifact(key crypto.Signer, path string, digest [sha256.Size]byte, sbom []byte, from provenance.Build) error {
	name := filepath.Base(path)
	bundle, err := File(key, digest)
	if err != nil {
		return fmt.Errorf("signing %s: %w", path, err)
	}
	statement, err := from.Statement(
		[]verify.Resource{{Name: name, Digest: verify.SHA256(digest)}},
		[]verify.Resource{{Name: name + verify.SBOMSuffix, Digest: verify.SHA256(sha256.Sum256(sbom)), MediaType: "application/spdx+json"}},
	)
	if err != nil {
		return fmt.Errorf("writing provenance of %s: %w", path, err)
	}
	signed, err := Statement(key, statement)
	if err != nil {
		return fmt.Errorf("signing provenance of %s: %w", path, err)
	}
	for _, file := range []struct {
		suffix string
		text   []byte
	}{{verify.SBOMSuffix, sbom}, {verify.ProvenanceSuffix, signed}, {verify.BundleSuffix, bundle}} {
		if err := write(path+file.suffix, file.text); err != nil {
			return err
		}
	}
	return nil
}

// Release writes the list of all files in the folder that have a checksum beside them, with what Artifact put there, and signs it.
// Files' digests are taken from those checksums, which the factory wrote with the files.
func Release(key crypto.Signer, dir string) error {
	sums, err := filepath.Glob(filepath.Join(dir, "*"+verify.SumSuffix))
	if err != nil {
		return err
	}
	slices.Sort(sums)
	var list bytes.Buffer
	for _, sum := range sums {
		if err := addTo(&list, dir, sum); err != nil {
			return fmt.Errorf("listing checksums: %w", err)
		}
	}
	if list.Len() == 0 {
		return fmt.Errorf("cannot sign a release in %s: it has no file with a checksum", dir)
	}
	bundle, err := File(key, sha256.Sum256(list.Bytes()))
	if err != nil {
		return fmt.Errorf("signing checksums: %w", err)
	}
	path := filepath.Join(dir, verify.SumsFile)
	if err := write(path, list.Bytes()); err != nil {
		return err
	}
	return write(path+verify.BundleSuffix, bundle)
}

// addTo lists one file and what lies beside it.
func addTo(list *bytes.Buffer, dir, sum string) error {
	text, err := os.ReadFile(sum)
	if err != nil {
		return err
	}
	lines, err := verify.ParseChecksums(text)
	if err != nil {
		return fmt.Errorf("reading %s: %w", sum, err)
	}
	name := strings.TrimSuffix(filepath.Base(sum), verify.SumSuffix)
	if len(lines) != 1 || lines[0].Name != name {
		return fmt.Errorf("cannot use %s: want one line, for %s", sum, name)
	}
	fmt.Fprintf(list, "%s  %s\n", hex.EncodeToString(lines[0].Digest[:]), name)
	for _, suffix := range []string{verify.ProvenanceSuffix, verify.BundleSuffix, verify.SBOMSuffix} {
		text, err := os.ReadFile(filepath.Join(dir, name+suffix))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(list, "%x  %s\n", sha256.Sum256(text), name+suffix)
	}
	return nil
}

// write makes path hold the text, whole or not at all.
func write(path string, text []byte) (err error) {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
