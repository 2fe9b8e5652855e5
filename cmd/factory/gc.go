package main

import (
	"errors"
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
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			store, err := build.OpenStore(opts.store)
			if err != nil {
				return withHint(err, "name another folder with --store DIR")
			}
			defer func() { err = errors.Join(err, store.Close()) }()
			report, err := store.GC(cmd.Context(), build.GCOptions{MaxAge: maxAge, MaxSize: maxSizeGiB << 30})
			if errors.Is(err, build.ErrBusy) {
				return withHint(err, "run factory gc when no build runs")
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "removed %d entries (%d MiB), kept %d (%d MiB)\n",
				report.Removed, report.RemovedBytes>>20, report.Kept, report.KeptBytes>>20)
			return err
		},
	}
	cmd.Flags().DurationVar(&maxAge, "max-age", 30*24*time.Hour, "remove what was not used for this long (0: nothing for its age)")
	cmd.Flags().Int64Var(&maxSizeGiB, "max-size", 0, "remove the least recently used until the store has this many GiB (0: no limit)")
	return cmd
}
