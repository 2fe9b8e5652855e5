//go:build linux

// Command installer is the program of an installer container: it puts the system that the container brings on a disk.
//
//	installer install --disk /dev/sda
//	installer install --disk disk.raw --size 10GiB --extra-kernel-arg console=ttyS1 --meta 0xc=text
//
// It reads nothing but the container's own files and the disk, and needs no network. It does not upgrade a system.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
