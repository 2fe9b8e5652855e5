package gpt_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
)

// sparse writes a plan of literals to a file and returns its path.
func sparse(t *testing.T, plan *extent.Plan) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk.raw"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := plan.WriteSparse(t.Context(), f, nil); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}
