//go:build linux

// Package sysctl has the kernel parameters the machine sets at start, and writes them.
//
// It does not set what the kernel's configuration or command line already fixes, and does not judge the values.
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Parameter is one sysctl. Optional ones depend on what the kernel was built with.
type Parameter struct {
	Key, Value string
	Optional   bool
}

// Defaults are the parameters of every machine: the Kernel Self-Protection Project's recommended settings
// (https://kspp.github.io/Recommended_Settings#sysctls) and what a machine that runs containers needs.
func Defaults() []Parameter {
	return []Parameter{
		{Key: "kernel.printk_devkmsg", Value: "on", Optional: true}, // our log lines must not be dropped; refused if the command line set it
		{Key: "kernel.kptr_restrict", Value: "2"},
		{Key: "kernel.dmesg_restrict", Value: "1"},
		{Key: "kernel.perf_event_paranoid", Value: "3", Optional: true},
		{Key: "kernel.randomize_va_space", Value: "2"},
		{Key: "kernel.kexec_load_disabled", Value: "1", Optional: true},
		{Key: "kernel.yama.ptrace_scope", Value: "2", Optional: true},
		{Key: "kernel.unprivileged_bpf_disabled", Value: "1", Optional: true},
		{Key: "net.core.bpf_jit_harden", Value: "2", Optional: true},
		{Key: "dev.tty.ldisc_autoload", Value: "0", Optional: true},
		{Key: "dev.tty.legacy_tiocsti", Value: "0", Optional: true},
		{Key: "vm.unprivileged_userfaultfd", Value: "0", Optional: true},
		{Key: "fs.protected_symlinks", Value: "1"},
		{Key: "fs.protected_hardlinks", Value: "1"},
		{Key: "fs.protected_fifos", Value: "2"},
		{Key: "fs.protected_regular", Value: "2"},
		{Key: "fs.suid_dumpable", Value: "0"},
		{Key: "kernel.core_pattern", Value: "|/bin/false"}, // there is no such file: no core dumps
		{Key: "kernel.panic", Value: "10"},
		{Key: "kernel.panic_on_oops", Value: "1"},
		{Key: "kernel.pid_max", Value: "262144"},
		{Key: "vm.overcommit_memory", Value: "1"}, // kubelet's protectKernelDefaults wants these four
		{Key: "vm.panic_on_oom", Value: "0"},
		{Key: "kernel.keys.root_maxkeys", Value: "1000000", Optional: true},
		{Key: "kernel.keys.root_maxbytes", Value: "25000000", Optional: true},
		{Key: "net.ipv4.ip_forward", Value: "1"},
		{Key: "net.ipv4.icmp_ignore_bogus_error_responses", Value: "1"},
		{Key: "net.ipv4.icmp_echo_ignore_broadcasts", Value: "1"},
		{Key: "net.ipv6.conf.default.accept_ra", Value: "2", Optional: true}, // a router too learns its routes (ip-sysctl.rst); see network for links that exist
		{Key: "net.ipv6.conf.default.forwarding", Value: "1", Optional: true},
		{Key: "net.ipv6.conf.all.forwarding", Value: "1", Optional: true},
	}
}

// Path is the parameter's file below /proc/sys.
func (p Parameter) Path() string { return strings.ReplaceAll(p.Key, ".", "/") }

// Apply writes the parameters below root ("/proc/sys"). All are tried; the errors are of
// those refused.
func Apply(root string, params []Parameter) []error {
	var errs []error

	for _, p := range params {
		err := os.WriteFile(filepath.Join(root, p.Path()), []byte(p.Value+"\n"), 0) // printk_devkmsg refuses a value without the newline
		if err == nil || p.Optional {
			continue
		}

		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("this kernel does not have it")
		}

		errs = append(errs, fmt.Errorf("setting %s: %w", p.Key, err))
	}

	return errs
}
