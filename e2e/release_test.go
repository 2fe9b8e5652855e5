//go:build release

// Package e2e holds the tests that look at whole artifacts.
package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBuiltTwice builds every kind of artifact from two clones in different paths, into two empty stores, by two users whose clocks are a year
// apart, and compares every byte. It takes two kernel builds.
func TestBuiltTwice(t *testing.T) {
	first, second := twoRuns(t)
	for _, run := range []*buildRun{&first, &second} {
		overlay := ""
		if run == &second {
			overlay = shiftedClock(t)
		}
		run.clone(t, overlay)
		if _, actions := run.build(t, "metal"); actions == 0 {
			t.Fatalf("%s: no action ran in an empty store", run.dir)
		} else {
			t.Logf("%s: %d actions ran in an empty store", run.dir, actions)
		}
	}
	compareKinds(t, first, second)
}

// clone makes a clone of this checkout and a factory in it, with an overlay of the standard library if it has a name.
func (r *buildRun) clone(t *testing.T, overlay string) {
	t.Helper()
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(r.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	r.command(t, ".", "git", "clone", "--quiet", "--no-hardlinks", checkout, r.dir)
	writeExtension(t, r.dir)
	r.become(t)
	r.command(t, r.dir, "go", "build", "-trimpath", "-buildvcs=false", "-overlay", overlay, "-o", "bin/factory", "./cmd/factory")
}
