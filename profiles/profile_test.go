package profiles

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the generated parts of docs/profiles.md and its JSON Schema")

func TestBuiltinsAreValid(t *testing.T) {
	all, err := Builtins()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 25 {
		t.Errorf("only %d built-in profiles", len(all))
	}
	files := map[string]string{}
	for _, b := range all {
		p := b.Profile
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if b.For == "" || p.FileName() == "" {
			t.Errorf("%s: purpose %q, file %q", p.Name, b.For, p.FileName())
		}
		if other, ok := files[p.FileName()]; ok {
			t.Errorf("%s and %s are both written to %s", other, p.Name, p.FileName())
		}
		files[p.FileName()] = p.Name
		text, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(text)
		if err != nil {
			t.Errorf("%s does not read what it writes: %v\n%s", p.Name, err, text)
		}
		if diff := cmp.Diff(p, again); diff != "" {
			t.Errorf("%s, written and read (-want +got):\n%s", p.Name, diff)
		}
	}
}

func TestLoadUnknown(t *testing.T) {
	_, err := Load("mettal")
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "did you mean metal?") {
		t.Errorf("Load(mettal) = %v, want ErrUnknown that guesses", err)
	}
}

// TestParseTakesTheRestFromItsBase: the row of the platform, or the base, gives what a document leaves out.
func TestParseTakesTheRestFromItsBase(t *testing.T) {
	for _, test := range []struct{ summary, text, file, size string }{
		{"a platform", "platform: aws", "aws-amd64.raw.zst", "8GiB"},
		{"a base", "base: azure", "azure-amd64.vhd.zst", "8GiB"},
		{"a base for another platform", "base: metal\nplatform: exoscale", "exoscale-amd64.qcow2.zst", "10GiB"},
		{"another compression", "platform: aws\noutput: {compression: xz}", "aws-amd64.raw.xz", "8GiB"},
		{"another kind", "platform: aws\noutput: {kind: iso}", "aws-amd64.iso", "0"},
		{"a kind that becomes an image", "base: iso\noutput: {kind: image, diskSize: 4GiB}", "metal-amd64.raw", "4GiB"},
		{"Secure Boot", "base: secureboot-vmware", "vmware-amd64-secureboot.ova", "8GiB"},
		{"4K sectors", "base: metal-4k", "metal-4k-amd64.raw", "0"},
	} {
		p, err := Parse([]byte("schema: 1\n" + test.text + "\n"))
		if err != nil {
			t.Errorf("%s: %v", test.summary, err)
			continue
		}
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", test.summary, err)
		}
		if p.FileName() != test.file || p.Output.DiskSize.String() != test.size {
			t.Errorf("%s: got %s with a disk of %s, want %s of %s", test.summary, p.FileName(), p.Output.DiskSize, test.file, test.size)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"schema: 1\nplatfrom: aws\n", "line 2, column 1: unknown field platfrom (did you mean platform?)"},
		{"schema: 1\nbase: metal\noutput:\n  diskFromat: raw\n", "line 4, column 3: unknown field output.diskFromat (did you mean output.diskFormat?)"},
		{"schema: 2\nbase: metal\n", "schema 2"},
		{"schema: 1\n", "without base and platform"},
		{"schema: 1\nbase: mettal\n", "did you mean metal?"},
		{"schema: 1\nplatform: awss\n", `unknown platform "awss", did you mean aws?`},
		{"schema: 1\nbase: metal\nplatform: amazon\n", `unknown platform "amazon"`},
		{"schema: 1\nbase: metal\noutput: {diskSize: huge}\n", `line 3, column 20: cannot read size "huge"`},
		{"schema: 1\nbase: metal\ncustomization: {meta: [{key: 256, value: x}]}\n", "line 3"},
	} {
		_, err := Parse([]byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: error %v, want one that says %s", test.text, err, test.want)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"output: {kind: imag}", `output.kind: cannot be "imag", did you mean image? (there is: image, iso,`},
		{"arch: riscv64", `arch: cannot be "riscv64"`},
		{"output: {diskSize: 1GiB}", "output.diskSize: cannot use a disk of 1024 MiB: the partitions need 2436 MiB, 1412 MiB more"},
		{"output: {sectorSize: 1024}", `output.sectorSize: cannot be "1024"`},
		{"output: {subformat: fixed}", "output.subformat"},
		{"output: {diskFormat: qcow2, clusterSize: 3KiB}", "want a power of two"},
		{"output: {diskFormat: vhd, compression: tar.gz}", "tar.gz holds a raw disk"},
		{"output: {kind: iso, diskSize: 8GiB}", "cannot be given for output kind iso"},
		{"output: {kind: kernel}\ncustomization: {extraKernelArgs: [quiet]}", "customization.extraKernelArgs: cannot be given for output kind kernel"},
		{"customization: {meta: [{key: 0, value: x}]}", "keys are 1 to 255"},
		{"customization: {meta: [{key: 12, value: x}, {key: 12, value: y}]}", "key 0x0c is there twice"},
		{"customization: {extraKernelArgs: ['a b']}", "customization.extraKernelArgs: cannot use kernel argument"},
		{"customization: {systemExtensions: [{image: a, oci: b}]}", "systemExtensions[0]: want exactly one"},
		{"customization: {systemExtensions: [{}]}", "systemExtensions[0]: want exactly one"},
		{"secureboot: true\nbootloader: dual-boot", "exclude each other"},
	} {
		p, err := Parse([]byte("schema: 1\nbase: metal\n" + test.text + "\n"))
		if err == nil {
			err = p.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: error %v, want one that says %s", test.text, err, test.want)
		}
	}
}

func TestLayoutFollowsTheBootloader(t *testing.T) {
	for _, test := range []struct {
		name, bootloader string
		partitions       int
	}{{"metal", Auto, 6}, {"metal", DualBoot, 6}, {"metal", SystemdBoot, 4}, {"metal-4k", Auto, 4}, {"secureboot-metal", Auto, 4}} {
		p, err := Load(test.name)
		if err != nil {
			t.Fatal(err)
		}
		p.Bootloader = test.bootloader
		l, err := p.Layout()
		if err != nil || len(l.Partitions) != test.partitions {
			t.Errorf("%s with %s: %d partitions (error %v), want %d", test.name, test.bootloader, len(l.Partitions), err, test.partitions)
		}
	}
}

// TestDocs: what editors and people read is made from the types.
func TestDocs(t *testing.T) {
	schema, err := JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	platforms, err := PlatformTable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join("..", "docs")
	page, err := os.ReadFile(filepath.Join(dir, "profiles.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := replaceSection(t, replaceSection(t, string(page), "fields", FieldTable()), "platforms", platforms)
	for name, want := range map[string]string{"profiles.schema.json": string(schema), "profiles.md": text} {
		file := filepath.Join(dir, name)
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is out of date, run go test ./profiles -update (-want +got):\n%s", file, diff)
		}
	}
}

// replaceSection puts text between two comments of the page.
func replaceSection(t *testing.T, page, name, text string) string {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	before, rest, ok := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("docs/profiles.md has no section %s", name)
	}
	return before + begin + text + end + after
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("schema: 1\nplatform: aws\n"))
	f.Add([]byte("schema: 1\nbase: iso\ncustomization: {meta: [{key: 12, value: x}]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		if err == nil && p.Validate() == nil && p.FileName() == "" {
			t.Error("a valid profile without a file name")
		}
	})
}

func ExampleLoad() {
	p, err := Load("gcp")
	fmt.Println(p.FileName(), p.Output.DiskSize, err)
	// Output: gcp-amd64.raw.tar.gz 8GiB <nil>
}
