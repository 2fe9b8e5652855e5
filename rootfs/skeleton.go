package rootfs

import "fmt"

// Users of the image. Nobody logs in: the names exist for people who read a process list.
const (
	passwd    = "root:x:0:0:root:/:/nonexistent\napid:x:50:50:apid:/:/nonexistent\ntrustd:x:51:51:trustd:/:/nonexistent\nnobody:x:65534:65534:nobody:/:/nonexistent\n"
	group     = "root:x:0:\napid:x:50:\ntrustd:x:51:\nnogroup:x:65534:\n"
	nsswitch  = "passwd: files\ngroup: files\nhosts: files dns\n"
	osRelease = `ID=talos
NAME="Talos Factory"
PRETTY_NAME="Talos Factory (%[1]s)"
VERSION_ID=%[1]s
BUILD_ID=%[2]s
HOME_URL="https://github.com/talos-factory/talos-factory"
`
)

// OSRelease returns the text of /etc/os-release (os-release(5)), which also goes into the UKI.
func OSRelease(version, buildID string) string { return fmt.Sprintf(osRelease, version, buildID) }

// skeleton is the part of the root that no package brings: directories, mount points and links.
func skeleton() []Entry {
	entries := []Entry{
		{Path: "/tmp", Kind: Directory, Mode: 0o1777},
		{Path: "/root", Kind: Directory, Mode: 0o700},
		{Path: "/bin", Kind: Symlink, Mode: 0o777, Target: "usr/bin"},
		{Path: "/sbin", Kind: Symlink, Mode: 0o777, Target: "usr/sbin"},
		{Path: "/lib", Kind: Symlink, Mode: 0o777, Target: "usr/lib"},
		{Path: "/lib64", Kind: Symlink, Mode: 0o777, Target: "usr/lib64"},
		{Path: "/etc/mtab", Kind: Symlink, Mode: 0o777, Target: "../proc/self/mounts"},
		{Path: "/usr/lib/os-release", Kind: Symlink, Mode: 0o777, Target: "../../etc/os-release"},
		{Path: "/var/run", Kind: Symlink, Mode: 0o777, Target: "../run"},
		{Path: "/usr/sbin/init", Kind: Symlink, Mode: 0o777, Target: "../bin/machined"},
		{Path: "/usr/bin/apid", Kind: Symlink, Mode: 0o777, Target: "machined"},
		{Path: "/usr/bin/trustd", Kind: Symlink, Mode: 0o777, Target: "machined"},
	}
	for _, path := range []string{
		"/boot", "/dev", "/etc", "/etc/cni", "/etc/containerd", "/etc/kubernetes", "/etc/ssl", "/etc/ssl/certs",
		"/mnt", "/opt", "/proc", "/run", "/sys", "/system", "/usr", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec",
		"/usr/libexec/kubernetes", "/usr/local", "/usr/local/etc", "/usr/local/etc/talos", "/usr/sbin", "/usr/share", "/var",
	} {
		entries = append(entries, Entry{Path: path, Kind: Directory, Mode: 0o755})
	}
	return entries
}

// texts are the small files the image is given as they are. The empty ones are what machined binds its own over.
func texts(version, buildID string) map[string]string {
	return map[string]string{
		"/etc/group":         group,
		"/etc/hostname":      "",
		"/etc/hosts":         "",
		"/etc/machine-id":    "",
		"/etc/nsswitch.conf": nsswitch,
		"/etc/os-release":    OSRelease(version, buildID),
		"/etc/passwd":        passwd,
		"/etc/resolv.conf":   "",
	}
}
