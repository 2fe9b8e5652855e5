package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/profiles"
)

func buildCommand(opts *options) *cobra.Command {
	var arch, output, only string
	var asJSON, noCaches bool
	cmd := &cobra.Command{
		Use:   "build PROFILE",
		Short: "Build the image of a profile",
		Long: `Build makes what is missing of the release - kernel, root, boot loaders - in sandboxes, and writes the profile's
image. What was made before is taken from the store. Interrupting loses nothing that was finished.`,
		Example: `  factory build metal --arch amd64 --output _out
  factory build metal --json | jq -r .sha256
  factory build metal --only "kernel amd64"      # one step of it, as a failed build suggests`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			started := time.Now()
			profile, release, err := opts.load(args[0], arch)
			if err != nil {
				return err
			}
			var step *build.Step
			if only != "" {
				if step, err = findStep(release, only); err != nil {
					return withHint(err, "factory graph %s", args[0])
				}
			}
			s, err := opts.open(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.close()) }()
			s.engine.NoCaches = noCaches
			s.engine.Replay = func(step string) string {
				return fmt.Sprintf("%s build %s --arch %s%s --only %q", os.Args[0], args[0], arch, opts.flags(), step)
			}
			if step != nil {
				return buildOnly(cmd, s, step)
			}
			artifact, err := release.Build(cmd.Context(), s.engine, profile, output)
			if err != nil {
				return err
			}
			if err := s.display.Close(); err != nil {
				return err
			}
			return report(cmd.OutOrStdout(), artifact, time.Since(started), asJSON)
		},
	}
	cmd.Flags().StringVar(&arch, "arch", "amd64", "architecture of the machine")
	cmd.Flags().StringVar(&output, "output", "_out", "folder the image is written to")
	cmd.Flags().StringVar(&only, "only", "", "run one step, with what it needs, and write no image")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.Flags().BoolVar(&noCaches, "no-caches", false, "run steps without their mutable caches, as a release build does")
	return cmd
}

// load reads the profile and describes the release it is built from.
func (o *options) load(name, arch string) (profiles.Profile, *factory.Release, error) {
	profile, err := profiles.Load(name)
	if errors.Is(err, profiles.ErrUnknown) {
		return profile, nil, withHint(err, "factory build %s", profiles.Names()[0])
	}
	if err != nil {
		return profile, nil, err
	}
	release, err := o.release(arch)
	return profile, release, err
}

func findStep(release *factory.Release, name string) (*build.Step, error) {
	var names []string
	var found *build.Step
	err := build.Walk(release.Steps(), func(s *build.Step) error {
		names = append(names, s.Name)
		if s.Name == name || s.Name == name+" "+release.Arch {
			found = s
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if found == nil {
		slices.Sort(names)
		return nil, fmt.Errorf("cannot find step %q (there is: %q)", name, names)
	}
	return found, nil
}

func buildOnly(cmd *cobra.Command, s *session, step *build.Step) error {
	results, err := s.engine.Build(cmd.Context(), step)
	if err != nil {
		return err
	}
	if err := s.display.Close(); err != nil {
		return err
	}
	for _, output := range step.Outputs {
		blob := results[step].Outputs[output]
		fmt.Fprintf(cmd.OutOrStdout(), "%s  %s (%d bytes)\n", blob.Digest, output, blob.Size)
	}
	return nil
}

func report(w io.Writer, a factory.Artifact, took time.Duration, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(a)
	}
	state := "written"
	if a.Unchanged {
		state = "up to date"
	}
	_, err := fmt.Fprintf(w, `
image     %s (%s, %s)
size      %d bytes (%d MiB, sparse)
sha256    %s
version   %s, build %s

Next:     bin/factory boot %s --forward 50000
then      bin/talosctl --nodes 127.0.0.1 version --insecure
`, a.Path, state, seconds(took), a.Size, a.Size>>20, a.SHA256, a.Version, a.BuildID, a.Path)
	return err
}
