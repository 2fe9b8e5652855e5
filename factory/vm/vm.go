// Package vm boots a disk image in QEMU, which is a pinned package run in the engine's tool sandbox: nothing of the
// host but the disk file, the terminal and the network sockets reaches it.
//
// It gives the machine an artifact and a firmware and nothing else (no kernel, no initrd from outside). It does not
// know what is in the image; tests and `factory boot` look at the console and the API.
package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/talos-factory/talos-factory/build"
)

// Firmware is what the virtual machine starts with.
type Firmware string

// The firmwares of an amd64 machine.
const (
	UEFI       Firmware = "uefi"       // OVMF without Secure Boot
	SecureBoot Firmware = "secureboot" // OVMF with Secure Boot, in setup mode: it has no keys yet
	BIOS       Firmware = "bios"       // SeaBIOS
)

// ParseFirmware reads a --firmware flag.
func ParseFirmware(s string) (Firmware, error) {
	switch f := Firmware(s); f {
	case UEFI, SecureBoot, BIOS:
		return f, nil
	}
	return "", fmt.Errorf("cannot boot with firmware %q: there is uefi, secureboot and bios", s)
}

// program is OVMF's code; "" for a BIOS.
func (f Firmware) program() string {
	switch f {
	case UEFI:
		return "/usr/share/OVMF/OVMF_CODE_4M.fd"
	case SecureBoot:
		return "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"
	}
	return ""
}

// chipset is what a machine of that firmware needs: with Secure Boot, nobody but the firmware itself may write its variables
// (OVMF's README, SMM_REQUIRE).
func (f Firmware) chipset() []string {
	if f == SecureBoot {
		return []string{"-machine", "q35,smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on", "-global", "ICH9-LPC.disable_s3=1"}
	}
	return []string{"-machine", "q35"}
}

// Machine is a virtual machine to run once.
type Machine struct {
	Drives   []Drive     // what it may boot from, in this order
	Firmware Firmware    //
	Netboot  string      // file that its network card boots by TFTP, before any drive: an iPXE script, or with UEFI an EFI program
	Forward  map[int]int // TCP ports of 127.0.0.1 -> ports of the machine
	Memory   int         // MiB, 0 means 2048
	CPUs     int         // 0 means 2
	Console  io.Writer   // what the first serial port prints
	Keyboard io.Reader   // what is typed into it; nil for nothing
}

// Run boots the machine and returns when it powers off or ctx ends. qemu is a tree with qemu-system-x86, OVMF and
// SeaBIOS.
func Run(ctx context.Context, engine *build.Engine, qemu *build.Tree, m Machine) error {
	binds, err := m.binds()
	if err != nil {
		return err
	}
	state, err := os.MkdirTemp("", "factory-vm-")
	if err != nil {
		return fmt.Errorf("making machine state: %w", err)
	}
	defer os.RemoveAll(state)
	accel := acceleration()
	tool := build.Tool{
		Tree:  qemu,
		Argv:  m.arguments(accel),
		Env:   map[string]string{"PATH": "/usr/bin"},
		Binds: append(binds, build.Bind{Host: state, Path: "/vm/state", Writable: true}),
		Net:   true,
		Stdin: m.Keyboard, Stdout: m.Console, Stderr: m.Console,
	}
	if accel == kvm {
		tool.Devices = []string{"/dev/kvm"}
	}
	if m.Firmware.program() != "" {
		if err := copyVariables(ctx, engine, qemu, filepath.Join(state, "vars.fd")); err != nil {
			return err
		}
	}
	if err := engine.Run(ctx, tool); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("running QEMU: %w", err)
	}
	return nil
}

const (
	kvm = "kvm"
	tcg = "tcg,thread=multi"
)

// acceleration picks KVM only where the CPU offers it and the device opens: the device node alone proves nothing.
func acceleration() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !(strings.Contains(string(info), " vmx ") || strings.Contains(string(info), " svm ")) {
		return tcg
	}
	dev, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return tcg
	}
	dev.Close()
	return kvm
}

func (m Machine) arguments(accel string) []string {
	cpu := "max"
	if accel == kvm {
		cpu = "host"
	}
	args := []string{
		"/usr/bin/qemu-system-x86_64", "-no-user-config", "-nodefaults", "-display", "none", "-vga", "none",
		"-accel", accel, "-cpu", cpu,
		"-smp", strconv.Itoa(orDefault(m.CPUs, 2)), "-m", strconv.Itoa(orDefault(m.Memory, 2048)),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-device", "virtio-rng-pci",
	}
	args = append(args, m.Firmware.chipset()...)
	args = append(args, m.network()...)
	if slices.ContainsFunc(m.Drives, func(d Drive) bool { return d.Bus == USB }) {
		args = append(args, "-device", "qemu-xhci,id=usb")
	}
	for i, drive := range m.Drives {
		args = append(args, drive.arguments(i)...)
	}
	if code := m.Firmware.program(); code != "" {
		args = append(args,
			"-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+code,
			"-drive", "if=pflash,unit=1,format=raw,file=/vm/state/vars.fd")
	}
	return args
}

// network is one card. It has a boot ROM only where it shall boot: the ROM takes seconds.
func (m Machine) network() []string {
	var b strings.Builder
	b.WriteString("user,id=net")
	card := "virtio-net-pci,netdev=net,romfile="
	if m.Netboot != "" {
		b.WriteString(",tftp=/vm/netboot,bootfile=" + filepath.Base(m.Netboot))
		card = "virtio-net-pci,netdev=net,bootindex=0"
	}
	for host, guest := range m.Forward {
		fmt.Fprintf(&b, ",hostfwd=tcp:127.0.0.1:%d-:%d", host, guest)
	}
	return []string{"-netdev", b.String(), "-device", card}
}

func orDefault(value, fallback int) int {
	if value == 0 {
		return fallback
	}
	return value
}

// copyVariables gives the machine its own empty UEFI variable store.
func copyVariables(ctx context.Context, engine *build.Engine, qemu *build.Tree, path string) error {
	root, release, err := engine.MakeTree(ctx, qemu)
	if err != nil {
		return fmt.Errorf("preparing QEMU: %w", err)
	}
	defer release()
	vars, err := os.ReadFile(filepath.Join(root, "usr/share/OVMF/OVMF_VARS_4M.fd"))
	if err != nil {
		return fmt.Errorf("reading UEFI variables: %w", err)
	}
	if err := os.WriteFile(path, vars, 0o600); err != nil {
		return fmt.Errorf("writing UEFI variables: %w", err)
	}
	return nil
}

// NewDisk makes a machine's disk at path: a sparse copy of image, grown to size bytes (0: as it is); or, without an image, an empty
// disk. It refuses to replace a file, and a disk of that name is always whole.
func NewDisk(path, image string, size int64) (err error) {
	to, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("making disk: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(to.Name())) }()
	if image != "" {
		if size, err = copyImage(to, image, size); err != nil {
			return errors.Join(err, to.Close())
		}
	}
	if err := errors.Join(to.Truncate(size), to.Close()); err != nil {
		return fmt.Errorf("making disk %s: %w", path, err)
	}
	if err := os.Link(to.Name(), path); err != nil { // unlike a rename, it never replaces
		return fmt.Errorf("making disk: %w", err)
	}
	return nil
}

// copyImage copies an image to a disk and returns the disk's size.
func copyImage(to *os.File, image string, size int64) (int64, error) {
	from, err := os.Open(image)
	if err != nil {
		return 0, fmt.Errorf("opening image: %w", err)
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return 0, fmt.Errorf("opening image: %w", err)
	}
	if size == 0 {
		size = info.Size()
	}
	if size < info.Size() {
		return 0, fmt.Errorf("cannot make a disk of %d bytes: image %s has %d", size, image, info.Size())
	}
	if err := copySparse(to, from, info.Size()); err != nil {
		return 0, fmt.Errorf("copying image: %w", err)
	}
	return size, nil
}
