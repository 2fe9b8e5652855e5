//go:build judge

package ova_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/judge"
)

// GNU tar unpacks it, sha256sum finds the manifest's digests, and QEMU opens the disk.
func TestUnpack(t *testing.T) {
	p, src := appliance(t)
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "machine.ova"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.WriteSparse(t.Context(), f, src); err != nil {
		t.Fatal(err)
	}
	judge.Run(t, []string{"tar", "--extract", "--directory", dir, "--file", "machine.ova"}, f.Name())
	manifest, err := os.ReadFile(filepath.Join(dir, "vmware-amd64.mf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vmware-amd64.ovf", "vmware-amd64.vmdk"} {
		digest, _, _ := strings.Cut(judge.Run(t, []string{"sha256sum", name}, filepath.Join(dir, name)), " ")
		if line := "SHA256(" + name + ")= " + digest + "\n"; !strings.Contains(string(manifest), line) {
			t.Errorf("the manifest lacks %q", line)
		}
	}
	out := judge.Run(t, []string{"qemu-img", "check", "-f", "vmdk", "vmware-amd64.vmdk"}, filepath.Join(dir, "vmware-amd64.vmdk"))
	if !strings.Contains(out, "No errors") {
		t.Error(out)
	}
}
