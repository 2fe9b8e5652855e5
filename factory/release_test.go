package factory

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/build"
)

// checkout copies the repository's files, as git knows them, to a folder that a test may edit.
func checkout(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("git", "-C", "..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("listing files: %v", err)
	}
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // deleted in the work tree
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// identities are the hashes of everything that goes into each step, by name.
func identities(t *testing.T, dir string) map[string]string {
	t.Helper()
	release, err := NewRelease(dir, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	ids, names := map[*build.Step]string{}, map[string]string{}
	err = build.Walk(release.Steps(), func(s *build.Step) error {
		id, err := stepID(s, ids)
		ids[s], names[s.Name] = id, id
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestWhatAChangeRuns edits one file at a time and looks which steps would run again.
func TestWhatAChangeRuns(t *testing.T) {
	dir := checkout(t)
	before := identities(t, dir)
	if len(before) < 6 {
		t.Fatalf("only steps %q", slices.Sorted(maps.Keys(before)))
	}
	for _, test := range []struct {
		summary, file, old, new string
		want                    []string
	}{
		{"a help text of the factory", "cmd/factory/build.go", "Build what a profile describes", "Make it", nil},
		{"a planner", "format/fat/fat.go", "package fat", "package fat // edited", nil},
		{"a Go file of machined", "cmd/machined/main.go", "package main", "package main // edited", []string{"machined amd64", "root amd64"}},
		{"a Go file of /init", "cmd/init/main.go", "package main", "package main // edited", []string{"init amd64"}},
		{"the version", "VERSION", "v", "v9", []string{"root amd64"}},
	} {
		t.Run(test.summary, func(t *testing.T) {
			file := filepath.Join(dir, test.file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			edited := strings.Replace(string(text), test.old, test.new, 1)
			if edited == string(text) {
				t.Fatalf("%s has no %q to edit", test.file, test.old)
			}
			if err := os.WriteFile(file, []byte(edited), 0o644); err != nil {
				t.Fatal(err)
			}
			defer os.WriteFile(file, text, 0o644)
			after := identities(t, dir)
			var changed []string
			for _, name := range slices.Sorted(maps.Keys(after)) {
				if after[name] != before[name] {
					changed = append(changed, name)
				}
			}
			if diff := cmp.Diff(test.want, changed); diff != "" {
				t.Errorf("steps that would run again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReleaseOfAnotherArchitecture(t *testing.T) {
	if _, err := NewRelease("..", "riscv64"); err == nil || !strings.Contains(err.Error(), "riscv64") {
		t.Errorf("error %v, want one that names the architecture", err)
	}
}
