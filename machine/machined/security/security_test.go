//go:build linux

package security

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRootHash(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	for _, test := range []struct{ params, want, err string }{
		{"1 7:0 7:0 4096 4096 7008 7009 sha256 " + hash + " 74 2 panic_on_corruption panic_on_error", hash, ""},
		{"1 7:0 7:0 4096 4096 7008 7009 sha256 " + hash + " 74 1 ignore_corruption", "", "does not panic"},
		{"1 7:0 7:0 4096 4096 7008 7009 sha256 " + hash + " -", "", "does not panic"},
		{"0 7:0", "", "cannot read"},
		{"", "", "cannot read"},
	} {
		got, err := rootHash(test.params)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: got %q, %v", test.params, got, err)
		}
	}
}

func TestVariables(t *testing.T) {
	dir := t.TempDir()
	if got, err := fromVariables(filepath.Join(dir, "missing")); err != nil || got != (State{}) {
		t.Errorf("BIOS: got %+v, %v", got, err)
	}
	for name, value := range map[string]string{secureBoot: "\x06\x00\x00\x00\x01", stubInfo: "\x06\x00\x00\x00s\x00"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := fromVariables(dir); err != nil || got != (State{SecureBoot: true, BootedWithUKI: true}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, secureBoot), []byte("\x06\x00\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := fromVariables(dir); err != nil || got.SecureBoot {
		t.Errorf("off: got %+v, %v", got, err)
	}
}
