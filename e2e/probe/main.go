// Command probe is what the VM tests run in a container on the machine: it shows that it ran, and sends signals to the
// machine's processes, which nothing else on a machine without a shell could do.
//
//	probe hello            prints the kernel's name and its own process ID
//	probe kill PID         sends SIGKILL to a process of the machine
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "hello":
		release, err := os.ReadFile("/proc/sys/kernel/osrelease")
		if err != nil {
			return err
		}
		fmt.Printf("hello from a container on Linux %s as process %d\n", strings.TrimSpace(string(release)), os.Getpid())
		return nil
	case len(args) == 2 && args[0] == "kill":
		pid, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("reading process ID: %w", err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("killing %d: %w", pid, err)
		}
		fmt.Println("killed", pid)
		return nil
	}
	return fmt.Errorf("cannot run %q: there is hello and kill PID", args)
}
