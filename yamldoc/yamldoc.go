// Package yamldoc reads a YAML document into a Go value and refuses what the value's type has no place for: every unknown or
// repeated field, wrong kind of value, alias or second document is named with its line and column, an unknown field also with
// the known name that was probably meant.
//
// It knows no document of ours, sets no defaults and checks no values: their packages do. A type that decodes itself is
// taken at its word.
package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

const (
	maxSize   = 1 << 20 // far more than any document that a person writes, and less than would hurt
	maxDepth  = 64      // of what is checked by recursion
	maxFaults = 20      // more than anybody mends at once
)

// Load reads the one document in data into the struct that into points to.
func Load(data []byte, into any) error {
	root, err := parse(data)
	if err != nil {
		return err
	}
	c := &check{}
	c.value(root, reflect.TypeOf(into).Elem(), "", 0)
	if err := errors.Join(c.faults...); err != nil {
		return err
	}
	return syntaxError(root.Load(into))
}

func parse(data []byte) (*yaml.Node, error) {
	if len(data) > maxSize {
		return nil, fmt.Errorf("cannot read a document of %d bytes: the limit is %d", len(data), maxSize)
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var root *yaml.Node
	for {
		var node yaml.Node
		err := loader.Load(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, syntaxError(err)
		}
		content := &node
		if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
			content = node.Content[0]
		}
		switch {
		case content.Kind == yaml.DocumentNode || content.Kind == 0 || content.ShortTag() == "!!null": // "---" with nothing after it
		case root != nil:
			return nil, fault(content, "cannot read a second document")
		default:
			root = content
		}
	}
	if root == nil {
		return nil, errors.New("cannot read an empty document")
	}
	return root, nil
}

func fault(node *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d, column %d: %s", node.Line, node.Column, fmt.Sprintf(format, args...))
}

// check compares a document with the Go type it is going to be decoded into. It is done before
// decoding, because the decoder stops at the first fault and quotes values, which may be secrets.
type check struct{ faults []error }

func (c *check) fault(node *yaml.Node, format string, args ...any) {
	if len(c.faults) == maxFaults {
		c.faults = append(c.faults, errors.New("and more"))
	}
	if len(c.faults) > maxFaults {
		return
	}
	c.faults = append(c.faults, fault(node, format, args...))
}

var unmarshaler = reflect.TypeFor[interface{ UnmarshalYAML(*yaml.Node) error }]()

func (c *check) value(node *yaml.Node, t reflect.Type, path string, depth int) {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		c.fault(node, "%s: cannot use YAML anchors and aliases", named(path))
	case depth > maxDepth:
		c.fault(node, "%s: nested too deep", named(path))
	case node.ShortTag() == "!!null": // "customization:" with nothing after it
	case reflect.PointerTo(t).Implements(unmarshaler):
	case t.Kind() == reflect.Pointer:
		c.value(node, t.Elem(), path, depth)
	case t.Kind() == reflect.String:
		c.scalar(node, path, "text", "")
	case t.Kind() == reflect.Bool:
		c.scalar(node, path, "true or false", "!!bool")
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		c.scalar(node, path, "a whole number", "!!int")
	case t.Kind() == reflect.Slice:
		c.list(node, t, path, depth)
	case t.Kind() == reflect.Map:
		c.mapping(node, path, func(_ *yaml.Node, key string, value *yaml.Node) {
			c.value(value, t.Elem(), join(path, key), depth+1)
		})
	case t.Kind() == reflect.Struct:
		c.fields(node, t, path, depth)
	default:
		c.fault(node, "internal error: no check for %s", t)
	}
}

// scalar wants a plain value. Text may look like a number or a truth value: a version 1.10 is text.
func (c *check) scalar(node *yaml.Node, path, want, tag string) {
	if node.Kind != yaml.ScalarNode || tag != "" && node.ShortTag() != tag {
		c.fault(node, "%s: want %s", named(path), want)
	}
}

func (c *check) list(node *yaml.Node, t reflect.Type, path string, depth int) {
	if node.Kind != yaml.SequenceNode {
		c.fault(node, "%s: want a list", named(path))
		return
	}
	for i, item := range node.Content {
		c.value(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i), depth+1)
	}
}

func (c *check) fields(node *yaml.Node, t reflect.Type, path string, depth int) {
	known := fieldsOf(t)
	c.mapping(node, path, func(at *yaml.Node, key string, value *yaml.Node) {
		if field, ok := known[key]; ok {
			c.value(value, field, join(path, key), depth+1)
			return
		}
		hint := ""
		if near := nearest(key, known); near != "" {
			hint = fmt.Sprintf(" (did you mean %s?)", join(path, near))
		}
		c.fault(at, "unknown field %s%s", join(path, key), hint)
	})
}

func (c *check) mapping(node *yaml.Node, path string, entry func(at *yaml.Node, key string, value *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		c.fault(node, "%s: want fields, \"name: value\"", named(path))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode:
			c.fault(key, "%s: a field's name must be text", named(path))
		case seen[key.Value]:
			c.fault(key, "field %s is there twice", join(path, key.Value))
		default:
			seen[key.Value] = true
			entry(key, key.Value, value)
		}
	}
}

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); name != "" && name != "-" && field.IsExported() {
			fields[name] = field.Type
		}
	}
	return fields
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func named(path string) string {
	if path == "" {
		return "the document"
	}
	return path
}

// syntaxError gives the decoder's error our form.
func syntaxError(err error) error {
	if err == nil {
		return nil
	}
	var one *yaml.LoadError
	var many *yaml.LoadErrors
	if errors.As(err, &many) && len(many.Errors) > 0 {
		one = many.Errors[0]
	}
	if one == nil && !errors.As(err, &one) {
		return fmt.Errorf("not YAML: %w", err)
	}
	if one.Mark.Line == 0 {
		return fmt.Errorf("not YAML: %s", one.Message)
	}
	return fmt.Errorf("line %d, column %d: not YAML: %s", one.Mark.Line, max(one.Mark.Column, 1), one.Message)
}
