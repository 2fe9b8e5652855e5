package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/factory"
)

func releaseCommand(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Hand a release on, so that others build images of it without a checkout",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(releasePush(opts), releaseExport(opts), releaseShow(opts))
	return cmd
}

// describe makes the checkout's release and hands it on.
func (o *options) describe(cmd *cobra.Command, arch string, use func(*session, factory.Description) error) (err error) {
	release, err := o.release(arch)
	if err != nil {
		return err
	}
	s, err := o.open(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	d, err := release.Describe(cmd.Context(), s.engine)
	if err != nil {
		return err
	}
	return use(s, d)
}

func releasePush(opts *options) *cobra.Command {
	var arch string
	cmd := &cobra.Command{
		Use:   "push REF",
		Short: "Build the checkout's release and push it to a registry, as an OCI artifact",
		Long: `Push makes the parts that images are assembled from (kernel, root, boot loaders, installer) and pushes them with a
manifest of their digests. What the registry has already is not sent again. It prints the reference that pins the release.`,
		Example: `  factory release push registry.example/talos-factory/release:v0.1.0
  factory build aws --release registry.example/talos-factory/release:v0.1.0`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkReference(args[0]); err != nil {
				return err
			}
			return opts.describe(cmd, arch, func(s *session, d factory.Description) error {
				pinned, err := d.Push(cmd.Context(), s.engine.Store, args[0], nil)
				if err == nil {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), pinned)
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&arch, "arch", "amd64", "architecture of the machine")
	return cmd
}

func releaseExport(opts *options) *cobra.Command {
	var arch string
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Build the checkout's release and write it to a folder, as an OCI layout",
		Example: `  factory release export _release
  factory build aws --release _release`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.describe(cmd, arch, func(s *session, d factory.Description) error { return d.Export(s.engine.Store, args[0]) })
		},
	}
	cmd.Flags().StringVar(&arch, "arch", "amd64", "architecture of the machine")
	return cmd
}

func releaseShow(opts *options) *cobra.Command {
	var arch string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show REF|DIR",
		Short:   "Show what a release that was pushed or exported consists of",
		Example: "  factory release show registry.example/talos-factory/release:v0.1.0",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := factory.ShowRelease(cmd.Context(), args[0], arch, nil)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(d)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "version   %s, build %s, %s\n", d.Version, d.BuildID, d.Arch)
			for _, part := range slices.Sorted(maps.Keys(d.Parts)) {
				fmt.Fprintf(cmd.OutOrStdout(), "%s %10d  %s\n", d.Parts[part].Digest, d.Parts[part].Size, part)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&arch, "arch", "amd64", "architecture of the machine")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return cmd
}

// checkReference refuses what no registry can be asked for, before anything is built for it.
func checkReference(ref string) error {
	if _, err := name.ParseReference(ref); err != nil {
		return withHint(fmt.Errorf("cannot push to %q: %w", ref, err), "a reference is REGISTRY/NAME:TAG, such as 127.0.0.1:5000/release:v1")
	}
	return nil
}
