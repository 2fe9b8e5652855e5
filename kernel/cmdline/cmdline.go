// Package cmdline composes kernel command lines: the hardening defaults of the image, a platform's arguments and a
// user's own, in that order, with override and negation.
//
// It does not know what an argument means, and does not parse /proc/cmdline; quoting follows the kernel's
// admin-guide/kernel-parameters: spaces inside double quotes belong to the value.
package cmdline

import (
	"fmt"
	"strings"
)

// Hardening lists the boot parameters of the KSPP's recommended settings that the built-in defaults of the kernel
// configuration do not already give (kspp.github.io/Recommended_Settings, "kernel command line options").
func Hardening() []string {
	return []string{
		"slab_nomerge",                  // caches of different types never share a slab
		"pti=on",                        // page-table isolation even where the CPU says it is not needed
		"vsyscall=none",                 // no fixed-address entry points
		"randomize_kstack_offset=on",    // another stack offset on each system call
		"page_alloc.shuffle=1",          // free lists in random order
		"hash_pointers=always",          // never print a kernel address
		"proc_mem.force_override=never", // /proc/PID/mem obeys page protections
		"iommu.strict=1",                // a device loses access when its buffer is unmapped
	}
}

// Console lists the arguments that make boot readable on a screen and on the first serial port. The last console
// is the one /dev/console stands for.
func Console() []string {
	return []string{"consoleblank=0", "printk.devkmsg=on", "console=tty0", "console=ttyS0,115200"}
}

// Merge appends extra arguments to base. A key=value argument replaces earlier ones of its key, except `console`, of
// which a machine may have several; an argument `-key` removes every earlier `key` and `key=...`, and is not kept itself.
func Merge(base []string, extra ...string) ([]string, error) {
	args := append([]string(nil), base...)
	for _, arg := range extra {
		if err := check(arg); err != nil {
			return nil, err
		}
		if key, ok := strings.CutPrefix(arg, "-"); ok {
			args = without(args, key)
			continue
		}
		key, _, hasValue := strings.Cut(arg, "=")
		if hasValue && key != "console" {
			args = without(args, key)
		}
		args = append(args, arg)
	}
	return args, nil
}

// Keep refuses extra arguments that would change or remove the one with the key.
func Keep(key string, extra []string) error {
	for _, arg := range extra {
		if name, _, _ := strings.Cut(strings.TrimLeft(arg, `-"`), "="); name == key {
			return fmt.Errorf("cannot use kernel argument %q: %s belongs to the release", arg, key)
		}
	}
	return nil
}

func check(arg string) error {
	switch {
	case arg == "" || arg == "-":
		return fmt.Errorf("cannot use an empty kernel argument")
	case strings.ContainsAny(arg, "\n\x00"):
		return fmt.Errorf("cannot use kernel argument %q: it holds a line break or a NUL", arg)
	case strings.ContainsAny(arg, " \t") && strings.Count(arg, `"`) < 2:
		return fmt.Errorf("cannot use kernel argument %q: give each argument by itself, or quote its value", arg)
	}
	return nil
}

func without(args []string, key string) []string {
	kept := args[:0:0]
	for _, arg := range args {
		if name, _, _ := strings.Cut(arg, "="); name != key {
			kept = append(kept, arg)
		}
	}
	return kept
}
