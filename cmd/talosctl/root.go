package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// run is the whole program; it returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var exit exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	}
	fmt.Fprintf(stderr, "error: %s\n", explain(err))
	return 1
}

func newRoot() *cobra.Command {
	t := &target{}
	root := &cobra.Command{
		Use:   "talosctl",
		Short: "Talk to machines by their API",
		Example: `  talosctl gen config lab https://10.0.0.2:6443
  talosctl apply-config --insecure -n 10.0.0.2 -f controlplane.yaml
  talosctl --talosconfig talosconfig -n 10.0.0.2 services`,
		Args:          cobra.ArbitraryArgs, // unknown commands are helpOrUnknown's
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          helpOrUnknown,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return hint(err, "see `%s --help`", cmd.CommandPath())
	})
	t.addFlags(root.PersistentFlags())
	root.AddCommand(
		versionCommand(t), servicesCommand(t), serviceCommand(t), dmesgCommand(t), logsCommand(t), readCommand(t), listCommand(t),
		getCommand(t), containersCommand(t), memoryCommand(t), mountsCommand(t), processesCommand(t), applyCommand(t),
		rebootCommand(t), shutdownCommand(t), imageCommand(t), debugCommand(t), genCommand(), configCommand(t),
	)
	for _, cmd := range root.Commands() {
		cmd.DisableFlagsInUseLine = true
	}
	return root
}

// group is a command that only has commands below it. Its examples are their first ones.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: cobra.ArbitraryArgs,
		RunE: helpOrUnknown,
	}
	var examples []string
	for _, c := range commands {
		example, _, _ := strings.Cut(c.Example, "\n")
		examples = append(examples, example)
	}
	cmd.Example = strings.Join(examples, "\n")
	cmd.AddCommand(commands...)
	return cmd
}

func helpOrUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("see `%s --help`", cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2 // letters that may be wrong
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text = fmt.Sprintf("did you mean `%s %s`?", cmd.CommandPath(), near[0])
	}
	return hint(fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()), "%s", text)
}

// exactly is like cobra.ExactArgs, but its error says what is wanted.
func exactly(n int) cobra.PositionalArgs {
	return between(n, n)
}

func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (len(args) <= most || most < 0) {
			return nil
		}
		problem := "too many arguments"
		if len(args) < least {
			problem = "an argument is missing"
		}
		return hint(errors.New(problem), "usage: %s\nsee `%s --help`", cmd.UseLine(), cmd.CommandPath())
	}
}

// exitStatus ends the program without a message: there was one, or none is wanted.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// hintError is an error with lines for the person who reads it.
type hintError struct {
	error
	hint string
}

func (e *hintError) Unwrap() error { return e.error }

func hint(err error, format string, args ...any) error {
	return &hintError{err, fmt.Sprintf(format, args...)}
}

// explain gives the error's text, and below it the hints.
func explain(err error) string {
	err = explainCall(err)
	text := err.Error()
	var h *hintError
	if errors.As(err, &h) {
		text += "\n" + strings.TrimRight("hint: "+strings.ReplaceAll(h.hint, "\n", "\n      "), "\n")
	}
	return text
}
