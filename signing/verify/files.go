package verify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// What lies beside a published file F.
const (
	SumSuffix        = ".sha256"
	BundleSuffix     = ".sigstore.json"
	SBOMSuffix       = ".spdx.json"
	ProvenanceSuffix = ".provenance.json"
)

// SumsFile lists every file of a release; its bundle lies beside it.
const SumsFile = "SHA256SUMS"

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"check"`
	File   string `json:"file"` // what would have to be replaced
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Report is what became of a published file's checks.
type Report struct {
	Artifact string  `json:"artifact"`
	SHA256   string  `json:"sha256"`
	OK       bool    `json:"ok"` // nothing is missing or wrong
	Checks   []Check `json:"checks"`
}

// file is a published file while it is checked.
type file struct {
	path   string
	digest [sha256.Size]byte
	key    *Key
}

// File checks a published file by what lies beside it: its checksum, its signature, its provenance, and its SBOM, whose digest the
// provenance gives. The signed list of a release is checked where there is one. An error means that the file itself could not be
// read; what is missing or wrong is in the report.
func File(ctx context.Context, path string, key *Key) (Report, error) {
	digest, err := sum(ctx, path)
	if err != nil {
		return Report{}, fmt.Errorf("hashing %s: %w", path, err)
	}
	f := file{path, digest, key}
	r := Report{Artifact: path, SHA256: hex.EncodeToString(digest[:]), OK: true}
	r.add("checksum", path+SumSuffix, f.checksum())
	r.add("signature", path+BundleSuffix, f.signature())
	statement, err := f.provenance()
	r.add("provenance", path+ProvenanceSuffix, err)
	r.add("sbom", path+SBOMSuffix, f.sbom(statement))
	sums := filepath.Join(filepath.Dir(path), SumsFile)
	if _, err := os.Lstat(sums); !errors.Is(err, fs.ErrNotExist) {
		r.add("release", sums, f.release(sums))
	}
	return r, nil
}

func (r *Report) add(name, path string, err error) {
	check := Check{Name: name, File: path, OK: err == nil, Detail: "good"}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		check.Detail = "missing"
	case err != nil:
		check.Detail = err.Error()
	}
	r.OK = r.OK && check.OK
	r.Checks = append(r.Checks, check)
}

// sum hashes a file of any size.
func sum(ctx context.Context, path string) (digest [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return digest, err
	}
	defer f.Close()
	hash := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		hash.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return [sha256.Size]byte(hash.Sum(nil)), nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return digest, err
		}
	}
}

// read reads one of the small files.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBundle+1))
	if err == nil && len(text) > maxBundle {
		err = fmt.Errorf("cannot read more than %d bytes", maxBundle)
	}
	return text, err
}

func readBundle(path string) (*Bundle, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	return ParseBundle(text)
}

// listed checks what a checksum file says of a name.
func listed(path, name string, digest [sha256.Size]byte) error {
	text, err := read(path)
	if err != nil {
		return err
	}
	all, err := ParseChecksums(text)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Name != name {
			continue
		}
		if c.Digest != digest {
			return fmt.Errorf("it says that %s has sha256 %x, but it has %x", name, c.Digest, digest)
		}
		return nil
	}
	return fmt.Errorf("it does not name %s", name)
}

func (f file) checksum() error { return listed(f.path+SumSuffix, filepath.Base(f.path), f.digest) }

func (f file) signature() error {
	bundle, err := readBundle(f.path + BundleSuffix)
	if err != nil {
		return err
	}
	return bundle.VerifyFile(f.digest, f.key)
}

func (f file) provenance() (*Statement, error) {
	bundle, err := readBundle(f.path + ProvenanceSuffix)
	if err != nil {
		return nil, err
	}
	statement, err := bundle.VerifyStatement(f.key)
	if err != nil {
		return nil, err
	}
	if _, err := statement.Byproducts(); err != nil {
		return nil, err
	}
	if !statement.About(f.digest) {
		return nil, fmt.Errorf("it is about another file: none of its subjects has sha256 %x", f.digest)
	}
	return statement, nil
}

// sbom checks the SBOM by the provenance, which is signed.
func (f file) sbom(provenance *Statement) error {
	digest, err := sum(context.Background(), f.path+SBOMSuffix)
	if err != nil {
		return err
	}
	if provenance == nil {
		return errors.New("no good provenance vouches for it")
	}
	byproducts, err := provenance.Byproducts()
	if err != nil {
		return err
	}
	if !holds(byproducts, digest) {
		return fmt.Errorf("the provenance names no SBOM of sha256 %x", digest)
	}
	return nil
}

// release checks the list of a release: that it is signed, and what it says of the file and of what lies beside it.
func (f file) release(sums string) error {
	listDigest, err := sum(context.Background(), sums)
	if err != nil {
		return err
	}
	bundle, err := readBundle(sums + BundleSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("it is not signed")
	}
	if err != nil {
		return err
	}
	if err := bundle.VerifyFile(listDigest, f.key); err != nil {
		return err
	}
	if err := listed(sums, filepath.Base(f.path), f.digest); err != nil {
		return err
	}
	for _, suffix := range []string{SBOMSuffix, ProvenanceSuffix} {
		digest, err := sum(context.Background(), f.path+suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue // reported already
		}
		if err != nil {
			return err
		}
		if err := listed(sums, filepath.Base(f.path)+suffix, digest); err != nil {
			return err
		}
	}
	return nil
}
