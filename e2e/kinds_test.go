//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKindsBuiltTwice makes every kind of artifact of the release that make image built, on two machines without a checkout or a
// compiler, as it were: two empty stores, the release as a folder, two users, and a year between them.
func TestKindsBuiltTwice(t *testing.T) {
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	exported := filepath.Join(t.TempDir(), "release")
	run := buildRun{}
	run.command(t, checkout, "bin/factory", "release", "export", exported, "--progress", "plain")
	first, second := twoRuns(t)
	shifted := filepath.Join(t.TempDir(), "factory")
	run.command(t, checkout, "go", "build", "-trimpath", "-buildvcs=false", "-overlay", shiftedClock(t), "-o", shifted, "./cmd/factory")
	for run, factory := range map[*buildRun]string{&first: filepath.Join(checkout, "bin", "factory"), &second: shifted} {
		if err := os.MkdirAll(filepath.Join(run.dir, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		run.command(t, ".", "cp", factory, filepath.Join(run.dir, "bin", "factory"))
		run.command(t, ".", "cp", "-r", exported, filepath.Join(run.dir, "release"))
		writeExtension(t, run.dir)
		run.become(t)
	}
	compareKinds(t, first, second, "--release", "release")
}
