package build

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// recordSchema is the version of record. A record of another version is refused rather than
// taken for a miss: it was written by another factory, and that should be known.
const recordSchema = 1

// record is what the table of actions holds of one action that ran well.
type record struct {
	Schema    int             `json:"schema"`
	Action    ActionID        `json:"action"`
	Step      string          `json:"step"` // for people; the same action may have other names
	Outputs   map[string]Blob `json:"outputs"`
	Duration  time.Duration   `json:"duration_ns"`
	Isolation string          `json:"isolation"`
}

func (s *Store) saveRecord(r record) error {
	r.Schema = recordSchema
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.writeFile(s.entry("actions", Digest(r.Action)), seal(text))
}

// loadRecord finds the result of an action. A damaged record is a miss.
func (s *Store) loadRecord(id ActionID) (r record, found bool, err error) {
	path := s.entry("actions", Digest(id))
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	text, ok := unseal(content)
	if !ok {
		return r, false, ignoreMissing(os.Remove(path))
	}
	var version struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return r, false, fmt.Errorf("reading action record %s: %w", id, err)
	}
	if version.Schema != recordSchema {
		return r, false, fmt.Errorf("cannot read action record %s: its schema is %d, this program knows %d", id, version.Schema, recordSchema)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, false, fmt.Errorf("reading action record %s: %w", id, err)
	}
	if r.Action != id {
		return r, false, fmt.Errorf("cannot use action record %s: it is that of %s", id, r.Action)
	}
	touch(path)
	return r, true, nil
}

// hasAll reports whether all outputs of a result are in the store, whole.
func (s *Store) hasAll(outputs map[string]Blob) bool {
	for _, b := range outputs {
		if !s.Has(b) {
			return false
		}
	}
	return true
}

// seal puts the digest of some bytes before them, so that unseal notices damage.
func seal(content []byte) []byte {
	return fmt.Appendf(nil, "%s\n%s", Sum(content), content)
}

func unseal(sealed []byte) (content []byte, ok bool) {
	sum, content, found := bytes.Cut(sealed, []byte("\n"))
	return content, found && string(sum) == Sum(content).String()
}
