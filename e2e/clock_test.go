//go:build release || long

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// aYearOn are edits of the standard library that shift a program's wall clock by a year, but for TLS, whose certificates would have run
// out.
var aYearOn = []struct{ file, old, new string }{
	{"time/time.go", "	sec, nsec, mono := runtimeNow()\n	if mono == 0 {", "	sec, nsec, mono := runtimeNow()\n	sec += 365 * 24 * 3600\n	if mono == 0 {"},
	{"crypto/tls/common.go", "	return t()\n}\n\nfunc (c *Config) cipherSuites", "	return t().Add(-365 * 24 * time.Hour)\n}\n\nfunc (c *Config) cipherSuites"},
}

// shiftedClock writes an overlay for go build with those edits and returns its name.
func shiftedClock(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(strings.TrimSpace(string(out)), "src")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for _, edit := range aYearOn {
		name := filepath.Join(library, filepath.FromSlash(edit.file))
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		edited := strings.Replace(string(text), edit.old, edit.new, 1)
		if edited == string(text) {
			t.Fatalf("%s is not as this test knows it: cannot shift the clock", name)
		}
		replace[name] = filepath.Join(dir, strings.ReplaceAll(edit.file, "/", "_"))
		if err := os.WriteFile(replace[name], []byte(edited), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return overlay
}
