// Package assembly plans what a machine boots from out of a release's parts and a customization: the unified kernel image
// (UKI), disk images and ISOs. The factory and the installer write the same bytes because both call it.
//
// It builds, compresses and writes nothing; it takes parts as plans and returns plans. What it signs is signed by
// whoever hands in Keys.
package assembly

import (
	"errors"
	"fmt"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/uki"
)

// Parts are what is the same for every customization of a release. Boot loaders that a kind of image does not need may
// be missing.
type Parts struct {
	Arch      string // amd64 or arm64
	Version   string // of the release, "v1.2.3"
	OSRelease string // text of os-release(5), with the build ID

	Kernel    *extent.Plan // the bzImage
	Initramfs *extent.Plan // the constant cpio: /init and the squashfs
	Verity    string       // the kernel argument by which /init verifies the squashfs; for the caller to put into Boot.Cmdline

	SystemdBoot, SystemdStub []byte
	GRUBBoot, GRUBCore       []byte // boot.img and a core.img whose prefix is BOOT's /grub
	GRUBHybrid, GRUBElTorito []byte // boot_hybrid.img and an El Torito image, for ISOs
}

// Boot is what a customization changes about booting.
type Boot struct {
	Cmdline []string     // kernel arguments
	Extra   *extent.Plan // a cpio that the kernel unpacks after the constant one: extensions, embedded files; or nil
}

// Initrd is everything the kernel unpacks: the initramfs with the customization's archive behind it. Archives may follow one another at
// multiples of 4 bytes (Linux Documentation/driver-api/early-userspace/buffer-format.rst).
func Initrd(p Parts, b Boot) (*extent.Plan, error) {
	if b.Extra == nil {
		return p.Initramfs, nil
	}
	at := (p.Initramfs.Size() + 3) &^ 3
	plan := extent.New(at + b.Extra.Size())
	return plan, errors.Join(plan.Nest(0, p.Initramfs), plan.Nest(at, b.Extra))
}

// UKI plans the unified kernel image, unsigned.
func UKI(p Parts, b Boot) (*extent.Plan, error) { return Keys{}.UKI(p, b) }

func newUKI(p Parts, b Boot) (uki.Image, error) {
	files, err := Initrd(p, b)
	if err != nil {
		return uki.Image{}, fmt.Errorf("planning initramfs: %w", err)
	}
	return uki.Image{
		Stub: p.SystemdStub, OSRelease: p.OSRelease, Cmdline: Cmdline(b.Cmdline), Linux: p.Kernel, Initrd: files,
	}, nil
}

// bootProgram is where firmware looks for a boot loader on a disk it knows nothing of (UEFI 2.10, 3.5.1.1).
func bootProgram(arch string) (string, error) {
	switch arch {
	case "amd64":
		return "EFI/BOOT/BOOTX64.EFI", nil
	case "arm64":
		return "EFI/BOOT/BOOTAA64.EFI", nil
	}
	return "", fmt.Errorf("cannot boot architecture %q by UEFI: there is amd64 and arm64", arch)
}

// UKIPath is where a release's UKI lies on the EFI partition. systemd-boot lists what is in that folder and takes the newest.
func UKIPath(version string) string { return "EFI/Linux/talos-" + version + ".efi" }

// loaderConf: the newest UKI is the default; a person at the console has three seconds; nobody edits a command line.
const loaderConf = "timeout 3\neditor no\n"
