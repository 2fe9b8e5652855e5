package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/config/talosconfig"
)

func configCommand(t *target) *cobra.Command {
	return group("config", "Look at and change the client's configuration",
		configInfoCommand(t), configContextsCommand(t), configContextCommand(t), configMergeCommand(t),
		configListCommand(t, "endpoint", "Set the machines to connect to", func(c *talosconfig.Context, list []string) { c.Endpoints = list }),
		configListCommand(t, "node", "Set the machines to ask about", func(c *talosconfig.Context, list []string) { c.Nodes = list }),
	)
}

func configInfoCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "info", Short: "Show the chosen context",
		Example: "  talosctl config info --context lab",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			context, err := t.load()
			if err != nil {
				return err
			}
			table := newTable(cmd.OutOrStdout(), "ENDPOINTS|NODES|ROLES|CERTIFICATE EXPIRES")
			roles, expires := "?", "?"
			if crt, err := pki.ParseCertificate(context.Crt); err == nil {
				roles, expires = strings.Join(crt.Subject.Organization, ","), crt.NotAfter.Format(time.DateOnly)
			}
			table.add(strings.Join(context.Endpoints, ","), strings.Join(context.Nodes, ","), roles, expires)
			return table.flush()
		},
	}
}

func configContextsCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "contexts", Short: "List the contexts",
		Example: "  talosctl config contexts",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.edit(func(file *talosconfig.Config) (bool, error) {
				table := newTable(cmd.OutOrStdout(), "CURRENT|NAME|ENDPOINTS|NODES")
				for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
					current := ""
					if name == file.Context {
						current = "*"
					}
					c := file.Contexts[name]
					table.add(current, name, strings.Join(c.Endpoints, ","), strings.Join(c.Nodes, ","))
				}
				return false, table.flush()
			})
		},
	}
}

func configContextCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "context NAME", Short: "Choose a context",
		Example: "  talosctl config context lab",
		Args:    exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return t.edit(func(file *talosconfig.Config) (bool, error) {
				_, err := file.Choose(args[0])
				file.Context = args[0]
				return true, err
			})
		},
	}
}

func configMergeCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "merge FILE", Short: "Add another file's contexts",
		Example: "  talosctl config merge lab/talosconfig",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			other, err := talosconfig.Open(args[0])
			if err != nil {
				return err
			}
			return t.edit(func(file *talosconfig.Config) (bool, error) {
				for was, is := range file.Merge(other) {
					fmt.Fprintf(cmd.OutOrStdout(), "context %q is called %q here\n", was, is)
				}
				return true, nil
			})
		},
	}
}

func configListCommand(t *target, name, short string, set func(*talosconfig.Context, []string)) *cobra.Command {
	return &cobra.Command{
		Use: name + " ADDRESS...", Short: short,
		Example: "  talosctl config " + name + " 10.0.0.2 10.0.0.3",
		Args:    between(1, -1),
		RunE: func(_ *cobra.Command, args []string) error {
			return t.edit(func(file *talosconfig.Config) (bool, error) {
				context, err := file.Choose(t.context)
				if err == nil {
					set(context, args)
				}
				return true, err
			})
		},
	}
}

// edit reads the client's configuration and, if change says so, writes it.
func (t *target) edit(change func(*talosconfig.Config) (write bool, err error)) error {
	path, err := t.path()
	if err != nil {
		return err
	}
	file, err := talosconfig.Open(path)
	if talosconfig.IsMissing(err) {
		file, err = &talosconfig.Config{}, nil
	}
	if err != nil {
		return err
	}
	write, err := change(file)
	if err != nil || !write {
		return err
	}
	data, err := file.Encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return writeFile(path, data)
}
