package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/build"
)

func graphCommand(opts *options) *cobra.Command {
	var f profileFlags
	var dot bool
	cmd := &cobra.Command{
		Use:   "graph PROFILE",
		Short: "Show the steps a profile's image is made of",
		Example: `  factory graph metal
  factory graph metal --dot | dot -Tsvg > graph.svg`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, release, err := opts.load(cmd, &f, args[0], "")
			if err != nil {
				return err
			}
			if dot {
				return build.WriteDot(cmd.OutOrStdout(), release.Steps()...)
			}
			return build.WriteText(cmd.OutOrStdout(), release.Steps()...)
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().BoolVar(&dot, "dot", false, "write the graph for Graphviz")
	return cmd
}

func explainCommand(opts *options) *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "explain PROFILE STEP",
		Short: "Show what is hashed for a step, so why it would run again",
		Example: `  factory explain metal kernel
  factory explain metal "root amd64"`,
		Args: exactly(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			_, release, err := opts.load(cmd, &f, args[0], "")
			if err != nil {
				return err
			}
			step, err := findStep(release, args[1])
			if err != nil {
				return withHint(err, "factory graph %s", args[0])
			}
			s, err := opts.open(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.close()) }()
			return s.engine.Explain(cmd.Context(), cmd.OutOrStdout(), step)
		},
	}
	f.register(cmd.Flags())
	return cmd
}
