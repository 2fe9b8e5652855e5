// Package profiles holds the declarative descriptions of the artifacts the factory makes: the document and its checks, the table
// of platforms, and the built-in profiles that come out of it.
//
// It reads and checks; it does not build anything, read an extension or look at a release.
package profiles

import (
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"
	"go.yaml.in/yaml/v4"

	"github.com/talos-factory/talos-factory/config/strict"
)

// Schema is the version of the profile document this package reads.
const Schema = 1

// Profile describes one artifact, or the few that belong together. The doc tags are the text of docs/profiles.md and of the
// JSON Schema.
type Profile struct {
	Schema        int           `yaml:"schema" doc:"version of this document: 1"`
	Base          string        `yaml:"base,omitempty" doc:"built-in profile that gives every value left out here; without it, that of the platform"`
	Name          string        `yaml:"name,omitempty" doc:"what people call this profile"`
	Arch          string        `yaml:"arch,omitempty" doc:"architecture of the machine" values:"amd64,arm64"`
	Platform      string        `yaml:"platform,omitempty" doc:"where the machine runs: a row of the table of platforms"`
	Version       string        `yaml:"version,omitempty" doc:"version that the release must have, for a profile that is kept with one"`
	SecureBoot    bool          `yaml:"secureboot,omitempty" doc:"for UEFI Secure Boot: no BIOS, no way around the signed UKI"`
	Bootloader    string        `yaml:"bootloader,omitempty" doc:"auto takes dual-boot where the machine may have a BIOS" values:"auto,dual-boot,sd-boot"`
	Customization Customization `yaml:"customization,omitempty" doc:"what this machine has beyond the release"`
	Output        Output        `yaml:"output,omitempty" doc:"what is written"`
}

// Customization is what a user adds to a release.
type Customization struct {
	ExtraKernelArgs  []string    `yaml:"extraKernelArgs,omitempty" doc:"kernel arguments; key=value replaces the default of that key, -key takes it away"`
	Meta             []MetaValue `yaml:"meta,omitempty" doc:"values of the META partition"`
	EmbeddedConfig   string      `yaml:"embeddedMachineConfiguration,omitempty" doc:"machine configuration that the machine starts with, as text"`
	SystemExtensions []Extension `yaml:"systemExtensions,omitempty" doc:"system extensions, in the order in which they are stacked"`
}

// MetaValue is a value of META.
type MetaValue struct {
	Key   uint8  `yaml:"key" doc:"tag of the value, 1 to 255; 0x0c, 0x0d and 0x0e are free for users"`
	Value string `yaml:"value" doc:"the value"`
}

// Extension says where a system extension is. Exactly one field is set.
type Extension struct {
	Image   string `yaml:"image,omitempty" doc:"reference in a registry; with a digest it is pinned"`
	Tarball string `yaml:"tarball,omitempty" doc:"file that docker save or an OCI tool wrote"`
	OCI     string `yaml:"oci,omitempty" doc:"folder with an OCI image layout"`
}

// Output says what is written.
type Output struct {
	Kind        string `yaml:"kind,omitempty" doc:"what is made" values:"image,iso,installer,kernel,initramfs,uki,cmdline,pxe"`
	DiskSize    Size   `yaml:"diskSize,omitempty" doc:"size of an image's disk, such as 8GiB; 0 is as small as its partitions allow"`
	SectorSize  int    `yaml:"sectorSize,omitempty" doc:"bytes of a sector of an image's disk" values:"512,4096"`
	DiskFormat  string `yaml:"diskFormat,omitempty" doc:"format of an image" values:"raw,qcow2,vhd,vmdk,ova"`
	Subformat   string `yaml:"subformat,omitempty" doc:"of vhd" values:"dynamic,fixed"`
	ClusterSize Size   `yaml:"clusterSize,omitempty" doc:"of qcow2: 4KiB to 2MiB, a power of two; 64KiB if left out"`
	Compression string `yaml:"compression,omitempty" doc:"how an image is compressed" values:"none,zst,gz,xz,tar.gz"`
}

// Kinds of output.
const (
	Image     = "image"
	ISO       = "iso"
	Installer = "installer"
	Kernel    = "kernel"
	Initramfs = "initramfs"
	UKI       = "uki"
	Cmdline   = "cmdline"
	PXE       = "pxe"
)

// Disk formats and compressions.
const (
	Raw   = "raw"
	QCOW2 = "qcow2"
	VHD   = "vhd"
	VMDK  = "vmdk"
	OVA   = "ova"

	None  = "none"
	Zstd  = "zst"
	Gzip  = "gz"
	XZ    = "xz"
	TarGz = "tar.gz"
)

// Boot loaders.
const (
	Auto        = "auto"
	DualBoot    = "dual-boot" // systemd-boot and a UKI for UEFI, GRUB for BIOS
	SystemdBoot = "sd-boot"   // UEFI only
)

// Size is a number of bytes that people write with a unit.
type Size int64

// ParseSize reads "8GiB", "500MB" or a plain number of bytes.
func ParseSize(text string) (Size, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<62 {
		return 0, fmt.Errorf("cannot read size %q: want a number of bytes, or one with a unit such as 8GiB", text)
	}
	return Size(n), nil
}

// UnmarshalYAML reads a size.
func (s *Size) UnmarshalYAML(node *yaml.Node) (err error) {
	*s, err = ParseSize(node.Value)
	if err != nil {
		return fmt.Errorf("line %d, column %d: %w", node.Line, node.Column, err)
	}
	return nil
}

// MarshalYAML writes whole units as people do.
func (s Size) MarshalYAML() (any, error) { return s.String(), nil }

func (s Size) String() string {
	for _, unit := range []struct {
		bytes Size
		name  string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if s != 0 && s%unit.bytes == 0 {
			return fmt.Sprintf("%d%s", s/unit.bytes, unit.name)
		}
	}
	return fmt.Sprint(int64(s))
}

// Set and Type make a size a flag.
func (s *Size) Set(text string) (err error) {
	*s, err = ParseSize(text)
	return err
}

// Type is what help calls the flag's value.
func (s *Size) Type() string { return "size" }

// Parse reads one profile document. What it leaves out comes from its base. It is not validated: flags may still change it.
func Parse(text []byte) (Profile, error) {
	var p Profile
	if err := strict.Decode(text, &p); err != nil {
		return Profile{}, err
	}
	if p.Schema != Schema {
		return Profile{}, fmt.Errorf("cannot read profile schema %d: this factory reads schema %d", p.Schema, Schema)
	}
	base := p.Base
	switch {
	case base != "":
	case p.Platform == "":
		return Profile{}, errors.New("cannot use a profile without base and platform")
	default:
		if _, err := findPlatform(p.Platform); err != nil {
			return Profile{}, err
		}
		base = p.Platform
	}
	full, err := Load(base)
	if err != nil {
		return Profile{}, err
	}
	if p.Platform != "" && p.Platform != full.Platform {
		if err := full.SetPlatform(p.Platform); err != nil {
			return Profile{}, err
		}
	}
	if p.Output.Kind != "" {
		if err := full.SetKind(p.Output.Kind); err != nil {
			return Profile{}, err
		}
	}
	full.Name = "custom " + base
	return full, strict.Decode(text, &full)
}

// SetPlatform makes the profile one for another platform: what an image has to be comes from that platform's row.
func (p *Profile) SetPlatform(name string) error {
	row, err := findPlatform(name)
	if err != nil {
		return err
	}
	p.Platform = row.Platform
	if p.Output.Kind == Image {
		p.Output = row.profile().Output
	}
	return nil
}

// SetKind makes the profile one for another kind of output. An image's disk comes from the platform's row; other kinds have none.
func (p *Profile) SetKind(kind string) error {
	if kind == p.Output.Kind {
		return nil
	}
	p.Output = Output{Kind: kind}
	if kind != Image {
		return nil
	}
	return p.SetPlatform(p.Platform)
}

// Encode writes the profile as a document that Parse reads.
func (p Profile) Encode() ([]byte, error) { return yaml.Dump(p) }
