// Talosctl talks to the machines' API.
//
// It makes a cluster's configuration files, gives one to a new machine, and asks machines
// what they are doing. `talosctl help COMMAND` is each command's manual. It changes nothing
// on a machine except by the API.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}
