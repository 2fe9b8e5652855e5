// Command factory builds machine images from pinned inputs, and boots them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/talos-factory/talos-factory/build"
)

func main() {
	if build.IsStub() {
		build.StubMain()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for an orderly end
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
