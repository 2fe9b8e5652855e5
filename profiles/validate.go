package profiles

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/talos-factory/talos-factory/kernel/cmdline"
	"github.com/talos-factory/talos-factory/profiles/disk"
)

// Validate checks what the schema alone cannot say. It reports every fault, each with its field.
func (p Profile) Validate() error {
	faults := checkValues(reflect.ValueOf(p), "")
	fault := func(field, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if _, err := findPlatform(p.Platform); err != nil {
		fault("platform", "%v", err)
	}
	if _, err := cmdline.Merge(nil, p.Customization.ExtraKernelArgs...); err != nil {
		fault("customization.extraKernelArgs", "%v", err)
	}
	for i, e := range p.Customization.SystemExtensions {
		if n := len(e.Image) + len(e.Tarball) + len(e.OCI); n == 0 || n != max(len(e.Image), len(e.Tarball), len(e.OCI)) {
			fault(fmt.Sprintf("customization.systemExtensions[%d]", i), "want exactly one of image, tarball and oci")
		}
	}
	seen := map[uint8]bool{}
	for i, m := range p.Customization.Meta {
		field := fmt.Sprintf("customization.meta[%d]", i)
		switch {
		case m.Key == 0:
			fault(field, "cannot use key 0: keys are 1 to 255")
		case seen[m.Key]:
			fault(field, "key 0x%02x is there twice", m.Key)
		}
		seen[m.Key] = true
	}
	faults = append(faults, p.checkKind()...)
	return errors.Join(append(faults, p.checkDisk()...)...)
}

// checkKind refuses what a kind of output has no place for, rather than to leave it out.
func (p Profile) checkKind() (faults []error) {
	c := p.Customization
	for _, rule := range []struct {
		kinds []string
		field string
		given bool
	}{
		{[]string{Kernel}, "customization.extraKernelArgs", len(c.ExtraKernelArgs) > 0},
		{[]string{Initramfs}, "customization.extraKernelArgs", len(c.ExtraKernelArgs) > 0},
		{[]string{Kernel, Cmdline, Installer}, "customization.meta", len(c.Meta) > 0},
		{[]string{Kernel, Cmdline}, "customization.embeddedMachineConfiguration", c.EmbeddedConfig != ""},
		{[]string{Kernel, Cmdline}, "customization.systemExtensions", len(c.SystemExtensions) > 0},
		{[]string{Kernel, Initramfs, PXE}, "secureboot", p.SecureBoot},
	} {
		if rule.given && slices.Contains(rule.kinds, p.Output.Kind) {
			faults = append(faults, fmt.Errorf("%s: cannot be given for output kind %s, which has no place for it", rule.field, p.Output.Kind))
		}
	}
	return faults
}

func (p Profile) checkDisk() (faults []error) {
	o := p.Output
	if o.Kind != Image {
		if o.DiskSize != 0 || o.DiskFormat != "" || o.Compression != "" || o.SectorSize != 0 {
			faults = append(faults, fmt.Errorf("output: disk size, sector size, format and compression cannot be given for output kind %s", o.Kind))
		}
		return faults
	}
	for _, rule := range []struct {
		wrong bool
		text  string
	}{
		{o.Subformat != "" && o.DiskFormat != VHD, "output.subformat: cannot be given for disk format " + o.DiskFormat},
		{o.ClusterSize != 0 && o.DiskFormat != QCOW2, "output.clusterSize: cannot be given for disk format " + o.DiskFormat},
		{o.ClusterSize != 0 && (o.ClusterSize < 4<<10 || o.ClusterSize > 2<<20 || o.ClusterSize&(o.ClusterSize-1) != 0), "output.clusterSize: want a power of two from 4KiB to 2MiB"},
		{o.Compression == TarGz && o.DiskFormat != Raw, "output.compression: tar.gz holds a raw disk"},
		{o.SectorSize == 4096 && (p.Bootloader == DualBoot), "bootloader: a BIOS boots from no disk with sectors of 4096 bytes: want sd-boot"},
		{p.SecureBoot && p.Bootloader == DualBoot, "bootloader: Secure Boot and a BIOS exclude each other: want sd-boot"},
	} {
		if rule.wrong {
			faults = append(faults, errors.New(rule.text))
		}
	}
	if _, err := p.Layout(); err != nil {
		faults = append(faults, fmt.Errorf("output.diskSize: %w", err))
	}
	return faults
}

// BIOS says whether disks boot by BIOS, too.
func (p Profile) BIOS() bool {
	return p.Arch == "amd64" && !p.SecureBoot && p.Output.SectorSize != 4096 && p.Bootloader != SystemdBoot
}

// Layout is what the disk of an image is divided into.
func (p Profile) Layout() (disk.Layout, error) {
	l := disk.UEFI()
	if p.BIOS() {
		l = disk.Metal()
	}
	if p.Output.DiskSize == 0 {
		return l, nil
	}
	return l.OfSize(int64(p.Output.DiskSize))
}

// KernelArgs are the arguments of this profile beyond the image's defaults, in the order in which they apply.
func (p Profile) KernelArgs() ([]string, error) {
	row, err := findPlatform(p.Platform)
	if err != nil {
		return nil, err
	}
	args := append([]string{"talos.platform=" + row.Platform}, row.KernelArgs...)
	if p.Output.Kind == ISO {
		args = append(args, "talos.halt_if_installed=1") // do not boot a CD that was forgotten in the drive
	}
	return append(args, p.Customization.ExtraKernelArgs...), nil
}

// checkValues compares fields that have a values tag with it.
func checkValues(v reflect.Value, path string) (faults []error) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if field.Type.Kind() == reflect.Struct {
			faults = append(faults, checkValues(v.Field(i), path+name+".")...)
			continue
		}
		values := field.Tag.Get("values")
		got := fmt.Sprint(v.Field(i).Interface())
		if values == "" || v.Field(i).IsZero() || slices.Contains(strings.Split(values, ","), got) {
			continue
		}
		known := strings.Split(values, ",")
		faults = append(faults, fmt.Errorf("%s%s: cannot be %q%s (there is: %s)", path, name, got, meant(got, known), strings.Join(known, ", ")))
	}
	return faults
}
