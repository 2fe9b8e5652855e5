package factory

import (
	"fmt"
	"io"
	"strings"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/fat"
	"github.com/talos-factory/talos-factory/format/gpt"
	"github.com/talos-factory/talos-factory/format/grub"
	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/format/uki"
	"github.com/talos-factory/talos-factory/initramfs"
	"github.com/talos-factory/talos-factory/profiles/disk"
	"github.com/talos-factory/talos-factory/rootfs"
)

const sectorSize = 512

// assembly is a disk image in the making. Its steps are a list, so that it can be read before it is run.
type assembly struct {
	store     *build.Store
	blobs     map[string]build.Blob // by output name
	version   string
	osRelease string
	cmdline   string
	layout    disk.Layout

	initramfs *extent.Plan
	uki       *extent.Plan
	plan      *extent.Plan
}

// assemblySteps is how a disk image comes about.
var assemblySteps = []struct {
	name string
	do   func(*assembly) error
}{
	{"initramfs: /init and the squashfs as a cpio", (*assembly).planInitramfs},
	{"UKI: stub, command line, kernel and initramfs as one EFI program", (*assembly).planUKI},
	{"partition table", (*assembly).planTable},
	{"EFI: systemd-boot and the UKI", (*assembly).planEFI},
	{"BIOS: GRUB's core image, found from the first sector", (*assembly).planBIOS},
	{"BOOT: GRUB's slots A and B", (*assembly).planBOOT},
	{"META: two empty copies", (*assembly).planMETA},
}

func (a *assembly) run() (*extent.Plan, error) {
	for _, step := range assemblySteps {
		if err := step.do(a); err != nil {
			return nil, fmt.Errorf("planning %s: %w", step.name, err)
		}
	}
	return a.plan, a.plan.Err()
}

func (a *assembly) blob(name string) extent.Blob {
	b := a.blobs[name]
	return extent.Blob{SHA256: b.Digest, Size: b.Size}
}

// small reads a blob of at most 1 MiB: a boot loader that has to be patched or appended to.
func (a *assembly) small(name string) ([]byte, error) {
	blob := a.blobs[name]
	if blob.Size > 1<<20 {
		return nil, fmt.Errorf("cannot read %s into a plan: it has %d bytes, more than 1 MiB", name, blob.Size)
	}
	file, err := a.store.Open(blob.Digest)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return text, nil
}

func (a *assembly) planInitramfs() (err error) {
	a.initramfs, err = initramfs.Plan(a.blob(initProgram), a.blob(rootfs.Squashfs))
	return err
}

func (a *assembly) planUKI() error {
	stub, err := a.small(systemdStub)
	if err != nil {
		return err
	}
	a.uki, err = uki.Image{
		Stub:      stub,
		OSRelease: a.osRelease,
		Cmdline:   a.cmdline,
		Linux:     extent.FromBlob(a.blob(vmlinuz)),
		Initrd:    a.initramfs,
	}.Plan()
	return err
}

func (a *assembly) planTable() (err error) {
	table := gpt.Table{DiskGUID: a.layout.GUID, DiskSize: a.layout.Size, SectorSize: sectorSize}
	for _, p := range a.layout.Partitions {
		table.Partitions = append(table.Partitions, gpt.Partition{
			Name: p.Name, Type: p.Type, GUID: p.GUID, Start: p.Start, Size: p.Size, Attributes: p.Attributes,
		})
	}
	a.plan, err = table.Plan()
	return err
}

// place nests a partition's content.
func (a *assembly) place(name string, content *extent.Plan) error {
	p, ok := a.layout.Find(name)
	if !ok {
		return fmt.Errorf("internal error: layout has no partition %s", name)
	}
	return a.plan.Nest(p.Start, content)
}

func (a *assembly) volume(name string, dirs []string, files ...fat.File) error {
	p, ok := a.layout.Find(name)
	if !ok {
		return fmt.Errorf("internal error: layout has no partition %s", name)
	}
	volume, err := fat.Volume{
		Size: p.Size, Label: name, ID: disk.VolumeID(name), Hidden: uint32(p.Start / sectorSize), Dirs: dirs, Files: files,
	}.Plan()
	if err != nil {
		return err
	}
	return a.place(name, volume)
}

func (a *assembly) planEFI() error {
	loader, err := a.small(systemdBoot)
	if err != nil {
		return err
	}
	return a.volume(disk.EFI, nil,
		fat.File{Path: "EFI/BOOT/BOOTX64.EFI", Content: extent.FromBytes(loader)},
		fat.File{Path: "EFI/Linux/talos-" + a.version + ".efi", Content: a.uki},
		fat.File{Path: "loader/loader.conf", Content: extent.FromBytes([]byte(loaderConf))},
	)
}

// loaderConf: the newest UKI is the default; a person at the console has three seconds; nobody edits a command line.
const loaderConf = "timeout 3\neditor no\n"

func (a *assembly) planBIOS() error {
	bios, ok := a.layout.Find(disk.BIOS)
	if !ok {
		return fmt.Errorf("internal error: layout has no partition %s", disk.BIOS)
	}
	bootImg, err := a.small(grubBoot)
	if err != nil {
		return err
	}
	coreImg, err := a.small(grubCore)
	if err != nil {
		return err
	}
	lba := uint64(bios.Start / sectorSize)
	code, err := grub.BootCode(bootImg, lba)
	if err != nil {
		return err
	}
	core, err := grub.CoreImage(coreImg, lba, bios.Size)
	if err != nil {
		return err
	}
	if err := a.plan.PutBytes(0, code); err != nil {
		return err
	}
	return a.plan.PutBytes(bios.Start, core)
}

func (a *assembly) planBOOT() error {
	env, err := grub.EnvironmentBlock("slot=A")
	if err != nil {
		return err
	}
	config := strings.NewReplacer("@VERSION@", a.version, "@CMDLINE@", a.cmdline).Replace(grubConfig)
	return a.volume(disk.BOOT, []string{"B"},
		fat.File{Path: "A/vmlinuz", Content: extent.FromBlob(a.blob(vmlinuz))},
		fat.File{Path: "A/initramfs.img", Content: a.initramfs},
		fat.File{Path: "grub/grub.cfg", Content: extent.FromBytes([]byte(config))},
		fat.File{Path: "grub/grubenv", Content: extent.FromBytes(env)},
	)
}

func (a *assembly) planMETA() error {
	content, err := meta.Values{}.Plan()
	if err != nil {
		return err
	}
	return a.place(disk.META, content)
}
