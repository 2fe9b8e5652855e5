//go:build linux

// Command machined is the machine's programs in one file: machined itself (PID 1, under the names init and machined), apid and
// trustd. Which one it is, is the name it was started by.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/talos-factory/talos-factory/machine/apid"
	"github.com/talos-factory/talos-factory/machine/machined"
	"github.com/talos-factory/talos-factory/machine/trustd"
)

func main() {
	if err := run(context.Background(), filepath.Base(os.Args[0]), os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, args []string) error {
	// What ps shows would be "exe", because machined starts its daemons as /proc/self/exe.
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)

	switch name {
	case "apid":
		return apid.Main(ctx, args[1:])
	case "trustd":
		return trustd.Main(ctx, args[1:])
	default:
		// machined forks restricted children from threads it throws away, and the first thread cannot be thrown away.
		runtime.LockOSThread()

		return machined.Main(ctx, args)
	}
}
