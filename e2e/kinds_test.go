//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKindsBuiltTwice makes every kind of artifact of the release that make image built, on two machines without a checkout or a
// compiler, as it were: two empty stores, the release as a folder, two users.
func TestKindsBuiltTwice(t *testing.T) {
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	exported := filepath.Join(t.TempDir(), "release")
	run := buildRun{}
	run.command(t, checkout, "bin/factory", "release", "export", exported, "--progress", "plain")
	first, second := twoRuns(t)
	for _, run := range []*buildRun{&first, &second} {
		if err := os.MkdirAll(filepath.Join(run.dir, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		run.command(t, ".", "cp", filepath.Join(checkout, "bin", "factory"), filepath.Join(run.dir, "bin", "factory"))
		run.command(t, ".", "cp", "-r", exported, filepath.Join(run.dir, "release"))
		writeExtension(t, run.dir)
		run.become(t)
	}
	compareKinds(t, first, second, "--release", "release")
}
