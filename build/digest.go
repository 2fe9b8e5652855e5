package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Digest is the SHA-256 of some bytes.
type Digest [sha256.Size]byte

// Sum hashes b.
func Sum(b []byte) Digest { return sha256.Sum256(b) }

// ParseDigest reads the 64 lower-case hexadecimal digits that String prints.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != hex.EncodedLen(len(d)) {
		return d, fmt.Errorf("cannot use %q as a sha256: want %d hexadecimal digits", s, hex.EncodedLen(len(d)))
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return d, fmt.Errorf("cannot use %q as a sha256: %q is not a lower-case hexadecimal digit", s, c)
		}
	}
	_, err := hex.Decode(d[:], []byte(s))
	return d, err
}

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// IsZero reports whether d was never set; no content hashes to it in practice.
func (d Digest) IsZero() bool { return d == Digest{} }

func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Digest) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDigest(string(text))
	return err
}

// ActionID is the digest of an Action's canonical text. It is a type of its own so that
// the name of a computation is never taken for the name of some bytes.
type ActionID Digest

func (id ActionID) String() string { return Digest(id).String() }

func (id ActionID) MarshalText() ([]byte, error) { return Digest(id).MarshalText() }

func (id *ActionID) UnmarshalText(text []byte) error { return (*Digest)(id).UnmarshalText(text) }

// Blob names bytes: what they hash to and how many there are.
type Blob struct {
	Digest Digest `json:"sha256"`
	Size   int64  `json:"size"`
}
