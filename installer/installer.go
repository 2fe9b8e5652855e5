// Package installer is what the host, which packs an installer container, and the machine, which runs one, agree on: where
// its files lie and the record that says what they are.
//
// It packs nothing (installer/image does) and writes no disk (installer/disk does).
package installer

import (
	"bufio"
	"errors"
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Dir is the folder in the container under which each architecture has its own.
const Dir = "/usr/install"

// Program is the container's entry point.
const Program = "/bin/installer"

// VersionLabel is the image label that public Talos tools read the version from.
const VersionLabel = "alpha.talos.dev/version"

// Files of an architecture's folder.
const (
	RecordFile  = "install.yaml"
	UKI         = "vmlinuz.efi"      // the unified kernel image as it is put on the EFI partition
	Kernel      = "vmlinuz"          // for GRUB
	Initramfs   = "initramfs.img"    // for GRUB: the constant archive
	Extra       = "extra.img"        // a customization's archive, if it has one
	SystemdBoot = "systemd-boot.efi" //
	SystemdStub = "systemd-stub.efi" // what a UKI with other arguments is made of
	GRUBBoot    = "grub/boot.img"    //
	GRUBCore    = "grub/core.img"    //
)

// Path is where a file lies below Dir.
func Path(arch, file string) string { return path.Join(arch, file) }

const schema = 1

// Record says what the files of an architecture's folder are.
type Record struct {
	Schema    int      `yaml:"schema"`
	Version   string   `yaml:"version"`
	BuildID   string   `yaml:"buildID"`
	Arch      string   `yaml:"arch"`
	Platform  string   `yaml:"platform"`
	BIOS      bool     `yaml:"bios"`   // the disk boots by BIOS, too, if its sectors allow it
	Signed    bool     `yaml:"signed"` // the UKI has a signature, so its kernel arguments cannot change
	Extra     bool     `yaml:"extra"`  // there is a customization's archive
	Cmdline   []string `yaml:"cmdline"`
	OSRelease string   `yaml:"osRelease"`
}

// Encode checks the record and writes it as YAML.
func (r Record) Encode() ([]byte, error) {
	r.Schema = schema
	if err := r.check(); err != nil {
		return nil, err
	}
	return yaml.Dump(&r)
}

// ParseRecord reads a record and checks it.
func ParseRecord(text []byte) (Record, error) {
	var r Record
	if err := yaml.Load(text, &r, yaml.WithKnownFields()); err != nil {
		return r, fmt.Errorf("reading %s: %w", RecordFile, err)
	}
	if err := r.check(); err != nil {
		return r, fmt.Errorf("reading %s: %w", RecordFile, err)
	}
	return r, nil
}

// check makes sure that what names the version agrees.
func (r Record) check() error {
	if r.Schema != schema {
		return fmt.Errorf("cannot use schema %d: this installer knows %d", r.Schema, schema)
	}
	if r.Version == "" || r.Arch == "" || strings.ContainsAny(r.Version+r.Arch, "/\\ ") {
		return errors.New("cannot use a record without a version and an architecture")
	}
	if inside := OSVersion(r.OSRelease); inside != r.Version {
		return fmt.Errorf("cannot call this version %s: the OS inside says %q", r.Version, inside)
	}
	return nil
}

// OSVersion is VERSION_ID of an os-release(5) text.
func OSVersion(osRelease string) string {
	lines := bufio.NewScanner(strings.NewReader(osRelease))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "VERSION_ID="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return ""
}
