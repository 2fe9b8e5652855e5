//go:build linux

package sysctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestApply(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "kernel/kptr_restrict")
	if err := os.WriteFile(file, []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}

	errs := Apply(root, []Parameter{{Key: "a.b", Value: "1"}, {Key: "c.d", Value: "1", Optional: true}, {Key: "kernel.kptr_restrict", Value: "2"}})
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "setting a.b: this kernel does not have it") {
		t.Errorf("got %v", errs)
	}
	if got, _ := os.ReadFile(file); string(got) != "2\n" {
		t.Errorf("got %q, want the value written after an error", got)
	}
}

func TestDefaultsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Defaults() {
		if seen[p.Key] {
			t.Errorf("%s is there twice", p.Key)
		}
		seen[p.Key] = true
	}
}
