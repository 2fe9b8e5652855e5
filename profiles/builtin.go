package profiles

import (
	"errors"
	"fmt"
	"sort"
	"strings"
)

// ErrUnknown is returned, wrapped, by Load for a name that no built-in profile has.
var ErrUnknown = errors.New("unknown profile")

// Builtin is a profile that is there without being written.
type Builtin struct {
	Profile Profile
	For     string // what it is for, in words
}

const securePrefix = "secureboot-"

// Builtins lists the built-in profiles by name: one a platform, those with Secure Boot, and the other kinds for metal.
func Builtins() ([]Builtin, error) {
	rows, err := Platforms()
	if err != nil {
		return nil, err
	}
	var all []Builtin
	add := func(p Profile, purpose string, secure bool) {
		all = append(all, Builtin{p, purpose})
		if secure {
			p.Name, p.SecureBoot = securePrefix+p.Name, true
			all = append(all, Builtin{p, purpose + ", with Secure Boot"})
		}
	}
	for _, row := range rows {
		add(row.profile(), "disk image for "+row.For, row.SecureBoot)
	}
	for _, other := range []struct{ name, kind, purpose string }{
		{"iso", ISO, "CD or USB stick that boots from memory, by UEFI and BIOS"},
		{"installer", Installer, "container image that installs and upgrades machines"},
		{"metal-uki", UKI, "unified kernel image, for UEFI network boot"},
		{"pxe", PXE, "kernel, initramfs and an iPXE script, for network boot"},
	} {
		p := rows[0].profile()
		p.Name, p.Output = other.name, Output{Kind: other.kind}
		add(p, other.purpose, other.kind != PXE)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Profile.Name < all[j].Profile.Name })
	return all, nil
}

func (p Platform) profile() Profile {
	return Profile{
		Schema: Schema, Name: p.Name, Arch: "amd64", Platform: p.Platform, Bootloader: Auto,
		Output: Output{
			Kind: Image, DiskSize: p.DiskSize, SectorSize: p.SectorSize, DiskFormat: p.DiskFormat, Subformat: p.Subformat,
			ClusterSize: p.ClusterSize, Compression: p.Compression,
		},
	}
}

// Names lists the built-in profiles, sorted.
func Names() ([]string, error) {
	all, err := Builtins()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, b := range all {
		names = append(names, b.Profile.Name)
	}
	return names, nil
}

// Load returns the built-in profile called name. The error of an unknown name is ErrUnknown.
func Load(name string) (Profile, error) {
	all, err := Builtins()
	if err != nil {
		return Profile{}, err
	}
	var names []string
	for _, b := range all {
		if b.Profile.Name == name {
			return b.Profile, nil
		}
		names = append(names, b.Profile.Name)
	}
	return Profile{}, fmt.Errorf("%w %q%s (there is: %s)", ErrUnknown, name, meant(name, names), strings.Join(names, ", "))
}
