package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/factory/vm"
)

// bootFlags are what the machine shall be like.
type bootFlags struct {
	firmware string
	disk     string
	sizeGiB  int64
	usb      bool
	forward  int
	memory   int
	cpus     int
}

func bootCommand(opts *options) *cobra.Command {
	var f bootFlags
	cmd := &cobra.Command{
		Use:   "boot FILE",
		Short: "Boot an image in QEMU, its serial console on this terminal",
		Long: `Boot starts a virtual machine from the image and a firmware and nothing else. QEMU is a pinned package; KVM is used
where it works. The image is left as it is: the machine gets a sparse copy as its disk, which is thrown away in the end
unless --disk names a file to keep it in. An ISO is put in a CD drive (--usb: on a USB stick), beside an empty disk.
Ctrl-C stops the machine.`,
		Example: `  factory boot _out/metal-amd64.raw
  factory boot _out/metal-amd64.raw --firmware bios --forward 50000
  factory boot _out/metal-amd64.raw --disk node1.disk      # the same machine again, with its state
  factory boot _out/metal-amd64.iso --usb`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return boot(cmd, opts, f, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.firmware, "firmware", string(vm.UEFI), "firmware: uefi, secureboot (without keys yet) or bios")
	flags.IntVar(&f.forward, "forward", 50000, "port of 127.0.0.1 that reaches the machine's API")
	flags.StringVar(&f.disk, "disk", "", "file that is the machine's disk; made from the image if missing")
	flags.Int64Var(&f.sizeGiB, "disk-size", 10, "size of a new disk, GiB")
	flags.BoolVar(&f.usb, "usb", false, "attach an ISO as a USB stick, not as a CD")
	flags.IntVar(&f.memory, "memory", 2048, "memory, MiB")
	flags.IntVar(&f.cpus, "cpus", 2, "virtual CPUs")
	return cmd
}

func boot(cmd *cobra.Command, opts *options, f bootFlags, image string) (err error) {
	firmware, err := vm.ParseFirmware(f.firmware)
	if err != nil {
		return withHint(err, "factory boot %s --firmware bios", image)
	}
	if _, err := os.Stat(image); err != nil {
		return withHint(fmt.Errorf("opening image: %w", err), "make image")
	}
	lock, err := opts.tools()
	if err != nil {
		return err
	}
	qemu, err := lock.DebTree("qemu", runtime.GOARCH)
	if err != nil {
		return err
	}
	s, err := opts.open(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	drives, remove, err := f.drives(image)
	if err != nil {
		return err
	}
	defer remove()
	if _, release, err := s.engine.MakeTree(cmd.Context(), qemu); err != nil {
		return fmt.Errorf("preparing QEMU: %w", err)
	} else {
		defer release()
	}
	if err := s.display.Close(); err != nil { // the terminal is the machine's from here on
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "booting %s by %s; API on 127.0.0.1:%d; Ctrl-C stops the machine\n", image, firmware, f.forward)
	err = vm.Run(cmd.Context(), s.engine, qemu, vm.Machine{
		Drives: drives, Firmware: firmware, Forward: map[int]int{f.forward: 50000}, Memory: f.memory, CPUs: f.cpus, Console: cmd.OutOrStdout(),
	})
	if errors.Is(err, context.Canceled) { // Ctrl-C is how a machine is stopped
		fmt.Fprintln(cmd.ErrOrStderr(), "\nmachine stopped")
		return nil
	}
	return err
}

// drives makes the machine's own disk, and says what the machine has to boot from.
func (f bootFlags) drives(image string) (drives []vm.Drive, remove func(), err error) {
	remove = func() {}
	file := f.disk
	if file == "" {
		dir, err := os.MkdirTemp("", "factory-boot-")
		if err != nil {
			return nil, nil, fmt.Errorf("making a disk: %w", err)
		}
		remove = func() { os.RemoveAll(dir) }
		file = filepath.Join(dir, "disk")
	}
	defer func() {
		if err != nil {
			remove()
		}
	}()
	// The disk comes first: once an ISO has installed to it, the machine boots from it.
	drives = []vm.Drive{{File: file, Format: diskFormat(image)}}
	from, size := image, f.sizeGiB<<30
	switch {
	case strings.HasSuffix(image, ".iso"):
		cd := vm.Drive{File: image, Bus: vm.CD}
		if f.usb {
			cd = vm.Drive{File: image, Bus: vm.USB, ReadOnly: true}
		}
		drives, from = append(drives, cd), ""
	case drives[0].Format != "raw":
		size = 0 // the size is inside
	}
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		if err := vm.NewDisk(file, from, size); err != nil {
			return nil, nil, err
		}
	}
	return drives, remove, nil
}

// diskFormat is QEMU's name for what a file of that name is.
func diskFormat(file string) string {
	switch filepath.Ext(file) {
	case ".qcow2":
		return "qcow2"
	case ".vhd":
		return "vpc"
	case ".vmdk":
		return "vmdk"
	}
	return "raw"
}
