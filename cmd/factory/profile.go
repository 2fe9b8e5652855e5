package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/talos-factory/talos-factory/extension/pack"
	"github.com/talos-factory/talos-factory/profiles"
)

// profileFlags change a profile after it was read. The names are those of the field's imager.
type profileFlags struct {
	arch, platform, kind, bootloader string
	diskFormat, compression          string
	diskSize                         profiles.Size
	sectorSize                       int
	secureBoot                       bool
	kernelArgs, meta, extensions     []string
	embeddedConfig                   string
}

func (f *profileFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.arch, "arch", "", "architecture of the machine: amd64")
	flags.StringVar(&f.platform, "platform", "", "where the machine runs (factory profiles list)")
	flags.StringVar(&f.kind, "output-kind", "", "what is made: image, iso, installer, kernel, initramfs, uki, cmdline or pxe")
	flags.StringVar(&f.bootloader, "bootloader", "", "auto, dual-boot or sd-boot")
	flags.StringVar(&f.diskFormat, "disk-format", "", "format of an image: raw, qcow2, vhd, vmdk or ova")
	flags.StringVar(&f.compression, "compression", "", "how an image is compressed: none, zst, gz, xz or tar.gz")
	flags.Var(&f.diskSize, "disk-size", "size of an image's disk, such as 8GiB")
	flags.IntVar(&f.sectorSize, "disk-sector-size", 0, "bytes of a sector of an image's disk: 512 or 4096")
	flags.BoolVar(&f.secureBoot, "secureboot", false, "for UEFI Secure Boot")
	flags.StringArrayVar(&f.kernelArgs, "extra-kernel-arg", nil, "kernel `ARG` to add; KEY=VALUE replaces a default, -KEY takes it away")
	flags.StringArrayVar(&f.meta, "meta", nil, "value of the META partition, `KEY=VALUE`, such as 0x0c=rack-7")
	flags.StringArrayVar(&f.extensions, "system-extension-image", nil, "system extension: a `REF` in a registry, a tarball or an OCI layout folder")
	flags.StringVar(&f.embeddedConfig, "embedded-config-path", "", "machine configuration `FILE` that the machine starts with")
}

// apply changes the profile by the flags that were given.
func (f *profileFlags) apply(flags *pflag.FlagSet, p *profiles.Profile) error {
	if f.platform != "" {
		if err := p.SetPlatform(f.platform); err != nil {
			return withHint(err, "factory profiles list")
		}
	}
	if f.kind != "" {
		if err := p.SetKind(f.kind); err != nil {
			return err
		}
	}
	for _, text := range []struct {
		from string
		to   *string
	}{{f.arch, &p.Arch}, {f.bootloader, &p.Bootloader}, {f.diskFormat, &p.Output.DiskFormat}, {f.compression, &p.Output.Compression}} {
		if text.from != "" {
			*text.to = text.from
		}
	}
	if flags.Changed("disk-size") {
		p.Output.DiskSize = f.diskSize
	}
	if flags.Changed("disk-sector-size") {
		p.Output.SectorSize = f.sectorSize
	}
	if p.Output.DiskFormat != profiles.VHD {
		p.Output.Subformat = ""
	}
	if p.Output.DiskFormat != profiles.QCOW2 {
		p.Output.ClusterSize = 0
	}
	p.SecureBoot = p.SecureBoot || f.secureBoot
	return f.customize(&p.Customization)
}

func (f *profileFlags) customize(c *profiles.Customization) error {
	c.ExtraKernelArgs = append(c.ExtraKernelArgs, f.kernelArgs...)
	for _, pair := range f.meta {
		value, err := parseMeta(pair)
		if err != nil {
			return withHint(err, "--meta 0x0c=rack-7")
		}
		c.Meta = append(c.Meta, value)
	}
	for _, ref := range f.extensions {
		source, err := pack.ParseSource(ref)
		if err != nil {
			return err
		}
		c.SystemExtensions = append(c.SystemExtensions, profiles.Extension{Image: source.Image, Tarball: source.Tarball, OCI: source.Layout})
	}
	if f.embeddedConfig == "" {
		return nil
	}
	text, err := os.ReadFile(f.embeddedConfig)
	if err != nil {
		return fmt.Errorf("reading embedded machine configuration: %w", err)
	}
	c.EmbeddedConfig = string(text)
	return nil
}

func parseMeta(pair string) (profiles.MetaValue, error) {
	key, value, ok := strings.Cut(pair, "=")
	if !ok {
		return profiles.MetaValue{}, fmt.Errorf("cannot read META value %q: want KEY=VALUE", pair)
	}
	n, err := strconv.ParseUint(key, 0, 8)
	if err != nil || n == 0 {
		return profiles.MetaValue{}, fmt.Errorf("cannot use META key %q: keys are 1 to 255 (0x01 to 0xff)", key)
	}
	return profiles.MetaValue{Key: uint8(n), Value: value}, nil
}

// maxProfile is far more than any profile.
const maxProfile = 1 << 20

// readProfile returns the built-in profile of that name, or reads one from a file, or from stdin for "-".
func readProfile(stdin io.Reader, name string) (profiles.Profile, error) {
	if name == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, maxProfile+1))
		if err != nil {
			return profiles.Profile{}, fmt.Errorf("reading profile from standard input: %w", err)
		}
		return parseProfile("standard input", text)
	}
	p, err := profiles.Load(name)
	if !errors.Is(err, profiles.ErrUnknown) {
		return p, err
	}
	text, readErr := os.ReadFile(name)
	switch {
	case readErr == nil:
		return parseProfile(name, text)
	case !errors.Is(readErr, fs.ErrNotExist) || strings.ContainsAny(name, "./"):
		return p, fmt.Errorf("reading profile: %w", readErr)
	}
	return p, withHint(err, "factory profiles list")
}

func parseProfile(name string, text []byte) (profiles.Profile, error) {
	p, err := profiles.Parse(text)
	if err != nil {
		err = withHint(fmt.Errorf("reading profile %s: %w", name, err), "factory profiles show metal")
	}
	return p, err
}

func profilesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profiles",
		Short: "Show the built-in profiles and the profile document's schema",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(profilesList(), profilesShow(), profilesSchema())
	return cmd
}

func profilesList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the built-in profiles, what each is for and the file it writes", Example: "  factory profiles list", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := profiles.Builtins()
			if err != nil {
				return err
			}
			for _, b := range all {
				fmt.Fprintf(cmd.OutOrStdout(), "%-24s %-36s %s\n", b.Profile.Name, b.Profile.FileName(), b.For)
			}
			return nil
		},
	}
}

func profilesShow() *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use: "show PROFILE", Short: "Print a profile whole, as a document to start from", Args: exactly(1),
		Long: `Show prints the built-in profile of that name, or the one in a file (- is standard input) with all that its base gives it.
Flags change it as they do for build.`,
		Example: `  factory profiles show aws
  factory profiles show metal --extra-kernel-arg quiet > mine.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := readProfile(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			if err := f.apply(cmd.Flags(), &p); err != nil {
				return err
			}
			if err := p.Validate(); err != nil {
				return err
			}
			text, err := p.Encode()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(string(text)))
			return err
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func profilesSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of profile documents, for editors", Example: "  factory profiles schema > profiles.schema.json", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := profiles.JSONSchema()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}
