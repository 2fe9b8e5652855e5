//go:build linux

package disk

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/format/verity/superblock"
	"github.com/talos-factory/talos-factory/installer"
	"github.com/talos-factory/talos-factory/kernel/cmdline"
	"github.com/talos-factory/talos-factory/profiles/assembly"
	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

// maxLoader is the size up to which a boot loader is read into memory, as in every planner.
const maxLoader = 1 << 20

// content is what the container brings for one architecture.
type content struct {
	dir    *os.Root
	record installer.Record
	parts  assembly.Parts
	boot   assembly.Boot
	uki    *extent.Plan
	files  map[extent.Digest]string
}

// openContent reads the record and the boot loaders. The large files are only hashed, by hash.
func openContent(dir, arch string) (*content, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the installer's files: %w", err)
	}
	c := &content{dir: root, files: map[extent.Digest]string{}}
	if err := c.read(arch); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return c, nil
}

func (c *content) read(arch string) error {
	text, err := c.dir.ReadFile(installer.Path(arch, installer.RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot install for architecture %s: this installer has %s", arch, strings.Join(c.architectures(), ", "))
	}
	if err != nil {
		return err
	}
	if c.record, err = installer.ParseRecord(text); err != nil {
		return err
	}
	if c.record.Arch != arch {
		return fmt.Errorf("cannot install for architecture %s: its folder holds %s", arch, c.record.Arch)
	}
	c.parts = assembly.Parts{Arch: arch, Version: c.record.Version, OSRelease: c.record.OSRelease}
	c.boot.Cmdline = c.record.Cmdline
	loaders := map[string]*[]byte{installer.SystemdBoot: &c.parts.SystemdBoot}
	if !c.record.Signed {
		loaders[installer.SystemdStub] = &c.parts.SystemdStub
	}
	if c.record.BIOS {
		loaders[installer.GRUBBoot], loaders[installer.GRUBCore] = &c.parts.GRUBBoot, &c.parts.GRUBCore
	}
	for name, into := range loaders {
		if *into, err = c.loader(name); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
	}
	return nil
}

func (c *content) architectures() []string {
	var names []string
	entries, err := fs.ReadDir(c.dir.FS(), ".")
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if err != nil || len(names) == 0 {
		return []string{"none"}
	}
	return names
}

func (c *content) loader(name string) ([]byte, error) {
	file, err := c.dir.Open(installer.Path(c.record.Arch, name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxLoader+1))
	if err == nil && len(text) > maxLoader {
		err = fmt.Errorf("cannot use a boot loader of more than %d bytes", maxLoader)
	}
	return text, err
}

// hash makes plans of the large files. A signed UKI is all there is to a disk that does not boot by BIOS.
func (c *content) hash() error {
	wanted := map[string]**extent.Plan{installer.UKI: &c.uki}
	if c.record.BIOS || !c.record.Signed {
		wanted[installer.Kernel], wanted[installer.Initramfs] = &c.parts.Kernel, &c.parts.Initramfs
	}
	if c.record.Extra {
		wanted[installer.Extra] = &c.boot.Extra
	}
	for name, into := range wanted {
		var err error
		if *into, err = c.file(name); err != nil {
			return err
		}
	}
	return nil
}

func (c *content) file(name string) (*extent.Plan, error) {
	path := installer.Path(c.record.Arch, name)
	file, err := c.dir.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the installer's files: %w", err)
	}
	defer file.Close()
	hash := sha256.New()
	n, err := io.CopyBuffer(hash, onlyReader{file}, make([]byte, chunk))
	if err != nil {
		return nil, fmt.Errorf("hashing %s: %w", name, err)
	}
	blob := extent.Blob{SHA256: extent.Digest(hash.Sum(nil)), Size: n}
	c.files[blob.SHA256] = path
	return extent.FromBlob(blob), nil
}

// onlyReader hides WriterTo, which would pick a buffer of its own.
type onlyReader struct{ io.Reader }

// OpenBlob implements extent.Source.
func (c *content) OpenBlob(digest extent.Digest) (extent.ReaderAtCloser, error) {
	path, ok := c.files[digest]
	if !ok {
		return nil, fmt.Errorf("internal error: no file of the installer has digest %x", digest)
	}
	return c.dir.Open(path)
}

// customize applies a platform and kernel arguments, for which the UKI is made anew.
func (c *content) customize(platform string, args []string) (changed bool, err error) {
	if platform != "" && platform != c.record.Platform {
		args = append([]string{"talos.platform=" + platform}, args...)
	}
	if len(args) == 0 {
		return false, nil
	}
	if c.record.Signed {
		return false, errors.New("cannot change the platform or the kernel arguments: they are part of the image that is signed" +
			"\nhint: make an installer that has them, with `factory build installer --platform ... --extra-kernel-arg ...`")
	}
	if err := cmdline.Keep(superblock.Argument, args); err != nil {
		return false, err
	}
	if c.boot.Cmdline, err = cmdline.Merge(c.boot.Cmdline, args...); err != nil {
		return false, err
	}
	return true, nil
}

// layout is that of a disk with sectors of so many bytes.
func (c *content) layout(sector int) layout.Layout {
	if c.record.BIOS && sector == 512 {
		return layout.Metal()
	}
	return layout.UEFI()
}

// plan is the whole disk.
func (c *content) plan(l layout.Layout, sector int, values meta.Values, newUKI bool) (_ *extent.Plan, err error) {
	if newUKI {
		if c.uki, err = assembly.UKI(c.parts, c.boot); err != nil {
			return nil, fmt.Errorf("planning UKI: %w", err)
		}
	}
	return assembly.Disk{Parts: c.parts, Boot: c.boot, UKI: c.uki, Meta: values, Layout: l, SectorSize: sector}.Plan()
}
