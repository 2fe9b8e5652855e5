package profiles

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// JSONSchema is the profile document's schema for editors (JSON Schema 2020-12), made from the Go types.
func JSONSchema() ([]byte, error) {
	s := objectSchema(reflect.TypeFor[Profile]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Profile of the factory"
	s["required"] = []string{"schema"}
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

func objectSchema(t reflect.Type) map[string]any {
	properties := map[string]any{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		s := typeSchema(field.Type)
		s["description"] = field.Tag.Get("doc")
		if values := field.Tag.Get("values"); values != "" {
			s["enum"] = enumeration(field.Type, values)
		}
		if name == "schema" {
			s["const"] = Schema
		}
		properties[name] = s
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

func typeSchema(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[Size]():
		return map[string]any{"type": []string{"string", "integer"}}
	case t.Kind() == reflect.Struct:
		return objectSchema(t)
	case t.Kind() == reflect.Slice:
		return map[string]any{"type": "array", "items": typeSchema(t.Elem())}
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case t.Kind() == reflect.Uint8:
		return map[string]any{"type": "integer", "minimum": 1, "maximum": 255}
	case t.Kind() == reflect.Int:
		return map[string]any{"type": "integer"}
	}
	return map[string]any{"type": "string"}
}

func enumeration(t reflect.Type, values string) (all []any) {
	for value := range strings.SplitSeq(values, ",") {
		var number int
		if _, err := fmt.Sscan(value, &number); err == nil && t.Kind() == reflect.Int {
			all = append(all, number)
			continue
		}
		all = append(all, value)
	}
	return all
}

// FieldTable lists every field of the document for docs/profiles.md, as rows of a Markdown table.
func FieldTable() string {
	var b strings.Builder
	b.WriteString("| field | what |\n|---|---|\n")
	fieldRows(&b, reflect.TypeFor[Profile](), "")
	return b.String()
}

func fieldRows(b *strings.Builder, t reflect.Type, path string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		doc := field.Tag.Get("doc")
		if values := field.Tag.Get("values"); values != "" {
			doc += " (" + strings.ReplaceAll(values, ",", ", ") + ")"
		}
		inner, suffix := field.Type, ""
		if inner.Kind() == reflect.Slice {
			inner, suffix = inner.Elem(), "[]"
		}
		fmt.Fprintf(b, "| `%s%s%s` | %s |\n", path, name, suffix, doc)
		if inner.Kind() == reflect.Struct {
			fieldRows(b, inner, path+name+suffix+".")
		}
	}
}

// PlatformTable lists the platforms for docs/profiles.md, as rows of a Markdown table.
func PlatformTable() (string, error) {
	rows, err := Platforms()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| profile | for | format | disk | kernel arguments |\n|---|---|---|---|---|\n")
	for _, row := range rows {
		p := row.profile()
		size := "smallest"
		if row.DiskSize != 0 {
			size = row.DiskSize.String()
		}
		_, suffix, _ := strings.Cut(p.FileName(), ".")
		args := append([]string{"talos.platform=" + row.Platform}, row.KernelArgs...)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | `%s` |\n", row.Name, row.For, suffix, size, strings.Join(args, " "))
	}
	return b.String(), nil
}
