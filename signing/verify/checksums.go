package verify

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Checksum is a line of a checksum file.
type Checksum struct {
	Digest [32]byte
	Name   string // of a file in the same folder
}

// ParseChecksums reads what sha256sum(1) writes and "sha256sum --check" reads. Names are those of files in the same folder.
func ParseChecksums(text []byte) ([]Checksum, error) {
	if len(text) > maxBundle {
		return nil, fmt.Errorf("cannot read %d bytes of checksums: the limit is %d", len(text), maxBundle)
	}
	var all []Checksum
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line, ended := strings.CutSuffix(line, "\n")
		sum, name, ok := strings.Cut(line, " ")
		if !ok || !ended || len(name) < 2 || name[0] != ' ' && name[0] != '*' { // text or binary: the same here
			return nil, fmt.Errorf("cannot read line %d of the checksums", len(all)+1)
		}
		name = name[1:]
		raw, err := hex.DecodeString(sum)
		if err != nil || len(raw) != 32 || strings.ToLower(sum) != sum {
			return nil, fmt.Errorf("cannot read line %d of the checksums: no SHA-256", len(all)+1)
		}
		if strings.ContainsAny(name, "/\\\x00") || seen[name] {
			return nil, fmt.Errorf("cannot use checksums for file name %q", name)
		}
		seen[name] = true
		all = append(all, Checksum{[32]byte(raw), name})
	}
	if len(all) == 0 {
		return nil, errors.New("cannot use an empty list of checksums")
	}
	return all, nil
}
