package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/build"
)

func gcCommand(opts *options) *cobra.Command {
	var maxAge time.Duration
	var maxSizeGiB int64
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Trim the store by last use",
		Long:  "Gc removes from the store what nobody used lately. What a running build needs is never taken.",
		Example: `  factory gc --max-age 720h
  factory gc --max-size 20`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := build.OpenStore(opts.store)
			if err != nil {
				return fmt.Errorf("opening store: %w", err)
			}
			report, err := store.GC(cmd.Context(), build.GCOptions{MaxAge: maxAge, MaxSize: maxSizeGiB << 30})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), report)
			return err
		},
	}
	cmd.Flags().DurationVar(&maxAge, "max-age", 30*24*time.Hour, "remove what was not used for this long (0: whatever its age)")
	cmd.Flags().Int64Var(&maxSizeGiB, "max-size", 0, "remove the least recently used until the store has this many GiB (0: no limit)")
	return cmd
}
