package verify

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// StatementType is the payload type of in-toto statements; statementVersion their own (in-toto attestation framework, v1). cosign
// still writes the version before, which has the same fields.
const (
	StatementType    = "application/vnd.in-toto+json"
	statementVersion = "https://in-toto.io/Statement/v1"
	statementBefore  = "https://in-toto.io/Statement/v0.1"
)

// ProvenanceType is the predicate type of SLSA provenance v1 (slsa.dev/spec/v1.0/provenance).
const ProvenanceType = "https://slsa.dev/provenance/v1"

// Statement is an in-toto statement: what is said of which files.
type Statement struct {
	Type          string          `json:"_type"`
	Subject       []Resource      `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

// Resource is a thing that a statement names by its digest (in-toto ResourceDescriptor).
type Resource struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest,omitempty"`
	MediaType   string            `json:"mediaType,omitempty"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

// SHA256 is a digest as resources have it.
func SHA256(sum [32]byte) map[string]string {
	return map[string]string{"sha256": hex.EncodeToString(sum[:])}
}

// NewStatement says the predicate of the subjects.
func NewStatement(subject []Resource, predicateType string, predicate []byte) Statement {
	return Statement{statementVersion, subject, predicateType, predicate}
}

// ParseStatement reads what was signed.
func ParseStatement(text []byte) (*Statement, error) {
	var s Statement
	if err := unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("reading in-toto statement: %w", err)
	}
	if s.Type != statementVersion && s.Type != statementBefore {
		return nil, fmt.Errorf("cannot read an in-toto statement of type %q: want %q", s.Type, statementVersion)
	}
	if len(s.Subject) == 0 {
		return nil, errors.New("cannot use an in-toto statement about nothing")
	}
	return &s, nil
}

// About reports whether the statement is about the file of this digest.
func (s *Statement) About(sum [32]byte) bool { return holds(s.Subject, sum) }

func holds(all []Resource, sum [32]byte) bool {
	want := hex.EncodeToString(sum[:])
	for _, r := range all {
		if r.Digest["sha256"] == want {
			return true
		}
	}
	return false
}

// Byproducts lists what a provenance statement says was made beside its subjects.
func (s *Statement) Byproducts() ([]Resource, error) {
	if s.PredicateType != ProvenanceType {
		return nil, fmt.Errorf("cannot take a statement of type %q for provenance: want %q", s.PredicateType, ProvenanceType)
	}
	var predicate struct {
		RunDetails struct {
			Builder struct {
				ID string `json:"id"`
			} `json:"builder"`
			Byproducts []Resource `json:"byproducts"`
		} `json:"runDetails"`
	}
	if err := json.Unmarshal(s.Predicate, &predicate); err != nil {
		return nil, fmt.Errorf("reading provenance: %w", err)
	}
	if predicate.RunDetails.Builder.ID == "" {
		return nil, errors.New("cannot use provenance that names no builder")
	}
	return predicate.RunDetails.Byproducts, nil
}
