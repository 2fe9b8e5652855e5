// Package secret has types for values that must not be printed by accident: in a log, in
// an error, with %v or %+v. In YAML they are written in full, because a machine
// configuration is useless without them. It does not encrypt and does not wipe memory.
package secret

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"

	"go.yaml.in/yaml/v4"
)

const redacted = "(secret)"

// Text is a secret for people and files: a token.
type Text string

// Reveal returns the secret.
func (t Text) Reveal() string { return string(t) }

func (Text) String() string       { return redacted }
func (Text) GoString() string     { return redacted }
func (Text) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON hides the secret: JSON is for reports, the configuration is YAML.
func (Text) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// Key holds secret bytes, such as a PEM encoded private key. In YAML it is base64.
type Key []byte

// Reveal returns the secret itself, not a copy.
func (k Key) Reveal() []byte { return k }

// Clone returns a copy that shares no memory.
func (k Key) Clone() Key { return bytes.Clone(k) }

func (Key) String() string       { return redacted }
func (Key) GoString() string     { return redacted }
func (Key) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON hides the secret: JSON is for reports, the configuration is YAML.
func (Key) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalYAML gives the secret in base64.
func (k Key) MarshalYAML() (any, error) { return base64.StdEncoding.EncodeToString(k), nil }

// UnmarshalYAML takes base64. Its errors do not quote the value.
func (k *Key) UnmarshalYAML(node *yaml.Node) error {
	data, err := fromBase64(node)
	*k = data
	return err
}

// PEM holds PEM encoded certificates. They are no secret, but they live beside keys and
// are written the same way: base64.
type PEM []byte

// MarshalYAML gives base64.
func (p PEM) MarshalYAML() (any, error) { return base64.StdEncoding.EncodeToString(p), nil }

// UnmarshalYAML takes base64.
func (p *PEM) UnmarshalYAML(node *yaml.Node) error {
	data, err := fromBase64(node)
	*p = data
	return err
}

func fromBase64(node *yaml.Node) ([]byte, error) {
	if node.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("line %d: want base64 text", node.Line)
	}
	data, err := base64.StdEncoding.DecodeString(node.Value)
	if err != nil {
		return nil, fmt.Errorf("line %d: not base64", node.Line)
	}
	return data, nil
}
