//go:build linux

package persist

import (
	"os"
	"path/filepath"
	"testing"
)

func TestIdentityIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	first, created, err := LoadIdentity(dir)
	if err != nil || !created {
		t.Fatalf("got %v, %v", created, err)
	}
	second, created, err := LoadIdentity(dir)
	if err != nil || created || second != first {
		t.Fatalf("got %v, %v, %v; want %v", second, created, err, first)
	}

	info, err := os.Stat(filepath.Join(dir, IdentityFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	if len(first.MachineID()) != 32 || len(first.Hostname()) != len("talos-abc-def") {
		t.Errorf("got %s, %s", first.MachineID(), first.Hostname())
	}

	if err := os.WriteFile(filepath.Join(dir, IdentityFile), []byte("nodeId: ''\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadIdentity(dir); err == nil {
		t.Error("an empty identity was taken")
	}
}

func TestLookupOrder(t *testing.T) {
	dir := t.TempDir()
	embedded := filepath.Join(dir, "embedded.yaml")
	sources := Sources(dir, embedded)

	find := func(want string, keep bool) {
		t.Helper()
		data, from, ok, err := FindConfig(sources)
		if err != nil || ok != (want != "") || string(data) != want || ok && from.Keep != keep {
			t.Errorf("got %q from %q, %v; want %q", data, from.Name, err, want)
		}
	}

	find("", false)
	if err := os.WriteFile(embedded, []byte("embedded"), 0o600); err != nil {
		t.Fatal(err)
	}
	find("embedded", true)
	if err := SaveConfig(dir, []byte("saved")); err != nil {
		t.Fatal(err)
	}
	find("saved", false)
	if err := StageConfig(dir, []byte("staged")); err != nil {
		t.Fatal(err)
	}
	find("staged", true)
	if err := SaveConfig(dir, []byte("staged")); err != nil {
		t.Fatal(err)
	}
	find("staged", false)
}
