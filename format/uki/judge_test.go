//go:build judge

package uki_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
)

func write(t *testing.T) string {
	t.Helper()
	m := extent.Memory{}
	plan, err := image(t, m).Plan()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "image.efi"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := plan.WriteSparse(t.Context(), f, m); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func TestObjdump(t *testing.T) {
	var got []string
	for _, l := range strings.Split(judge.Run(t, []string{"objdump", "-h", "image.efi"}, write(t)), "\n") {
		if f := strings.Fields(l); len(f) == 7 && strings.HasPrefix(f[1], ".") {
			got = append(got, strings.Join([]string{f[1], f[2], f[3][8:], f[5]}, " ")) // name, size, address, offset
		}
	}
	want, err := os.ReadFile("testdata/objdump.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), got); diff != "" {
		t.Errorf("objdump -h (-want +got):\n%s", diff)
	}
}

func TestUkify(t *testing.T) {
	got := judge.Run(t, []string{"ukify", "inspect", "image.efi"}, write(t))
	for _, want := range []string{".linux:", ".initrd:", "VERSION_ID=v0.1.0", "console=ttyS0 talos.platform=metal", "6.12.41"} {
		if !strings.Contains(got, want) {
			t.Errorf("ukify inspect does not say %q:\n%s", want, got)
		}
	}
}
