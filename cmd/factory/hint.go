package main

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/pkgs"
	"github.com/talos-factory/talos-factory/pkgs/debian"
)

// hint is an error with the command that likely mends it.
type hint struct {
	error
	text string
}

func (h hint) Unwrap() error { return h.error }

func withHint(err error, format string, args ...any) error {
	return hint{err, fmt.Sprintf(format, args...)}
}

// hintFor is the hint that an error brings, or one for what may go wrong anywhere in a build.
func hintFor(err error) string {
	var hinted hint
	switch {
	case errors.As(err, &hinted):
		return hinted.text
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "make room with factory gc, or name folders on a larger disk with --store DIR and --output DIR"
	case errors.Is(err, factory.ErrOutput):
		return "name another folder with --output DIR"
	case errors.Is(err, pkgs.ErrStale):
		return "factory pkgs lock, or name a bundle that still has it with --bundle REF"
	case errors.Is(err, debian.ErrNetwork):
		return "look at the network, or name a mirror of the Debian archive with --mirror URL or a bundle with --bundle REF"
	}
	return ""
}

// exactly wants n arguments.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return withHint(fmt.Errorf("cannot use %d arguments: want %q", len(args), cmd.UseLine()), "%s --help", cmd.CommandPath())
	}
}

// subcommand refuses what is none, for commands that only have subcommands.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2 // letters that may be wrong
	right := "--help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		right = near[0]
	}
	return withHint(fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()), "%s %s", cmd.CommandPath(), right)
}
