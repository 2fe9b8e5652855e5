package assembly

import (
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/fat"
	"github.com/talos-factory/talos-factory/format/gpt"
	"github.com/talos-factory/talos-factory/format/grub"
	"github.com/talos-factory/talos-factory/format/iso9660"
	"github.com/talos-factory/talos-factory/format/pe"
	"github.com/talos-factory/talos-factory/profiles/disk"
)

//go:embed iso.cfg
var isoConfig string

// ISO is an image that boots from a CD and from a USB disk, by UEFI and, with GRUB among its parts, by BIOS. Every large
// part is in it once (docs/adr/0009): the kernel and initramfs that GRUB reads are ranges of the UKI on the EFI volume.
//
// The plan takes most of Parts.GRUBElTorito from a blob, so whoever reads the ISO has to have it under its digest. As a literal
// it would leave less room for the tables of the EFI volume.
type ISO struct {
	Parts Parts
	Boot  Boot
	UKI   *extent.Plan   // of Parts and Boot; signed, maybe
	Label string         // volume identifier; "" means VolumeLabel of the release's version
	Time  time.Time      // of the volume and its files
	Files []iso9660.File // further files, which nothing needs to boot

	Enrollment *Enrollment // keys for firmware; or nil
}

// Files of the ISO.
const (
	isoEFI       = "boot/efi.img" // the EFI volume, also a partition
	isoKernel    = "boot/vmlinuz"
	isoInitramfs = "boot/initramfs.img"
	isoConfigAt  = "boot/grub/grub.cfg" // GRUB's prefix is /boot/grub
	isoElTorito  = "boot/grub/eltorito.img"
)

// The ISO's own identity. A machine that runs from it may have a disk of ours too, so these are others than a disk's,
// and so is the partition's name.
const (
	isoDiskGUID      = "6F4C1E52-3D0B-8A57-9E21-5B0C7D2F6A10"
	isoPartitionGUID = "6F4C1E52-3D0B-8A57-9E21-5B0C7D2F6A11"
	isoPartition     = "ISO-EFI"
)

const (
	// maxLiterals is every plan's limit; isoOwn is what the ISO takes of it beside the EFI volume: both partition tables,
	// directories, GRUB's first sectors.
	maxLiterals = 1 << 20
	isoOwn      = 64 << 10

	// backupTable is what the second partition table takes at the end: 128 entries of 128 bytes, and the header (UEFI 2.10, 5.3.1).
	backupTable = 33 * 512

	// cdLoad is how many sectors of 512 bytes a BIOS loads of GRUB's El Torito image; it loads the rest itself.
	cdLoad = 4
	// toTheEnd is the size of a UEFI boot image that reaches up to the volume's end: the field has no room for
	// 32 MiB and more (UEFI 2.10, 13.3.2.1).
	toTheEnd = 1
)

// VolumeLabel is the volume identifier of a release's ISO.
func VolumeLabel(version string) string {
	label := strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper("TALOS_"+version))
	return label[:min(len(label), 32)]
}

// Plan lays out the ISO.
func (i ISO) Plan() (*extent.Plan, error) {
	efi, err := i.efiVolume()
	if err != nil {
		return nil, fmt.Errorf("planning EFI volume: %w", err)
	}
	volume, err := i.volume(efi)
	if err != nil {
		return nil, fmt.Errorf("planning ISO 9660 volume: %w", err)
	}
	layout, err := volume.Layout()
	if err != nil {
		return nil, fmt.Errorf("planning ISO 9660 volume: %w", err)
	}
	plan, err := volume.Plan()
	if err != nil {
		return nil, fmt.Errorf("planning ISO 9660 volume: %w", err)
	}
	if err := i.putTable(plan, layout, efi.plan.Size()); err != nil {
		return nil, fmt.Errorf("planning partition table: %w", err)
	}
	if err := i.putGRUB(plan, layout); err != nil {
		return nil, fmt.Errorf("planning GRUB: %w", err)
	}
	return plan, plan.Err()
}

// bios says whether the ISO boots by BIOS too.
func (i ISO) bios() bool { return i.Parts.GRUBElTorito != nil }

// efiVolume is the FAT file system that UEFI boots from, and where in it the parts of the UKI lie.
type efiVolume struct {
	plan              *extent.Plan
	kernel, initramfs iso9660.Range
}

func (i ISO) efiVolume() (efiVolume, error) {
	program, err := bootProgram(i.Parts.Arch)
	if err != nil {
		return efiVolume{}, err
	}
	loader, err := loaderFiles(i.Enrollment)
	if err != nil {
		return efiVolume{}, err
	}
	name := UKIPath(i.Parts.Version)
	volume := fat.Volume{
		Label: isoPartition, ID: disk.VolumeID(isoPartition), Time: i.Time, Files: append([]fat.File{
			{Path: program, Content: extent.FromBytes(i.Parts.SystemdBoot)},
			{Path: name, Content: i.UKI},
		}, loader...),
	}
	plan, err := i.fit(&volume)
	if err != nil {
		return efiVolume{}, err
	}
	at, err := volume.Offset(name)
	if err != nil {
		return efiVolume{}, err
	}
	image, err := pe.Parse(i.UKI.NewReader(nil), i.UKI.Size()) // headers are literal
	if err != nil {
		return efiVolume{}, fmt.Errorf("looking into the UKI: %w", err)
	}
	part := func(section string) iso9660.Range {
		s, ok := image.Section(section)
		if !ok {
			err = errors.Join(err, fmt.Errorf("cannot find section %s in the UKI", section))
		}
		return iso9660.Range{Path: isoEFI, Offset: at + int64(s.Offset), Size: s.DataSize()}
	}
	return efiVolume{plan: plan, kernel: part(".linux"), initramfs: part(".initrd")}, err
}

// fit gives the volume the size it needs and plans it. FAT32 has no less than 65,525 clusters, and each one in use
// takes 8 literal bytes, so where these would be too many, the volume grows until its clusters are larger.
func (i ISO) fit(volume *fat.Volume) (*extent.Plan, error) {
	const room = maxLiterals - isoOwn
	// The tables have 2 entries of 4 bytes a cluster of at least 512: less than a sixtieth. The rest is for directories and alignment.
	need := i.UKI.Size() + i.UKI.Size()/60 + int64(len(i.Parts.SystemdBoot)) + 2*disk.MiB
	var plan *extent.Plan
	// The smallest volumes with clusters of 512 bytes to 32 KiB: so many clusters, and the tables.
	for cluster := int64(512); cluster <= 32<<10; cluster *= 2 {
		smallest := 65536*cluster + disk.MiB
		largest := 2*smallest - 2*disk.MiB
		if need > largest && cluster < 32<<10 {
			continue
		}
		volume.Size = (max(need, smallest) + disk.MiB - 1) / disk.MiB * disk.MiB
		var err error
		if plan, err = volume.Plan(); err != nil {
			return nil, err
		}
		if plan.Literals() <= room {
			break
		}
	}
	return plan, nil
}

func (i ISO) volume(efi efiVolume) (iso9660.Volume, error) {
	label := i.Label
	if label == "" {
		label = VolumeLabel(i.Parts.Version)
	}
	volume := iso9660.Volume{
		ID: label, Application: "Talos Factory " + i.Parts.Version, Time: i.Time, Tail: backupTable,
		Files: append(slices.Clone(i.Files), iso9660.File{Path: isoEFI, Content: efi.plan, Align: gpt.Align}),
	}
	if i.bios() {
		config, err := i.config()
		if err != nil {
			return volume, err
		}
		volume.Files = append(volume.Files,
			iso9660.File{Path: isoKernel, Alias: efi.kernel},
			iso9660.File{Path: isoInitramfs, Alias: efi.initramfs},
			iso9660.File{Path: isoConfigAt, Content: extent.FromBytes([]byte(config))},
			iso9660.File{Path: isoElTorito, Content: extent.New(int64(len(i.Parts.GRUBElTorito)))}, // put when its place is known
		)
		volume.Boot = append(volume.Boot, iso9660.Boot{Platform: iso9660.BIOS, Path: isoElTorito, Sectors: cdLoad})
	}
	volume.Boot = append(volume.Boot, iso9660.Boot{Platform: iso9660.UEFI, Path: isoEFI, Sectors: toTheEnd})
	return volume, nil
}

// config is GRUB's menu.
func (i ISO) config() (string, error) {
	args, err := grubArguments(i.Boot.Cmdline)
	if err != nil {
		return "", err
	}
	return strings.NewReplacer("@VERSION@", i.Parts.Version, "@ARGUMENTS@", args).Replace(isoConfig), nil
}

// putTable makes the EFI volume a partition, for UEFI that boots from a USB disk.
func (i ISO) putTable(plan *extent.Plan, layout *iso9660.Layout, size int64) error {
	start, err := layout.Offset(isoEFI)
	if err != nil {
		return err
	}
	table := gpt.Table{DiskGUID: isoDiskGUID, DiskSize: layout.Size, SectorSize: 512, Partitions: []gpt.Partition{
		{Name: isoPartition, Type: disk.TypeEFISystem, GUID: isoPartitionGUID, Start: start, Size: size},
	}}
	content, err := table.Plan()
	if err != nil {
		return err
	}
	return plan.Nest(0, content)
}

// putGRUB places the image that a BIOS starts from a CD, and in the first sector what starts the same from a USB disk.
func (i ISO) putGRUB(plan *extent.Plan, layout *iso9660.Layout) error {
	if !i.bios() {
		return nil
	}
	at, err := layout.Offset(isoElTorito)
	if err != nil {
		return err
	}
	lba := uint32(at / iso9660.Sector)
	image, err := grub.ElToritoImage(i.Parts.GRUBElTorito, iso9660.SystemArea/iso9660.Sector, lba)
	if err != nil {
		return err
	}
	code, err := grub.HybridCode(i.Parts.GRUBHybrid, lba)
	if err != nil {
		return err
	}
	head := int64(grub.ElToritoHead)
	blob := extent.Blob{SHA256: sha256.Sum256(i.Parts.GRUBElTorito), Size: int64(len(image))}
	return errors.Join(
		plan.PutBytes(0, code),
		plan.PutBytes(at, image[:head]),
		plan.PutRange(at+head, blob, head, blob.Size-head),
	)
}
