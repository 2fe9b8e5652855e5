// Package purl names locked packages as package URLs (github.com/package-url/purl-spec), by which scanners find what is known of
// them. It reads none.
package purl

import (
	"net/url"
	"strings"

	"github.com/talos-factory/talos-factory/pkgs"
)

// Debian names a binary package of the Debian archive.
func Debian(p pkgs.Package) string {
	return "pkg:deb/debian/" + escape(p.Name) + "@" + escape(p.Version) + "?arch=" + p.Architecture
}

// Go names a module, whose path keeps its slashes. The specification's type golang wants lower case.
func Go(module, version string) string {
	parts := strings.Split(strings.ToLower(module), "/")
	for i := range parts {
		parts[i] = escape(parts[i])
	}
	return "pkg:golang/" + strings.Join(parts, "/") + "@" + escape(version)
}

// escape is percent-encoding as purl has it: a colon stays, "+" and "~" are those of versions.
func escape(s string) string {
	return strings.NewReplacer("%3A", ":", "+", "%2B").Replace(url.PathEscape(s))
}
