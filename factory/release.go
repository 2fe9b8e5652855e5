// Package factory turns a checkout into artifacts: it names the steps that make the parts of a release, and plans images
// from what they made.
//
// Steps are cached by the engine; plans are made anew each time, since they cost nothing. It draws nothing on a
// terminal and signs nothing by itself: who has keys hands in what signs.
package factory

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/kernel"
	"github.com/talos-factory/talos-factory/pkgs"
	"github.com/talos-factory/talos-factory/profiles/assembly"
	"github.com/talos-factory/talos-factory/rootfs"
)

// Names of the outputs a disk image is made of.
const (
	vmlinuz     = kernel.Vmlinuz
	initProgram = "init"
	installProg = "installer"
	systemdBoot = "systemd-boot.efi"
	systemdStub = "systemd-stub.efi"
	grubBoot    = "boot.img"
	grubCore    = "core.img"
	grubHybrid  = "boot_hybrid.img"
	grubTorito  = "eltorito.img"
)

// Release is the parts of one architecture, as steps that make them.
type Release struct {
	Arch    string
	Version string
	BuildID string // hash of everything the kernel and the root are made of

	Kernel, Loaders, Init, Root, Program *build.Step // Program is the installer; nil in a release that was opened

	// Pack packs installers; nil where none are wanted.
	Pack Packer

	// Keys sign boot loaders and UKIs; none do in a development build.
	Keys assembly.Keys

	lock  *pkgs.Lock
	host  string
	ready map[string]build.Blob // parts by name, where there is nothing to build
}

// NewRelease reads the checkout's version, lock and recipes, and describes how its parts are made for arch. It runs
// nothing.
func NewRelease(checkout, arch string) (*Release, error) {
	if arch != "amd64" {
		return nil, fmt.Errorf("cannot build for architecture %q: there is amd64", arch)
	}
	version, err := os.ReadFile(filepath.Join(checkout, "VERSION"))
	if err != nil {
		return nil, fmt.Errorf("reading version: %w", err)
	}
	lock, err := pkgs.Load(filepath.Join(checkout, "pkgs"))
	if err != nil {
		return nil, err
	}
	recipes, err := pkgs.LoadRecipes(filepath.Join(checkout, "pkgs"))
	if err != nil {
		return nil, err
	}
	if err := lock.Check(recipes); err != nil {
		return nil, err
	}
	r := &Release{Arch: arch, Version: strings.TrimSpace(string(version)), lock: lock, host: runtime.GOARCH}
	if err := r.describe(checkout, recipes); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Release) describe(checkout string, recipes *pkgs.Recipes) (err error) {
	if r.Kernel, err = r.kernel(); err != nil {
		return err
	}
	if r.Loaders, err = r.loaders(); err != nil {
		return err
	}
	if r.Init, err = r.lock.CommandStep(checkout, "./cmd/init", r.Arch); err != nil {
		return err
	}
	if r.Program, err = r.lock.CommandStep(checkout, "./cmd/installer", r.Arch); err != nil {
		return err
	}
	machined, err := r.lock.CommandStep(checkout, "./cmd/machined", r.Arch)
	if err != nil {
		return err
	}
	contents, err := rootfs.Gather(r.lock, recipes, machined, r.Arch)
	if err != nil {
		return err
	}
	tools, err := r.Tree("squashfs")
	if err != nil {
		return err
	}
	if r.BuildID, err = buildID(r.Version, contents.Text(tools), append(contents.Steps(), r.Kernel)); err != nil {
		return err
	}
	r.Root, err = contents.Step(tools, r.host, r.Version, r.BuildID)
	return err
}

// Steps lists the steps that make the parts of images; none in a release that was opened. The installer, which has the planners
// in it and so changes with them, is for installer images alone.
func (r *Release) Steps() []*build.Step {
	if r.ready != nil {
		return nil
	}
	return []*build.Step{r.Kernel, r.Loaders, r.Init, r.Root}
}

// Lock is what the release's inputs are pinned by. Its Fetcher is for the caller to set.
func (r *Release) Lock() *pkgs.Lock { return r.lock }

// Tree is a locked toolset of the host.
func (r *Release) Tree(set string) (*build.Tree, error) { return r.lock.DebTree(set, r.host) }

func (r *Release) kernel() (*build.Step, error) {
	tools, err := r.Tree("kernel-clang")
	if err != nil {
		return nil, err
	}
	source, err := r.Tree("linux-source")
	if err != nil {
		return nil, err
	}
	return kernel.Step(r.Arch, r.host, tools, source)
}

// biosModules are what GRUB needs to find BOOT on a GPT disk and to run grub.cfg; nothing is loaded from disk later.
var biosModules = []string{
	"biosdisk", "part_gpt", "fat", "normal", "linux", "loadenv", "test", "regexp", "configfile", "echo", "serial", "terminal", "reboot", "halt", "minicmd",
}

// isoModules are what GRUB needs to find the ISO it was started from, on a CD or on a USB disk, and to run its grub.cfg.
var isoModules = []string{
	"biosdisk", "iso9660", "normal", "linux", "test", "configfile", "echo", "serial", "terminal", "reboot", "halt", "minicmd",
}

// loaders makes GRUB's images and takes systemd-boot and its stub out of their package.
func (r *Release) loaders() (*build.Step, error) {
	tools, err := r.Tree("grub")
	if err != nil {
		return nil, err
	}
	systemd, err := r.lock.DebTree("systemd-boot", r.Arch)
	if err != nil {
		return nil, err
	}
	script := strings.Join([]string{
		// BOOT is the third partition; with no disk named, GRUB takes the one it was started from.
		"grub-mkimage -O i386-pc -d /usr/lib/grub/i386-pc -p '(,gpt3)/grub' -o /out/" + grubCore + " " + strings.Join(biosModules, " "),
		"cp /usr/lib/grub/i386-pc/boot.img /out/" + grubBoot,
		"grub-mkimage -O i386-pc-eltorito -d /usr/lib/grub/i386-pc -p /boot/grub -o /out/" + grubTorito + " " + strings.Join(isoModules, " "),
		"cp /usr/lib/grub/i386-pc/boot_hybrid.img /out/" + grubHybrid,
		"cp /systemd/usr/lib/systemd/boot/efi/systemd-bootx64.efi /out/" + systemdBoot,
		"cp /systemd/usr/lib/systemd/boot/efi/linuxx64.efi.stub /out/" + systemdStub,
	}, "\n")
	return &build.Step{
		Name: "boot loaders " + r.Arch,
		Argv: []string{"/bin/sh", "-euc", script},
		Env:  map[string]string{"PATH": "/usr/bin:/usr/sbin", "LC_ALL": "C"},
		Host: r.host, Target: r.Arch,
		Mounts:  []build.Mount{{Path: "/", Tree: tools}, {Path: "/systemd", Tree: systemd}},
		Outputs: []string{grubCore, grubBoot, grubTorito, grubHybrid, systemdBoot, systemdStub},
	}, nil
}
