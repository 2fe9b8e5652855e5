//go:build linux

// Package etcfiles keeps the few files of /etc that change while the machine runs. They lie on a tmpfs and are bind-mounted over the
// empty files of the read-only root.
//
// It does not know the network; who does tells it the contents. A file is rewritten in place, because a bind mount is to the file
// itself and would not follow a rename.
package etcfiles

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Names are the files.
func Names() []string { return []string{"hosts", "resolv.conf", "hostname", "machine-id"} }

// Dir is where the files really are.
const Dir = "/system/etc"

// Bind makes the files and mounts them over those of etc.
func Bind(dir, etc string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	for _, name := range Names() {
		source, target := filepath.Join(dir, name), filepath.Join(etc, name)
		if err := os.WriteFile(source, nil, 0o644); err != nil {
			return err
		}

		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s over %s: %w", source, target, err)
		}
	}

	return nil
}

// Write replaces a file's content.
func Write(dir, name, content string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)
}

// Hosts is the content of hosts(5) for a machine with these names and addresses.
func Hosts(hostname, domain string, addresses []netip.Addr) string {
	var out strings.Builder

	out.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\nff02::1 ip6-allnodes\nff02::2 ip6-allrouters\n")

	names := hostname
	if domain != "" {
		names = hostname + "." + domain + " " + hostname
	}

	for _, a := range addresses {
		fmt.Fprintf(&out, "%s %s\n", a, names)
	}

	return out.String()
}

// Resolv is the content of resolv.conf(5), which knows at most three servers.
func Resolv(servers []netip.Addr, search []string) string {
	var out strings.Builder

	for _, s := range servers[:min(3, len(servers))] {
		fmt.Fprintf(&out, "nameserver %s\n", s)
	}

	if len(search) > 0 {
		fmt.Fprintf(&out, "search %s\n", strings.Join(search, " "))
	}

	return out.String()
}
