package assembly

import (
	"errors"
	"fmt"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/fat"
	"github.com/talos-factory/talos-factory/format/gpt"
	"github.com/talos-factory/talos-factory/format/grub"
	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/profiles/disk"
)

// Disk is a disk to boot from. Whether it boots by BIOS too is a matter of its layout.
type Disk struct {
	Parts      Parts
	Boot       Boot
	UKI        *extent.Plan // of Parts and Boot; signed, maybe
	Meta       meta.Values
	Layout     disk.Layout
	SectorSize int         // 0 means 512
	Enrollment *Enrollment // keys for firmware; or nil
}

// diskAssembly is a disk in the making.
type diskAssembly struct {
	Disk
	plan *extent.Plan
}

// step is one thing that is planned.
type step struct {
	Name      string
	partition string // left out where the layout lacks it
	do        func(*diskAssembly) error
}

// steps is how a disk comes about.
func steps() []step {
	return []step{
		{"partition table", "", (*diskAssembly).planTable},
		{"EFI: systemd-boot, the UKI, and what GRUB reads of the customization", disk.EFI, (*diskAssembly).planEFI},
		{"BIOS: GRUB's core image, found from the first sector", disk.BIOS, (*diskAssembly).planBIOS},
		{"BOOT: GRUB's slots A and B", disk.BOOT, (*diskAssembly).planBOOT},
		{"META: two copies of its values", disk.META, (*diskAssembly).planMETA},
	}
}

// Steps names what is planned for a disk of the layout, in order.
func Steps(l disk.Layout) []string {
	var names []string
	for _, s := range steps() {
		if _, ok := l.Find(s.partition); ok || s.partition == "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// Plan lays out the whole disk. STATE and EPHEMERAL stay empty: the machine formats them.
func (d Disk) Plan() (*extent.Plan, error) {
	if d.SectorSize == 0 {
		d.SectorSize = 512
	}
	if _, bios := d.Layout.Find(disk.BIOS); bios && d.SectorSize != 512 {
		return nil, fmt.Errorf("cannot make a disk with sectors of %d bytes that boots by BIOS: use the UEFI layout", d.SectorSize)
	}
	a := &diskAssembly{Disk: d}
	for _, s := range steps() {
		if _, ok := d.Layout.Find(s.partition); !ok && s.partition != "" {
			continue
		}
		if err := s.do(a); err != nil {
			return nil, fmt.Errorf("planning %s: %w", s.Name, err)
		}
	}
	return a.plan, a.plan.Err()
}

func (a *diskAssembly) planTable() (err error) {
	table := gpt.Table{DiskGUID: a.Layout.GUID, DiskSize: a.Layout.Size, SectorSize: a.SectorSize}
	for _, p := range a.Layout.Partitions {
		table.Partitions = append(table.Partitions, gpt.Partition{
			Name: p.Name, Type: p.Type, GUID: p.GUID, Start: p.Start, Size: p.Size, Attributes: p.Attributes,
		})
	}
	a.plan, err = table.Plan()
	return err
}

// place nests a partition's content.
func (a *diskAssembly) place(name string, content *extent.Plan) error {
	p, ok := a.Layout.Find(name)
	if !ok {
		return fmt.Errorf("internal error: layout has no partition %s", name)
	}
	return a.plan.Nest(p.Start, content)
}

func (a *diskAssembly) volume(name string, dirs []string, files ...fat.File) error {
	p, ok := a.Layout.Find(name)
	if !ok {
		return fmt.Errorf("internal error: layout has no partition %s", name)
	}
	volume, err := fat.Volume{
		Size: p.Size, SectorSize: a.SectorSize, Label: name, ID: disk.VolumeID(name),
		Hidden: uint32(p.Start / int64(a.SectorSize)), Dirs: dirs, Files: files,
	}.Plan()
	if err != nil {
		return err
	}
	return a.place(name, volume)
}

func (a *diskAssembly) planEFI() error {
	program, err := bootProgram(a.Parts.Arch)
	if err != nil {
		return err
	}
	files := []fat.File{
		{Path: program, Content: extent.FromBytes(a.Parts.SystemdBoot)},
		{Path: UKIPath(a.Parts.Version), Content: a.UKI},
	}
	loader, err := loaderFiles(a.Enrollment)
	if err != nil {
		return err
	}
	files = append(files, loader...)
	if _, bios := a.Layout.Find(disk.BIOS); bios {
		slot, err := slotFiles("A", a.Boot)
		if err != nil {
			return err
		}
		files = append(files, slot...)
	}
	return a.volume(disk.EFI, nil, files...)
}

func (a *diskAssembly) planBIOS() error {
	bios, _ := a.Layout.Find(disk.BIOS)
	lba := uint64(bios.Start / int64(a.SectorSize))
	code, err := grub.BootCode(a.Parts.GRUBBoot, lba)
	if err != nil {
		return err
	}
	core, err := grub.CoreImage(a.Parts.GRUBCore, lba, bios.Size)
	if err != nil {
		return err
	}
	return errors.Join(a.plan.PutBytes(0, code), a.plan.PutBytes(bios.Start, core))
}

// planBOOT makes BOOT of nothing but constant parts, so that it is the same bytes for every customization of a release.
func (a *diskAssembly) planBOOT() error {
	env, err := grub.EnvironmentBlock("slot=A")
	if err != nil {
		return err
	}
	return a.volume(disk.BOOT, []string{"B"},
		fat.File{Path: "A/vmlinuz", Content: a.Parts.Kernel},
		fat.File{Path: "A/initramfs.img", Content: a.Parts.Initramfs},
		fat.File{Path: "A/title.cfg", Content: extent.FromBytes([]byte("set title=" + a.Parts.Version + "\n"))},
		fat.File{Path: "grub/grub.cfg", Content: extent.FromBytes([]byte(grubConfig))},
		fat.File{Path: "grub/grubenv", Content: extent.FromBytes(env)},
	)
}

func (a *diskAssembly) planMETA() error {
	content, err := a.Meta.Plan()
	if err != nil {
		return err
	}
	return a.place(disk.META, content)
}
