package pack

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// folders are what an extension may bring files into, as in the field. What decides how a machine is run is not among
// them: no programs in the root's own folders, no passwd, no trusted certificates.
var folders = []string{
	"/etc/cri/conf.d",
	"/etc/vulkan",
	"/usr/etc/udev/rules.d",
	"/usr/lib/firmware",
	"/usr/lib/modules",
	"/usr/local",
	"/usr/share/egl",
	"/usr/share/glvnd",
}

// files are single files that an extension may bring: dynamic loaders, which programs name by their whole path, and what
// container toolkits of graphics cards look for.
var files = []string{
	"/usr/lib/ld-linux-aarch64.so.1",
	"/usr/lib64/ld-linux-x86-64.so.2",
	"/usr/sbin/ldconfig",
}

const (
	// own is where an image of the OS keeps what it was made with: its list of extensions, its machine configuration.
	own = "/usr/local/etc/talos"
	// modules is what needs a kernel that loads modules.
	modules = "/usr/lib/modules"
	// containers has the roots of extensions' services. In such a root absolute links mean that root.
	containers = "/usr/local/lib/containers/"
)

// merged are the links in the machine's root: /lib is /usr/lib.
var merged = []string{"/bin", "/lib", "/lib64", "/sbin"}

// usrMerge spells an absolute path as the machine's root has it.
func usrMerge(p string) string {
	for _, link := range merged {
		if within(p, link) {
			return "/usr" + p
		}
	}
	return p
}

func within(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }

// given reports whether p is a directory that the machine's root has, or one on the way to what an extension may bring:
// what mode it has is not the extension's to say.
func given(p string) bool {
	leads := func(to string) bool { return within(to, p) }
	return p == "/" || slices.ContainsFunc(folders, leads) || slices.ContainsFunc(files, leads) || within(own, p)
}

func allowed(p string) bool {
	return slices.Contains(files, p) || slices.ContainsFunc(folders, func(folder string) bool { return within(p, folder) })
}

// checkPath refuses what is no directory and lies where an extension brings nothing.
func checkPath(p string) error {
	switch {
	case within(p, own):
		return fmt.Errorf("cannot accept %s: %s is the image's own", p, own)
	case slices.Contains(folders, p):
		return fmt.Errorf("cannot accept %s: it must be a directory", p)
	case !allowed(p):
		return fmt.Errorf("cannot accept %s: an extension may bring only %s", p, strings.Join(slices.Concat(folders, files), ", "))
	}
	return nil
}

// checkMode refuses permissions that let a program or a person become somebody else.
func checkMode(p string, mode fs.FileMode) error {
	switch {
	case mode&0o6000 != 0:
		return fmt.Errorf("cannot accept %s: it is setuid or setgid (mode %o)", p, uint32(mode))
	case mode&0o002 != 0:
		return fmt.Errorf("cannot accept %s: everybody may write to it (mode %o)", p, uint32(mode))
	}
	return nil
}

// checkLink refuses a symbolic link at p that leads to where an extension brings nothing. It goes by the names alone:
// links that lead to links are checked one by one.
func checkLink(p, target string) error {
	to := target
	if path.IsAbs(target) {
		if rest, ok := strings.CutPrefix(p, containers); ok {
			name, _, _ := strings.Cut(rest, "/")
			to = containers + name + path.Clean(target)
		}
	} else {
		to = path.Join(strings.TrimPrefix(path.Dir(p), "/"), target)
		if to == ".." || strings.HasPrefix(to, "../") {
			return fmt.Errorf("cannot accept %s: its target %s leads out of the root", p, target)
		}
		to = "/" + to
	}
	if to = usrMerge(path.Clean(to)); !allowed(to) || within(to, own) {
		return fmt.Errorf("cannot accept %s: its target %s is outside of what an extension may bring", p, target)
	}
	return nil
}
