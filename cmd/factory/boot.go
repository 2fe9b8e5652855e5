package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/factory/vm"
)

func bootCommand(opts *options) *cobra.Command {
	var firmware, disk string
	var forward, memory, cpus int
	var sizeGiB int64
	cmd := &cobra.Command{
		Use:   "boot FILE",
		Short: "Boot an image in QEMU, its serial console on this terminal",
		Long: `Boot starts a virtual machine from the image and a firmware and nothing else. QEMU is a pinned package; KVM is used
where it works. The image is left as it is: the machine gets a sparse copy as its disk, which is thrown away in the end
unless --disk names a file to keep it in. Ctrl-C stops the machine.`,
		Example: `  factory boot _out/metal-amd64.raw
  factory boot _out/metal-amd64.raw --firmware bios --forward 50000
  factory boot _out/metal-amd64.raw --disk node1.disk      # the same machine again, with its state`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			fw, err := vm.ParseFirmware(firmware)
			if err != nil {
				return withHint(err, "factory boot %s --firmware bios", args[0])
			}
			if _, err := os.Stat(args[0]); err != nil {
				return withHint(fmt.Errorf("opening image: %w", err), "make image")
			}
			release, err := opts.release(runtime.GOARCH)
			if err != nil {
				return err
			}
			qemu, err := release.Tree("qemu")
			if err != nil {
				return err
			}
			s, err := opts.open(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.close()) }()
			if disk == "" {
				dir, err := os.MkdirTemp("", "factory-boot-")
				if err != nil {
					return fmt.Errorf("making a disk: %w", err)
				}
				defer os.RemoveAll(dir)
				disk = filepath.Join(dir, "disk")
			}
			if _, err := os.Stat(disk); errors.Is(err, os.ErrNotExist) {
				if err := vm.NewDisk(disk, args[0], sizeGiB<<30); err != nil {
					return err
				}
			}
			if _, release, err := s.engine.MakeTree(cmd.Context(), qemu); err != nil {
				return fmt.Errorf("preparing QEMU: %w", err)
			} else {
				defer release()
			}
			if err := s.display.Close(); err != nil { // the terminal is the machine's from here on
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "booting %s by %s; API on 127.0.0.1:%d; Ctrl-C stops the machine\n", args[0], fw, forward)
			err = vm.Run(cmd.Context(), s.engine, qemu, vm.Machine{
				Disk: disk, Firmware: fw, Forward: map[int]int{forward: 50000}, Memory: memory, CPUs: cpus, Console: cmd.OutOrStdout(),
			})
			if errors.Is(err, context.Canceled) { // Ctrl-C is how a machine is stopped
				fmt.Fprintln(cmd.ErrOrStderr(), "\nmachine stopped")
				return nil
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&firmware, "firmware", string(vm.UEFI), "firmware: uefi or bios")
	flags.IntVar(&forward, "forward", 50000, "port of 127.0.0.1 that reaches the machine's API")
	flags.StringVar(&disk, "disk", "", "file that is the machine's disk; made from the image if missing")
	flags.Int64Var(&sizeGiB, "disk-size", 10, "size of a new disk, GiB")
	flags.IntVar(&memory, "memory", 2048, "memory, MiB")
	flags.IntVar(&cpus, "cpus", 2, "virtual CPUs")
	return cmd
}
