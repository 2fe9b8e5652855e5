// Package provenance says from what and by whom a file was made: a SLSA v1 provenance statement with every input's digest.
//
// The statement has no time and no random number in it: the same build has the same provenance. The package neither signs nor
// writes files (package attest does), and tells no secrets: of an embedded machine configuration there is the digest alone.
package provenance

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/talos-factory/talos-factory/profiles"
	"github.com/talos-factory/talos-factory/signing/verify"
)

// What the predicate names (slsa.dev/spec/v1.0/provenance): the kind of build, whose parameters are a profile, and who built.
const (
	BuildType = "https://github.com/talos-factory/talos-factory/build/v1"
	BuilderID = "https://github.com/talos-factory/talos-factory/factory"
)

// Build is how a file came to be.
type Build struct {
	Profile   profiles.Profile
	Version   string // of the release
	BuildID   string
	Factory   string // version of the factory that built it; "" is not said
	Isolation string // how build steps were kept apart from the host; "" is not said
	Inputs    []verify.Resource
}

// predicate is SLSA provenance v1, in the specification's order.
type predicate struct {
	Definition struct {
		Type       string            `json:"buildType"`
		External   external          `json:"externalParameters"`
		Internal   internal          `json:"internalParameters"`
		Dependency []verify.Resource `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	Run struct {
		Builder struct {
			ID      string            `json:"id"`
			Version map[string]string `json:"version,omitempty"`
		} `json:"builder"`
		Metadata struct {
			Invocation string `json:"invocationId"`
		} `json:"metadata"`
		Byproducts []verify.Resource `json:"byproducts"`
	} `json:"runDetails"`
}

type external struct {
	Profile        string            `json:"profile"` // the document
	EmbeddedConfig map[string]string `json:"embeddedConfigDigest,omitempty"`
}

type internal struct {
	Version   string `json:"version"`
	BuildID   string `json:"buildID"`
	Isolation string `json:"isolation,omitempty"`
}

// Statement says it of the subjects, and that the byproducts were made beside them.
func (b Build) Statement(subjects, byproducts []verify.Resource) (verify.Statement, error) {
	profile := b.Profile
	config := profile.Customization.EmbeddedConfig
	profile.Customization.EmbeddedConfig = "" // it holds keys
	document, err := profile.Encode()
	if err != nil {
		return verify.Statement{}, fmt.Errorf("writing profile: %w", err)
	}
	var p predicate
	p.Definition.Type = BuildType
	p.Definition.External.Profile = string(document)
	if config != "" {
		p.Definition.External.EmbeddedConfig = verify.SHA256(sha256.Sum256([]byte(config)))
	}
	p.Definition.Internal = internal{b.Version, b.BuildID, b.Isolation}
	p.Definition.Dependency = b.Inputs
	p.Run.Builder.ID = BuilderID
	if b.Factory != "" {
		p.Run.Builder.Version = map[string]string{"factory": b.Factory}
	}
	p.Run.Metadata.Invocation = b.BuildID
	p.Run.Byproducts = byproducts
	text, err := json.Marshal(p)
	if err != nil {
		return verify.Statement{}, err
	}
	return verify.NewStatement(subjects, verify.ProvenanceType, text), nil
}
