package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/profiles"
)

// buildFlags are those of build beside the profile's.
type buildFlags struct {
	profile  profileFlags
	sign     signFlags
	output   string
	only     string
	asJSON   bool
	noCaches bool
	toStdout bool
	release  string
	push     string
}

func buildCommand(opts *options) *cobra.Command {
	var f buildFlags
	cmd := &cobra.Command{
		Use:   "build PROFILE",
		Short: "Build what a profile describes: a disk image, an ISO, an installer, ...",
		Long: `Build makes what is missing in the store, plans the profile's files and writes them, each with its checksum beside it.
PROFILE is a built-in name (factory profiles list), a file, or - for standard input; flags change it. Interrupting it loses
nothing that was finished.`,
		Example: `  factory build metal --arch amd64 --output _out
  factory build iso --extra-kernel-arg -console --extra-kernel-arg console=ttyS1
  factory build aws --disk-size 20GiB --compression xz
  factory build machine.yaml --json
  factory build metal --secureboot --keys keys
  factory build metal --release registry.example/talos-factory/release:v0.1.0
  factory build installer --push registry.example/installer:v0.1.0
  factory build metal --output-kind uki --tar-to-stdout | tar -x
  factory build metal --only kernel        # one step, with what it needs`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, opts, args[0]) },
	}
	f.profile.register(cmd.Flags())
	f.sign.register(cmd.Flags())
	cmd.Flags().StringVar(&f.output, "output", "_out", "folder the files are written to")
	cmd.Flags().StringVar(&f.release, "release", "", "build from a release that was pushed or exported, a `REF` or folder, instead of a checkout")
	cmd.Flags().StringVar(&f.push, "push", "", "push an installer to a registry, as `REF`, and write no file")
	cmd.Flags().StringVar(&f.only, "only", "", "run one step, with what it needs, and write no file")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	cmd.Flags().BoolVar(&f.noCaches, "no-caches", false, "run steps without their mutable caches, as a release build does")
	cmd.Flags().BoolVar(&f.toStdout, "tar-to-stdout", false, "write the files as a tar archive to standard output instead")
	cmd.MarkFlagsMutuallyExclusive("release", "only")
	cmd.MarkFlagsMutuallyExclusive("tar-to-stdout", "output")
	cmd.MarkFlagsMutuallyExclusive("tar-to-stdout", "json", "push")
	cmd.MarkFlagsMutuallyExclusive("push", "output")
	return cmd
}

func (f buildFlags) run(cmd *cobra.Command, opts *options, name string) (err error) {
	started := time.Now()
	profile, release, err := opts.load(cmd, &f.profile, name, f.release)
	if err != nil {
		return err
	}
	if f.push != "" && profile.Output.Kind != profiles.Installer {
		return withHint(fmt.Errorf("cannot push output kind %s: a registry takes installers", profile.Output.Kind), "factory build installer --push %s", f.push)
	}
	if f.push != "" {
		if err := checkReference(f.push); err != nil {
			return err
		}
	}
	var step *build.Step
	if f.only != "" { // named wrongly? say so before anything is opened
		if step, err = findStep(release, f.only); err != nil {
			return withHint(err, "factory graph %s", name)
		}
	}
	keys, err := f.sign.open(cmd.Context(), profile.SecureBoot)
	if err != nil {
		return err
	}
	s, err := opts.open(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if f.release != "" {
		if release, err = opts.openRelease(cmd.Context(), s.engine, f.release, profile.Arch); err != nil {
			return err
		}
	}
	release.Keys = f.sign.with(keys, factory.Blobs(s.engine.Store))
	s.engine.NoCaches = f.noCaches
	s.engine.Replay = func(step string) string {
		return fmt.Sprintf("%s build %s --arch %s%s --only %q", os.Args[0], name, release.Arch, opts.flags(), step)
	}
	if step != nil {
		return buildOnly(cmd, s, step)
	}
	if f.push != "" {
		return push(cmd, s, release, profile, f.push)
	}
	if f.toStdout {
		return writeTar(cmd, s, release, profile)
	}
	artifacts, err := release.Build(cmd.Context(), s.engine, profile, f.output)
	if err != nil {
		return err
	}
	if keys != nil {
		if err := opts.attest(cmd.Context(), s, release, keys, profile, artifacts, f); err != nil {
			return err
		}
	}
	if err := s.display.Close(); err != nil {
		return err
	}
	return report(cmd.OutOrStdout(), artifacts, time.Since(started), f.asJSON)
}

// load reads the profile, changes it by flags, and describes the checkout's release, unless it shall be built from another one.
func (o *options) load(cmd *cobra.Command, f *profileFlags, name, from string) (profiles.Profile, *factory.Release, error) {
	profile, err := readProfile(cmd.InOrStdin(), name)
	if err != nil {
		return profile, nil, err
	}
	if err := f.apply(cmd.Flags(), &profile); err != nil {
		return profile, nil, err
	}
	if err := profile.Validate(); err != nil {
		return profile, nil, withHint(oneLine(err), "factory profiles show %s", name)
	}
	if from != "" {
		return profile, nil, nil
	}
	release, err := o.release(profile.Arch)
	return profile, release, err
}

// oneLine joins the faults of a profile, which have a line each.
func oneLine(err error) error {
	return errors.New("cannot use this profile: " + strings.ReplaceAll(err.Error(), "\n", "; "))
}

func findStep(release *factory.Release, name string) (*build.Step, error) {
	var names []string
	var found *build.Step
	err := build.Walk(append(release.Steps(), release.Program), func(s *build.Step) error {
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

// writeTar streams the profile's files, made as they are read.
func writeTar(cmd *cobra.Command, s *session, release *factory.Release, profile profiles.Profile) error {
	files, err := release.Plan(cmd.Context(), s.engine, profile)
	if err != nil {
		return err
	}
	w := tar.NewWriter(cmd.OutOrStdout())
	for _, file := range files {
		reader := file.Plan.NewReader(factory.Blobs(s.engine.Store))
		err := w.WriteHeader(&tar.Header{Name: file.Name, Mode: 0o644, Size: file.Plan.Size(), Format: tar.FormatPAX})
		if err == nil {
			_, err = io.Copy(w, reader)
		}
		if err := errors.Join(err, reader.Close(), cmd.Context().Err()); err != nil {
			return fmt.Errorf("writing %s to standard output: %w", file.Name, err)
		}
	}
	return w.Close()
}

func report(w io.Writer, artifacts []factory.Artifact, took time.Duration, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(artifacts)
	}
	fmt.Fprintln(w)
	for _, a := range artifacts {
		state := "written"
		if a.Unchanged {
			state = "up to date"
		}
		fmt.Fprintf(w, "%-9s %s (%s, %s)\nsize      %d bytes (%d MiB)\nsha256    %s\n", a.Kind, a.Path, state, seconds(took), a.Size, a.Size>>20, a.SHA256)
	}
	last := artifacts[len(artifacts)-1]
	for _, e := range last.Extensions {
		fmt.Fprintf(w, "extension %s %s, %s\n", e.Name, e.Version, e.Digest)
	}
	fmt.Fprintf(w, "version   %s, build %s\n", last.Version, last.BuildID)
	if next := nextSteps(last); next != "" {
		fmt.Fprintf(w, "\nNext:     %s\n", next)
	}
	return nil
}

// nextSteps is what people do with an artifact, as far as it can be done here.
func nextSteps(a factory.Artifact) string {
	switch ext := filepath.Ext(a.Path); {
	case a.Kind == profiles.Image && slices.Contains([]string{".raw", ".qcow2", ".vhd"}, ext), a.Kind == profiles.ISO:
		return "bin/factory boot " + a.Path + " --forward 50000\nthen      bin/talosctl --nodes 127.0.0.1 version --insecure"
	case a.Kind == profiles.PXE:
		return "serve the folder by HTTP or TFTP and chain iPXE to " + filepath.Base(a.Path)
	case a.Kind == profiles.Installer:
		return "docker load --input " + a.Path + ", or push it with --push REF"
	}
	return ""
}
