package sbom_test

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/pkgs"
	"github.com/talos-factory/talos-factory/signing/sbom"
)

var checkout = filepath.Join("..", "..")

// release describes the checkout's release, once.
var release = sync.OnceValues(func() (*factory.Release, error) { return factory.NewRelease(checkout, "amd64") })

func inputs(t *testing.T) (*factory.Release, *pkgs.Recipes) {
	t.Helper()
	r, err := release()
	if err != nil {
		t.Fatal(err)
	}
	recipes, err := pkgs.LoadRecipes(filepath.Join(checkout, "pkgs"))
	if err != nil {
		t.Fatal(err)
	}
	return r, recipes
}

// listed are the paths of the root, by what the committed list says they are: e2e compares that list with the squashfs.
func listed(t *testing.T) (all, regular []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, "e2e", "testdata", "root.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		all = append(all, f[2])
		if f[0][0] == '-' {
			regular = append(regular, f[2])
		}
	}
	if len(regular) < 20 {
		t.Fatalf("the list has %d files: it is not the root's", len(regular))
	}
	return all, regular
}

// TestEveryFileHasAPackage: what is in the squashfs and what the SBOM knows are the same.
func TestEveryFileHasAPackage(t *testing.T) {
	r, recipes := inputs(t)
	owners, err := sbom.Owners(r, recipes)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := listed(t)
	if diff := cmp.Diff(all, slices.Sorted(maps.Keys(owners))); diff != "" {
		t.Errorf("the root's list and the SBOM's (-list +SBOM):\n%s", diff)
	}
	for path, want := range map[string]string{
		"/usr/bin/machined": sbom.Ours, "/etc/hosts": sbom.Ours, "/usr/bin/runc": "runc", "/usr/sbin/mkfs.xfs": "xfsprogs",
		"/etc/ssl/certs/ca-certificates.crt": "ca-certificates", "/usr/lib/x86_64-linux-gnu/libc.so.6": "glibc",
	} {
		if owners[path] != want {
			t.Errorf("%s: got package %s, want %s", path, owners[path], want)
		}
	}
}

// files are as ReadRoot would have them, with a Go program whose modules are some of go.sum's. Their contents are their names: what is
// really packed, only a build knows.
func files(t *testing.T, program sbom.Packed) map[string]sbom.Packed {
	t.Helper()
	_, regular := listed(t)
	packed := map[string]sbom.Packed{}
	for _, path := range regular {
		one, two := sha1.Sum([]byte(path)), sha256.Sum256([]byte(path))
		p := sbom.Packed{}
		if path == "/usr/bin/machined" {
			p = program
		}
		p.SHA1, p.SHA256 = hex.EncodeToString(one[:]), hex.EncodeToString(two[:])
		packed[path] = p
	}
	return packed
}

var program = sbom.Packed{Go: "go1.26.8", Modules: []sbom.Module{{Path: "golang.org/x/sys", Version: "v0.49.0"}}}

var subject = sbom.Subject{
	Name: "metal-amd64.raw", SHA256: sha256.Sum256([]byte("metal")),
	Extensions: []factory.UsedExtension{{Name: "tools_x", Version: "v1", Source: "registry.example/tools", Digest: "sha256:" + strings.Repeat("ab", 32)}},
}

func document(t *testing.T) []byte {
	t.Helper()
	r, recipes := inputs(t)
	osis, err := sbom.Describe(checkout, r, recipes, files(t, program))
	if err != nil {
		t.Fatal(err)
	}
	text, err := osis.Document(subject)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestDocument has the SPDX project's own library read and check a document.
func TestDocument(t *testing.T) {
	text := document(t)
	if !bytes.Equal(text, document(t)) {
		t.Error("two documents of one artifact differ")
	}
	d, err := spdxjson.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(d); err != nil {
		t.Error(err)
	}
	described, err := spdxlib.GetDescribedPackageIDs(d)
	if err != nil || len(described) != 1 || described[0] != "Package-artifact" {
		t.Errorf("it describes %v, %v", described, err)
	}
	_, regular := listed(t)
	if len(d.Files) != len(regular) {
		t.Errorf("it has %d files, want %d", len(d.Files), len(regular))
	}
	contained := map[string]int{}
	for _, r := range d.Relationships {
		if r.Relationship == "CONTAINS" {
			contained[string(r.RefB.ElementRefID)]++
		}
	}
	for _, f := range d.Files {
		if contained[string(f.FileSPDXIdentifier)] != 1 || f.LicenseConcluded == "" || f.LicenseConcluded == "NOASSERTION" {
			t.Errorf("file %s is in %d packages, licence %q", f.FileName, contained[string(f.FileSPDXIdentifier)], f.LicenseConcluded)
		}
	}
	versions := map[string]string{}
	for _, p := range d.Packages {
		versions[p.PackageName] = p.PackageVersion
	}
	for name, want := range map[string]string{"golang.org/x/sys": "v0.49.0", "Go": "1.26.8", "tools_x": "v1"} {
		if versions[name] != want {
			t.Errorf("package %s: got version %q, want %q", name, versions[name], want)
		}
	}
}

// TestUnknown: what the inputs do not account for is an error, not a gap.
func TestUnknown(t *testing.T) {
	r, recipes := inputs(t)
	stray := files(t, program)
	stray["/usr/bin/stray"] = sbom.Packed{SHA1: "00", SHA256: "00"}
	for summary, all := range map[string]map[string]sbom.Packed{
		"file":     stray,
		"module":   files(t, sbom.Packed{Go: "go1.26.8", Modules: []sbom.Module{{Path: "golang.org/x/sys", Version: "v0.0.1"}}}),
		"compiler": files(t, sbom.Packed{Go: "go1.2"}),
	} {
		if _, err := sbom.Describe(checkout, r, recipes, all); err == nil {
			t.Errorf("an unknown %s is described", summary)
		}
	}
}

// TestParts: a release that was pulled brings digests of its parts. Its files are described all the same, and nothing is asserted of them.
func TestParts(t *testing.T) {
	r, _ := inputs(t)
	d := factory.Description{Version: r.Version, Parts: map[string]build.Blob{"rootfs.sqsh": {Digest: build.Sum([]byte("root")), Size: 4}, "vmlinuz": {Digest: build.Sum([]byte("kernel")), Size: 6}}}
	parts, err := sbom.DescribeParts(r, d, "rootfs.sqsh", files(t, program))
	if err != nil {
		t.Fatal(err)
	}
	text, err := parts.Document(subject)
	if err != nil {
		t.Fatal(err)
	}
	read, err := spdxjson.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(read); err != nil {
		t.Error(err)
	}
	_, regular := listed(t)
	if len(read.Files) != len(regular) || read.Files[0].LicenseConcluded != "NOASSERTION" {
		t.Errorf("got %d files, the first with licence %s", len(read.Files), read.Files[0].LicenseConcluded)
	}
	if _, err := sbom.DescribeParts(r, d, "none", nil); err == nil {
		t.Error("a release without a root is described")
	}
}
