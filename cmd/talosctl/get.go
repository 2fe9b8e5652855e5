package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/client"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
)

func getCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "get TYPE [ID]", Short: "Show a machine's resources",
		Long: `Show a machine's resources: what its parts tell each other.

TYPE is a name or an alias; "talosctl get rd" lists them all.`,
		Example: `  talosctl -n 10.0.0.2 get rd
  talosctl -n 10.0.0.2 get services apid -o yaml
  talosctl -n 10.0.0.2 get addresses --watch`,
		Args: between(1, 2),
	}
	f := outputFlag(cmd)
	namespace := cmd.Flags().String("namespace", "", "the resources' namespace (default: the type's)")
	watch := cmd.Flags().BoolP("watch", "w", false, "go on with what changes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := t.open()
		if err != nil {
			return err
		}
		defer s.close()
		if *watch && len(s.nodes) > 1 {
			return hint(errors.New("cannot watch several machines at once"), "choose one with --nodes")
		}
		store := client.NewAdapter(v1alpha1.NewStateClient(s), client.WithDisableWatchRetry())
		var printer *resourcePrinter
		return s.each(cmd.Context(), func(ctx context.Context, node string) error {
			definition, err := findDefinition(ctx, store, args[0])
			if err != nil {
				return err
			}
			if *namespace != "" {
				definition.DefaultNamespace = *namespace
			}
			if printer == nil {
				printer = newResourcePrinter(cmd, *f, definition, *watch)
			}
			id := ""
			if len(args) > 1 {
				id = args[1]
			}
			if *watch {
				return watchResources(ctx, store, definition, id, node, printer)
			}
			return printResources(ctx, store, definition, id, node, printer)
		})
	}
	return cmd
}

// definition is the part of a resource type's definition that is needed here.
type definition struct {
	Type             string   `yaml:"type"`
	DisplayType      string   `yaml:"displayType"` // of one: "MountStatus"
	DefaultNamespace string   `yaml:"defaultNamespace"`
	Aliases          []string `yaml:"allAliases"`
	PrintColumns     []struct {
		Name     string `yaml:"name"`
		JSONPath string `yaml:"jsonPath"`
	} `yaml:"printColumns"`
}

func (d *definition) pointer(id string) resource.Metadata {
	return resource.NewMetadata(d.DefaultNamespace, d.Type, id, resource.VersionUndefined)
}

func findDefinition(ctx context.Context, store state.CoreState, name string) (*definition, error) {
	kind := resource.NewMetadata(meta.NamespaceName, meta.ResourceDefinitionType, "", resource.VersionUndefined)
	list, err := store.List(ctx, kind, state.WithListUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	if err != nil {
		return nil, err
	}
	var found []*definition
	for _, item := range list.Items {
		_, text, err := resourceValue(item)
		if err != nil {
			return nil, err
		}
		var d struct {
			Spec definition `yaml:"spec"`
		}
		if err := yaml.Load(text, &d); err != nil {
			return nil, fmt.Errorf("reading the definition of %s: %w", item.Metadata().ID(), err)
		}
		if strings.EqualFold(d.Spec.Type, name) {
			return &d.Spec, nil
		}
		if slices.ContainsFunc(d.Spec.Aliases, func(alias string) bool { return strings.EqualFold(alias, name) }) {
			found = append(found, &d.Spec)
		}
	}
	switch len(found) {
	case 0:
		return nil, hint(fmt.Errorf("no resource type %q", name), "`talosctl get rd` lists them")
	case 1:
		return found[0], nil
	}
	types := make([]string, len(found))
	for i := range found {
		types[i] = found[i].Type
	}
	return nil, hint(fmt.Errorf("%q may be several resource types", name), "say which: %s", strings.Join(types, ", "))
}

func printResources(ctx context.Context, store state.CoreState, d *definition, id, node string, p *resourcePrinter) error {
	if id != "" {
		r, err := store.Get(ctx, d.pointer(id), state.WithGetUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
		if err != nil {
			return err
		}
		return errors.Join(p.print(node, "", r), p.flush())
	}
	list, err := store.List(ctx, d.pointer(""), state.WithListUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	if err != nil {
		return err
	}
	for _, r := range list.Items {
		if err := p.print(node, "", r); err != nil {
			return err
		}
	}
	return p.flush()
}

func watchResources(ctx context.Context, store state.CoreState, d *definition, id, node string, p *resourcePrinter) error {
	events := make(chan state.Event)
	var err error
	if id != "" {
		err = store.Watch(ctx, d.pointer(id), events, state.WithWatchUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	} else {
		err = store.WatchKind(ctx, d.pointer(""), events, state.WithBootstrapContents(true),
			state.WithWatchKindUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	}
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-events:
			switch event.Type {
			case state.Errored:
				return event.Error
			case state.Bootstrapped, state.Noop:
			default:
				if event.Resource == nil || resource.IsTombstone(event.Resource) && id != "" && event.Resource.Metadata().Version().Value() == 0 {
					continue
				}
				mark := map[state.EventType]string{state.Created: "+", state.Destroyed: "-"}[event.Type]
				if err := errors.Join(p.print(node, mark, event.Resource), p.flush()); err != nil {
					return err
				}
			}
		}
	}
}

// resourceValue is the resource as YAML text, and that as values.
func resourceValue(r resource.Resource) (map[string]any, []byte, error) {
	form, err := resource.MarshalYAML(r)
	if err != nil {
		return nil, nil, err
	}
	text, err := yaml.Dump(form)
	if err != nil {
		return nil, nil, err
	}
	var value map[string]any
	if err := yaml.Load(text, &value); err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", r.Metadata().ID(), err)
	}
	return value, text, nil
}

type resourcePrinter struct {
	table      table
	cmd        *cobra.Command
	format     format
	definition *definition
	watch      bool
}

func newResourcePrinter(cmd *cobra.Command, f format, d *definition, watch bool) *resourcePrinter {
	p := &resourcePrinter{cmd: cmd, format: f, definition: d, watch: watch}
	if f == "table" {
		header := "NODE|NAMESPACE|TYPE|ID|VERSION"
		if watch {
			header = "|" + header
		}
		for _, column := range d.PrintColumns {
			header += "|" + strings.ToUpper(column.Name)
		}
		p.table = newTable(cmd.OutOrStdout(), header)
	}
	return p
}

func (p *resourcePrinter) print(node, mark string, r resource.Resource) error {
	md := r.Metadata()
	value := map[string]any{}
	if !resource.IsTombstone(r) {
		var err error
		if value, _, err = resourceValue(r); err != nil {
			return err
		}
	}
	if p.format != "table" {
		value["node"] = node
		return printValue(p.cmd.OutOrStdout(), p.format, value)
	}
	columns := []any{node, md.Namespace(), p.definition.DisplayType, md.ID(), md.Version()}
	if p.watch {
		columns = append([]any{mark}, columns...)
	}
	for _, column := range p.definition.PrintColumns {
		columns = append(columns, lookup(value["spec"], column.JSONPath))
	}
	p.table.add(columns...)
	return nil
}

func (p *resourcePrinter) flush() error {
	if p.format == "table" {
		return p.table.flush()
	}
	return nil
}

// lookup evaluates what print columns use of JSONPath: {.field.field}.
func lookup(value any, path string) string {
	path = strings.Trim(path, "{}")
	for field := range strings.SplitSeq(strings.TrimPrefix(path, "."), ".") {
		fields, ok := value.(map[string]any)
		if !ok {
			return ""
		}
		value = fields[field]
	}
	switch v := value.(type) {
	case nil:
		return ""
	case []any:
		words := make([]string, len(v))
		for i := range v {
			words[i] = fmt.Sprint(v[i])
		}
		return strings.Join(words, ",")
	}
	return fmt.Sprint(value)
}
