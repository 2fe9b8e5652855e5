package strict

import "go.yaml.in/yaml/v4"

// Unused is a part of a schema that is taken and not looked into. It may hold keys, so
// it does not print.
type Unused struct{ node *yaml.Node }

// IsZero lets omitempty leave it out.
func (u Unused) IsZero() bool { return u.node == nil }

func (u Unused) String() string {
	if u.IsZero() {
		return ""
	}
	return "(not used)"
}

// GoString prints no more than String.
func (u Unused) GoString() string { return u.String() }

// UnmarshalYAML keeps what it gets, as it is.
func (u *Unused) UnmarshalYAML(node *yaml.Node) error {
	u.node = node
	return nil
}

// MarshalYAML gives back what it got.
func (u Unused) MarshalYAML() (any, error) { return u.node, nil }
