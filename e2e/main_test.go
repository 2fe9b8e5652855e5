//go:build vm || long || bench

// Package e2e holds the tests that boot images in QEMU. They get the image file and a firmware and nothing else.
package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/installer/image"
)

// What all tests share. TestMain sets it.
var (
	engine       *build.Engine
	qemu         *build.Tree
	release      *factory.Release
	talosctlFile string
)

func TestMain(m *testing.M) {
	if build.IsStub() {
		build.StubMain()
	}
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot run VM tests:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	checkout, err := filepath.Abs("..")
	if err != nil {
		return 0, err
	}
	talosctlFile = filepath.Join(checkout, "bin", "talosctl")
	if _, err := os.Stat(talosctlFile); err != nil {
		return 0, fmt.Errorf("%w (run make test, which builds it)", err)
	}
	store, err := build.OpenStore("")
	if err != nil {
		return 0, err
	}
	defer store.Close()
	engine = &build.Engine{Store: store, Executor: &build.LocalExecutor{Store: store}}
	release, err = factory.NewRelease(checkout, "amd64")
	if err != nil {
		return 0, err
	}
	release.Pack = image.Pack
	qemu, err = release.Tree("qemu")
	if err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// imageFile is the artifact under test: what make image wrote.
func imageFile(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "_out", "metal-amd64.raw"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v (run make test, which builds it)", err)
	}
	return path
}
