package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v4"
)

// maxSize is far more than any document, and less than would hurt a machine.
const maxSize = 1 << 20

// Document is one YAML document of a file.
type Document struct{ root *yaml.Node }

// Documents reads the documents of a file; empty ones are left out.
func Documents(data []byte) ([]Document, error) {
	if len(data) > maxSize {
		return nil, fmt.Errorf("cannot read a document of %d bytes: the limit is %d", len(data), maxSize)
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var documents []Document
	for {
		var node yaml.Node
		err := loader.Load(&node)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, syntaxError(err)
		}
		root := &node
		if node.Kind == yaml.DocumentNode {
			if len(node.Content) == 0 {
				continue
			}
			root = node.Content[0]
		}
		if root.Tag == "!!null" || root.Kind == 0 {
			continue // "---" with nothing after it
		}
		documents = append(documents, Document{root})
	}
}

// Kind is the value of the field kind, or "".
func (d Document) Kind() string {
	for i := 0; i+1 < len(d.root.Content) && d.root.Kind == yaml.MappingNode; i += 2 {
		if d.root.Content[i].Value == "kind" {
			return d.root.Content[i+1].Value
		}
	}
	return ""
}

// Fault is an error with the document's place.
func (d Document) Fault(format string, args ...any) error {
	return fault(d.root, format, args...)
}

// Decode checks the document and fills the struct that into points to.
func (d Document) Decode(into any) error {
	if err := check(d.root, into); err != nil {
		return err
	}
	if err := d.root.Load(into); err != nil {
		return syntaxError(err)
	}
	return nil
}

// Decode reads a file of exactly one document.
func Decode(data []byte, into any) error {
	documents, err := Documents(data)
	if err != nil {
		return err
	}
	switch len(documents) {
	case 0:
		return errors.New("cannot read an empty file")
	case 1:
		return documents[0].Decode(into)
	}
	return documents[1].Fault("cannot read more than one document")
}
