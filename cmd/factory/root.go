package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/pkgs"
)

// run executes one command line and returns its exit status: 0, 1 for an error, 130 for an interrupt.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "interrupted: what was finished is kept, run the same command to go on")
		return 130
	}
	fmt.Fprintln(stderr, "factory:", err)
	if text := hintFor(err); text != "" {
		fmt.Fprintln(stderr, "hint:", text)
	}
	return 1
}

func rootCommand() *cobra.Command {
	var opts options
	root := &cobra.Command{
		Use:   "factory",
		Short: "Build machine images from pinned inputs, and boot them",
		Example: `  factory build metal --output _out
  factory boot _out/metal-amd64.raw --firmware bios
  factory explain metal kernel`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          subcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return withHint(err, "%s --help", cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&opts.store, "store", "", "folder of the store (default: talos-factory in the user's cache folder)")
	flags.StringVar(&opts.isolation, "isolation", "", "weaker isolation of actions, recorded with their results (see the error that asks for it)")
	flags.StringVar(&opts.progress, "progress", "auto", "progress display: auto, tty, plain or quiet")
	flags.StringVar(&opts.checkout, "checkout", "", "the repository to build from (default: the one this folder is in)")
	flags.StringArrayVar(&opts.mirrors, "mirror", nil, "base `URL` of a Debian mirror (default: those of the host's apt)")
	flags.StringVar(&opts.bundle, "bundle", "", "OCI `REF` of a vendored bundle, asked first (default: $"+pkgs.BundleEnv+")")
	flags.StringVar(&opts.snapshot, "snapshot", "", "base `URL` of a snapshot service, asked last (default: $"+pkgs.SnapshotEnv+")")
	root.AddCommand(
		buildCommand(&opts), graphCommand(&opts), explainCommand(&opts), gcCommand(&opts),
		bootCommand(&opts), profilesCommand(), keysCommand(), releaseCommand(&opts), verifyCommand(), pkgsCommand(&opts), toolsCommand(&opts),
	)
	return root
}

// findCheckout is the folder that --checkout names, or else the first with a repository in it on the way up from the
// working directory.
func (o *options) findCheckout() (string, error) {
	if o.checkout != "" {
		if !isCheckout(o.checkout) {
			return "", withHint(fmt.Errorf("cannot build from %s: it is no checkout of the repository", o.checkout), "give --checkout the folder that has pkgs/%s", pkgs.LockFile)
		}
		return filepath.Abs(o.checkout)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding checkout: %w", err)
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		if isCheckout(dir) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", withHint(fmt.Errorf("cannot build in %s: it is in no checkout of the repository", start), "cd to the checkout, or give --checkout DIR")
		}
	}
}

func isCheckout(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "pkgs", pkgs.LockFile))
	return err == nil
}
