// Package repository_test holds what is true of the repository as a whole: which package may import which, what no
// file may name, and how long the README may be.
package repository_test

import (
	"bufio"
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/talos-factory/talos-factory/"

// layers says for each folder what of ours its non-test code may import, beside itself; the longest matching folder
// counts. It is section 2 of the design: inputs flow pkgs -> kernel, rootfs, initramfs -> profiles -> factory ->
// installer -> signing, host and machine meet only at leaves, and daemons meet at sockets and resources.
var layers = map[string][]string{
	"api":                  {},
	"version":              {},
	"config":               {"version"},
	"config/strict":        {},
	"extension":            {"config/strict"},
	"extension/pack":       {"extension", "config/strict", "build", "pkgs", "format"},
	"build":                {},
	"build/oci":            {"build"},
	"format":               {"format/extent"},
	"format/cpio":          {"format/extent"},
	"format/uki":           {"format/extent", "format/pe"},
	"format/vmdk":          {"format/extent", "format/splice"},
	"format/ova":           {"format/extent", "format/tar"},
	"format/judge":         {},
	"format/verity":        {"format/extent"},
	"profiles/disk":        {},
	"kernel/cmdline":       {},
	"kernel/kspp":          {},
	"pkgs":                 {"build"},
	"kernel":               {"build", "pkgs"},
	"rootfs":               {"build", "pkgs"},
	"initramfs":            {"build", "pkgs", "format"},
	"profiles/assembly":    {"format", "profiles/disk"},
	"profiles":             {"profiles/disk", "kernel/cmdline", "config/strict", "format/meta"},
	"factory":              {"build", "pkgs", "config", "extension", "kernel", "rootfs", "initramfs", "profiles", "format", "version"},
	"installer":            {"format", "profiles/disk", "profiles/assembly", "kernel/cmdline"},
	"installer/image":      {"build", "factory", "profiles", "installer", "format", "profiles/assembly"},
	"signing":              {"api", "config/strict"},
	"signing/authvar":      {},
	"signing/authenticode": {"format/extent", "format/pe"},
	"signing/pcr":          {"format/extent", "format/pe"},
	"machine/state":        {"api", "config", "version"},
	"machine/apid":         {"api", "config", "version", "machine/state"},
	"machine/trustd":       {"api", "config", "version", "machine/state"},
	"machine/machined":     {"api", "config", "version", "machine/state", "machine/trustclient", "format", "profiles/disk", "kernel/cmdline", "kernel/kspp", "extension"},
	"machine":              {"api", "config", "version"},
	"cmd/factory":          {"build", "installer", "format", "extension", "pkgs", "kernel", "rootfs", "initramfs", "profiles", "factory", "signing", "version"},
	"cmd/stub":             {"build"},
	"cmd/init":             {"format/verity/superblock"},
	"cmd/installer":        {"installer", "format"},
	"cmd/machined":         {"machine"},
	"cmd/talosctl":         {"api", "config", "version"},
	"signing/verify":       {"config/strict"},
	"signing/purl":         {"pkgs"},
	"signing/provenance":   {"build", "factory", "pkgs", "profiles", "signing/purl", "signing/verify"},
	"signing/sbom":         {"build", "factory", "pkgs", "signing/purl"},
	"signing/attest":       {"signing/provenance", "signing/verify"},
	"e2e":                  {"build", "extension", "installer", "profiles", "pkgs", "factory", "rootfs", "format"},
}

func TestLayers(t *testing.T) {
	checked := 0
	for _, path := range goFiles(t) {
		folder := filepath.ToSlash(filepath.Dir(path))
		allowed, own := rule(folder)
		if allowed == nil && folder != "." {
			t.Errorf("%s: folder %s has no place in the layering; add it to the table, or move the file", path, folder)
			continue
		}
		for _, imported := range ourImports(t, path) {
			checked++
			if within(imported, own) || slices.ContainsFunc(allowed, func(a string) bool { return within(imported, a) }) {
				continue
			}
			t.Errorf("%s: cannot import %s from %s: only %s", path, imported, own, strings.Join(allowed, ", "))
		}
	}
	if checked < 20 {
		t.Errorf("only %d imports were checked: the test looks at the wrong place", checked)
	}
}

func rule(folder string) (allowed []string, own string) {
	for own = folder; own != "."; own = filepath.ToSlash(filepath.Dir(own)) {
		if allowed, ok := layers[own]; ok {
			return allowed, own
		}
	}
	return nil, folder
}

func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"_out", "bin", "tools", "testdata"}, d.Name())) {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func ourImports(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if rest, ok := strings.CutPrefix(name, module); ok {
			ours = append(ours, rest)
		}
	}
	return ours
}

// TestNoClockNoChance: what makes artifacts looks at no clock and draws no lots, so that a year later it makes the same. Progress
// may.
func TestNoClockNoChance(t *testing.T) {
	allowed := map[string]string{
		"extension/pack/registry.go": "progress events have a time",
	}
	forbidden := regexp.MustCompile(`\btime\.(Now|Since)\(|"math/rand|"crypto/rand"`)
	for _, path := range goFiles(t) {
		top, _, _ := strings.Cut(filepath.ToSlash(path), "/")
		if !slices.Contains([]string{"extension", "factory", "format", "initramfs", "installer", "kernel", "profiles", "rootfs"}, top) || allowed[path] != "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if found := forbidden.Find(text); found != nil {
			t.Errorf("%s: artifacts would depend on %s", path, found)
		}
	}
}

// TestNamesNoHost: where this host installs from is the host's affair. The forbidden names are read from it.
func TestNamesNoHost(t *testing.T) {
	hosts := forbiddenHosts(t)
	if len(hosts) == 0 {
		t.Fatal("this host names neither a Go proxy nor a Debian mirror: nothing to look for")
	}
	for _, path := range trackedFiles(t) {
		if filepath.Base(path) == "go.sum" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue // deleted in the work tree
		}
		for _, host := range hosts {
			if i := bytes.Index(text, []byte(host)); i >= 0 {
				t.Errorf("%s:%d names %s, a host this machine installs from", path, 1+bytes.Count(text[:i], []byte("\n")), host)
			}
		}
	}
}

var hostPattern = regexp.MustCompile(`[a-z+]+://([^/\s:,|]+)`)

func forbiddenHosts(t *testing.T) []string {
	t.Helper()
	proxy, err := exec.Command("go", "env", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := string(proxy)
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text += activeLines(t, file)
		}
	}
	var hosts []string
	for _, match := range hostPattern.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(hosts, match[1]) {
			hosts = append(hosts, match[1])
		}
	}
	return hosts
}

func activeLines(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var active strings.Builder
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "#") {
			active.WriteString(line)
		}
	}
	return active.String()
}

func trackedFiles(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("listing files: %v", err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}

var skipPattern = regexp.MustCompile(`\b[tb]\.Skip(?:f|Now)?\(.*`)

// TestSkipsAreKnown: a test that is skipped tests nothing. Each place that may skip stands in testdata/skips.txt, where a
// reviewer sees it come.
func TestSkipsAreKnown(t *testing.T) {
	var skips strings.Builder
	for _, path := range slices.Sorted(slices.Values(trackedFiles(t))) {
		if !strings.HasSuffix(path, "_test.go") || path == "repository_test.go" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue // deleted in the work tree
		}
		for _, skip := range skipPattern.FindAllString(string(text), -1) {
			skips.WriteString(path + ": " + skip + "\n")
		}
	}
	known, err := os.ReadFile(filepath.Join("testdata", "skips.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(known), skips.String()); diff != "" {
		t.Errorf("testdata/skips.txt (-want +got):\n%s", diff)
	}
}

func TestReadmeIsShort(t *testing.T) {
	file, err := os.Open("README.md")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := 0
	for scan := bufio.NewScanner(file); scan.Scan(); {
		lines++
	}
	if lines > 120 {
		t.Errorf("README.md has %d lines, more than 120", lines)
	}
}
