// Package debian reads the Debian archive: signed InRelease files, Packages indexes and .deb files,
// and computes what a set of packages needs.
//
// It verifies everything it reads from a mirror down to the archive's OpenPGP keys, and it unpacks
// packages. It does not install them: no maintainer script ever runs, and Recommends are ignored.
// It knows one architecture at a time and holds no state between calls.
package debian

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"pault.ag/go/debian/control"
)

//go:embed keyring/*.gpg
var keyringFiles embed.FS

// ErrSignature is returned (wrapped) when an InRelease carries no valid signature of a known key.
var ErrSignature = errors.New("no valid signature of a known archive key")

// Keyring returns the public keys of the Debian archive that sign trixie and its security suite,
// taken from Debian's own debian-archive-keyring package.
func Keyring() (openpgp.EntityList, error) {
	var all openpgp.EntityList
	names, err := fs.Glob(keyringFiles, "keyring/*.gpg")
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	for _, name := range names {
		data, err := keyringFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		keys, err := openpgp.ReadKeyRing(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		all = append(all, keys...)
	}
	return all, nil
}

// IndexFile is one line of a Release file's SHA256 section.
type IndexFile struct {
	SHA256 string
	Size   int64
}

// Release is a verified InRelease file.
type Release struct {
	Codename string
	Date     time.Time
	SHA256   string // of the InRelease file as served
	Signer   string // fingerprint of the primary key
	Files    map[string]IndexFile
}

// ParseInRelease verifies the clear signature and reads what it covers; text outside the signature
// is refused. A suite's Valid-Until is not looked at: the caller compares dates with what it
// has seen before, which also protects suites that have none.
func ParseInRelease(data []byte, keyring openpgp.EntityList) (*Release, error) {
	sum := sha256.Sum256(data)
	block, rest := clearsign.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%w: not a clear-signed file", ErrSignature)
	}
	if !bytes.HasPrefix(data, []byte("-----BEGIN PGP SIGNED MESSAGE-----")) || len(bytes.TrimSpace(rest)) != 0 {
		return nil, fmt.Errorf("%w: text outside the signed part", ErrSignature)
	}
	signer, err := block.VerifySignature(keyring, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	r := &Release{
		SHA256: hex.EncodeToString(sum[:]),
		Signer: strings.ToUpper(hex.EncodeToString(signer.PrimaryKey.Fingerprint)),
		Files:  map[string]IndexFile{},
	}
	paragraphs, err := control.NewParagraphReader(bytes.NewReader(block.Plaintext), nil)
	if err != nil {
		return nil, err
	}
	p, err := paragraphs.Next()
	if err != nil {
		return nil, fmt.Errorf("reading the signed text: %w", err)
	}
	r.Codename = p.Values["Codename"]
	if r.Date, err = time.Parse(time.RFC1123, p.Values["Date"]); err != nil {
		return nil, fmt.Errorf("reading the date: %w", err)
	}
	r.Date = r.Date.UTC()
	for _, line := range strings.Split(p.Values["SHA256"], "\n") {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		size, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the size of %s: %w", f[2], err)
		}
		r.Files[f[2]] = IndexFile{SHA256: f[0], Size: size}
	}
	return r, nil
}
