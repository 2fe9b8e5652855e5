package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/talos-factory/talos-factory/build"
)

func TestMain(m *testing.M) {
	if build.IsStub() {
		build.StubMain()
	}
	testscript.Main(m, map[string]func(){"factory": main})
}

// TestScripts runs what a user could type. CHECKOUT is the repository, REGISTRY one that answers no good.
func TestScripts(t *testing.T) {
	checkout, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	registry := badRegistry(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("CHECKOUT", checkout)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("GOCACHE", os.Getenv("GOCACHE"))
			env.Setenv("REGISTRY", registry)
			return writeExtensions(env.WorkDir)
		},
	})
}
