package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func toolsCommand(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "tools SET",
		Short: "Make the tree of a set of pinned tools and print its folder",
		Long: `Tools unpacks a set of locked packages into the store and prints the folder. The folder is read-only, and gc may
take it once nothing used it for long.`,
		Example: "  ls $(factory tools judges)/usr/bin",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			lock, err := opts.tools()
			if err != nil {
				return err
			}
			tree, err := lock.DebTree(args[0], runtime.GOARCH)
			if err != nil {
				return withHint(err, "factory pkgs list --set SET names the sets there are, and what is in one")
			}
			s, err := opts.open(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.close()) }()
			dir, done, err := s.engine.MakeTree(cmd.Context(), tree)
			if err != nil {
				return err
			}
			defer done()
			_, err = fmt.Fprintln(cmd.OutOrStdout(), dir)
			return err
		},
	}
}
