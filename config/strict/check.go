// Package strict reads YAML into Go types and accepts nothing that it does not know: an unknown field, a field given twice, a
// value of the wrong kind are errors with line and column, and with the nearest known name.
//
// Checking comes before decoding, because the decoder's own messages quote values, which may be secrets. What the values mean
// is the caller's to check. YAML anchors and aliases are refused.
package strict

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxDepth bounds the nesting of what is checked by recursion.
const maxDepth = 64

// maxFaults is more than anybody mends at once.
const maxFaults = 20

// check compares a document with the Go type it is going to be decoded into and reports every fault with its place.
func check(node *yaml.Node, into any) error {
	c := &schemaCheck{}
	c.value(node, reflect.TypeOf(into).Elem(), "", 0)
	return errors.Join(c.faults...)
}

type schemaCheck struct{ faults []error }

func (c *schemaCheck) fault(node *yaml.Node, format string, args ...any) {
	if len(c.faults) == maxFaults {
		c.faults = append(c.faults, errors.New("and more"))
	}
	if len(c.faults) > maxFaults {
		return
	}
	c.faults = append(c.faults, fault(node, format, args...))
}

func fault(node *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d, column %d: %s", node.Line, node.Column, fmt.Sprintf(format, args...))
}

var (
	unusedType      = reflect.TypeFor[Unused]()
	unmarshalerType = reflect.TypeFor[interface{ UnmarshalYAML(*yaml.Node) error }]()
)

func (c *schemaCheck) value(node *yaml.Node, t reflect.Type, path string, depth int) {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		c.fault(node, "%s: cannot use YAML anchors and aliases", named(path))
	case depth > maxDepth:
		c.fault(node, "%s: nested too deep", named(path))
	case t == unusedType:
	case node.ShortTag() == "!!null": // "network:" with nothing after it
	case reflect.PointerTo(t).Implements(unmarshalerType) || t.Kind() == reflect.String:
		if node.Kind != yaml.ScalarNode {
			c.fault(node, "%s: want text", named(path))
		}
	case t.Kind() == reflect.Bool:
		if node.ShortTag() != "!!bool" {
			c.fault(node, "%s: want true or false", named(path))
		}
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64 || t.Kind() == reflect.Uint8 || t.Kind() == reflect.Uint32:
		if node.ShortTag() != "!!int" {
			c.fault(node, "%s: want a whole number", named(path))
		}
	case t.Kind() == reflect.Pointer:
		c.value(node, t.Elem(), path, depth)
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

func (c *schemaCheck) list(node *yaml.Node, t reflect.Type, path string, depth int) {
	if node.Kind != yaml.SequenceNode {
		c.fault(node, "%s: want a list", named(path))
		return
	}
	for i, item := range node.Content {
		c.value(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i), depth+1)
	}
}

func (c *schemaCheck) fields(node *yaml.Node, t reflect.Type, path string, depth int) {
	known := fieldsOf(t)
	c.mapping(node, path, func(at *yaml.Node, key string, value *yaml.Node) {
		if field, ok := known[key]; ok {
			c.value(value, field, join(path, key), depth+1)
			return
		}
		hint := ""
		if near := Nearest(key, slices.Collect(maps.Keys(known))); near != "" {
			hint = fmt.Sprintf(" (did you mean %s?)", join(path, near))
		}
		c.fault(at, "unknown field %s%s", join(path, key), hint)
	})
}

func (c *schemaCheck) mapping(node *yaml.Node, path string, entry func(at *yaml.Node, key string, value *yaml.Node)) {
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

// Unused lists the document's fields that into's type accepts without effect, as sentences.
func (d Document) Unused(into any) []string {
	var found []string
	var walk func(*yaml.Node, reflect.Type, string)
	walk = func(node *yaml.Node, t reflect.Type, path string) {
		if t.Kind() != reflect.Struct || node.Kind != yaml.MappingNode {
			return
		}
		known := fieldsOf(t)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i].Value, node.Content[i+1]
			if field, ok := known[key]; ok && field == unusedType {
				found = append(found, join(path, key)+" has no effect yet")
			} else if ok {
				walk(value, field, join(path, key))
			}
		}
	}
	walk(d.root, reflect.TypeOf(into).Elem(), "")
	return found
}

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); name != "" && field.IsExported() {
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
	var one *yaml.LoadError
	var many *yaml.LoadErrors
	if errors.As(err, &many) && len(many.Errors) > 0 {
		one = many.Errors[0]
	}
	if one == nil && !errors.As(err, &one) {
		return fmt.Errorf("not YAML: %w", err)
	}
	message := one.Message
	if one.Mark.Line == 0 {
		return fmt.Errorf("not YAML: %s", message)
	}
	return fmt.Errorf("line %d, column %d: not YAML: %s", one.Mark.Line, max(one.Mark.Column, 1), message)
}
