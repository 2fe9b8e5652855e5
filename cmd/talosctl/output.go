package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/talos-factory/talos-factory/api/common"
)

// format is the flag -o.
type format string

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "table|json|yaml" }

func (f *format) Set(value string) error {
	switch value {
	case "table", "json", "yaml":
		*f = format(value)
		return nil
	}
	return fmt.Errorf("want table, json or yaml")
}

func outputFlag(cmd *cobra.Command) *format {
	f := format("table")
	cmd.Flags().VarP(&f, "output", "o", "output format")
	return &f
}

// An answer is one node's part of a reply.
type answer interface {
	proto.Message
	GetMetadata() *common.Metadata
}

// node says whose answer it is.
func (s *session) node(a answer) string {
	if name := a.GetMetadata().GetHostname(); name != "" {
		return name
	}
	return s.name
}

// report prints the answers in the format asked for; row calls add for each line of a
// table. Nodes that answered with an error are reported after the others.
func report[T answer](cmd *cobra.Command, s *session, f format, answers []T, header string, rows func(node string, a T, add func(columns ...any))) error {
	var good []T
	failed := 0
	for _, a := range answers {
		if text := a.GetMetadata().GetError(); text != "" {
			failed++
			fmt.Fprintf(cmd.ErrOrStderr(), "error: %s: %s\n", s.node(a), text)
			continue
		}
		good = append(good, a)
	}
	if err := print(cmd.OutOrStdout(), s, f, good, header, rows); err != nil {
		return err
	}
	if failed > 0 {
		return exitStatus(1)
	}
	return nil
}

func print[T answer](out io.Writer, s *session, f format, answers []T, header string, rows func(node string, a T, add func(columns ...any))) error {
	if f == "table" {
		t := newTable(out, header)
		for _, a := range answers {
			rows(s.node(a), a, t.add)
		}
		return t.flush()
	}
	for _, a := range answers {
		data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(a)
		if err != nil {
			return err
		}
		var value map[string]any
		if err := json.Unmarshal(data, &value); err != nil {
			return err
		}
		delete(value, "metadata")
		value["node"] = s.node(a)
		if err := printValue(out, f, value); err != nil {
			return err
		}
	}
	return nil
}

// printValue prints one JSON value or YAML document.
func printValue(out io.Writer, f format, value any) error {
	if f == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	data, err := yaml.Dump(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "---\n%s", data)
	return err
}

// table aligns columns; header's columns are separated by "|".
type table struct{ *tabwriter.Writer }

func newTable(out io.Writer, header string) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)}
	fmt.Fprintln(t, strings.ReplaceAll(header, "|", "\t"))
	return t
}

func (t table) add(columns ...any) {
	for i, column := range columns {
		if i > 0 {
			fmt.Fprint(t, "\t")
		}
		fmt.Fprint(t, oneLine(fmt.Sprint(column)))
	}
	fmt.Fprintln(t)
}

func (t table) flush() error { return t.Flush() }

// oneLine keeps a machine's text from breaking the table or the terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

func size(bytes uint64) string {
	switch {
	case bytes < 10<<10:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 10<<20:
		return fmt.Sprintf("%d KiB", bytes>>10)
	case bytes < 10<<30:
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d GiB", bytes>>30)
}
