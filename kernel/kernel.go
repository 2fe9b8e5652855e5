// Package kernel describes the build of the machine's kernel: configuration fragments, the pinned Debian source and
// the pinned clang, as one step of the build engine whose outputs are vmlinuz and the resolved configuration.
//
// It does not run anything and does not choose packages: the trees with the source and the tools are arguments.
package kernel

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/talos-factory/talos-factory/build"
)

// Names of the step's outputs.
const (
	Vmlinuz = "vmlinuz" // bzImage, zstd
	Config  = "config"  // the resolved .config
)

// epoch is the build time written into the kernel (`uname -v`): a constant, since a release is dated by its manifest.
const epoch = "Thu Jan  1 00:00:00 UTC 2026"

// seedText is what the layout of structures is derived from; see docs/adr/0005-randstruct-seed.md.
const seedText = "talos-factory structure layout 1"

// objects is how many steps make prints for the present fragments (counted in a build log); it only feeds the
// progress display, which shows a larger count as it comes.
const objects = 3230

//go:embed config/*.config
var fragments embed.FS

//go:embed build.sh
var script []byte

// Step returns the build of the kernel for arch. tools is a root with clang 19, lld, make and what a kernel build
// calls; source holds Debian's linux-source package.
func Step(arch, host string, tools, source *build.Tree) (*build.Step, error) {
	if arch != "amd64" {
		return nil, fmt.Errorf("cannot build a kernel for %s: there are fragments for amd64 only", arch)
	}
	inputs := []build.Input{
		{Path: "/in/build.sh", Executable: true, Bytes: script},
		{Path: "/in/randstruct.seed", Bytes: seed()},
	}
	names, err := fs.Glob(fragments, "config/*.config")
	if err != nil {
		return nil, fmt.Errorf("listing kernel fragments: %w", err)
	}
	for _, name := range names {
		text, err := fragments.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading kernel fragment: %w", err)
		}
		inputs = append(inputs, build.Input{Path: "/in/" + strings.TrimPrefix(name, "config/"), Bytes: settings(text)})
	}
	return &build.Step{
		Name: "kernel " + arch,
		Argv: []string{"/bin/sh", "/in/build.sh"},
		Env: map[string]string{
			"PATH":                   "/usr/lib/llvm-19/bin:/usr/bin:/usr/sbin:/bin",
			"HOME":                   "/build",
			"LC_ALL":                 "C",
			"ARCH":                   "x86_64",
			"KBUILD_BUILD_TIMESTAMP": epoch,
			"KBUILD_BUILD_USER":      "factory",
			"KBUILD_BUILD_HOST":      "factory",
			"KBUILD_BUILD_VERSION":   "1",
		},
		Host: host, Target: arch,
		Mounts:   []build.Mount{{Path: "/", Tree: tools}, {Path: "/src", Tree: source}},
		Inputs:   inputs,
		Outputs:  []string{Vmlinuz, Config},
		Timeout:  4 * time.Hour,
		Progress: progress(),
	}, nil
}

// settings is a fragment without its comments, so that better words about an option do not build a kernel anew.
func settings(fragment []byte) []byte {
	var kept []byte
	for line := range bytes.Lines(fragment) {
		if bytes.HasPrefix(line, []byte("CONFIG_")) || bytes.HasPrefix(line, []byte("# CONFIG_")) {
			kept = append(kept, line...)
		}
	}
	return kept
}

func seed() []byte {
	sum := sha256.Sum256([]byte(seedText))
	return []byte(hex.EncodeToString(sum[:]) + "\n")
}

// progress counts make's lines: "  CC      path", "  AR      path", "  LD      path" and such are one step each.
func progress() func(string) (int64, int64, bool) {
	var done int64
	return func(line string) (int64, int64, bool) {
		verb, rest, ok := strings.Cut(strings.TrimPrefix(line, "  "), " ")
		if !ok || !strings.HasPrefix(line, "  ") || verb == "" || verb != strings.ToUpper(verb) || strings.TrimSpace(rest) == "" {
			return 0, 0, false
		}
		done++
		return done, max(objects, done), true
	}
}
