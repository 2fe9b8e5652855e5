package gomod

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// repository writes a txtar archive to a folder.
func repository(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(text)).Files {
		name := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const sources = `
-- go.mod --
module example.com/it // comment

go 1.26
-- go.sum --
-- cmd/daemon/main.go --
package main

import (
	"fmt"
	"golang.org/x/sys/unix"
	"example.com/it/state"
	_ "example.com/itself/other"
)

func main() { fmt.Println(unix.Getpid(), state.X) }
-- cmd/daemon/main_test.go --
package main

import _ "example.com/testonly"
-- cmd/daemon/windows_windows.go --
package main

import _ "example.com/windowsonly"
-- cmd/daemon/arm_arm64.go --
package main

import _ "example.com/armonly"
-- cmd/daemon/cgo.go --
package main

import "C"
-- cmd/other/main.go --
package main

func main() {}
-- state/state.go --
package state

import (
	_ "embed"
	_ "net/http"
)

//go:embed data names/*.txt all:whole
var X string
-- state/asm_amd64.s --
-- state/ignored.go --
//go:build ignore

package main
-- state/data/a --
-- state/data/.hidden --
-- state/data/sub/_b --
-- state/data/sub/c --
-- state/names/x.txt --
-- state/names/x.md --
-- state/whole/.hidden --
`

func TestSources(t *testing.T) {
	dir := repository(t, sources)
	got, err := Sources(dir, "./cmd/daemon", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	want := &Source{
		Files: []string{
			"cmd/daemon/main.go", "state/asm_amd64.s", "state/data/a", "state/data/sub/c",
			"state/names/x.txt", "state/state.go", "state/whole/.hidden",
		},
		Imports: []string{"example.com/itself/other", "golang.org/x/sys/unix"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err = Sources(dir, "./cmd/daemon", "arm64"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"example.com/armonly", "example.com/itself/other", "golang.org/x/sys/unix"}, got.Imports); diff != "" {
		t.Error(diff)
	}
	if _, err := Sources(dir, "./cmd/none", "amd64"); err == nil {
		t.Error("a missing package was accepted")
	}
}

// TestVendorID: what the packages are decides the tree's identity, not where the folder is or the order they are listed in.
func TestVendorID(t *testing.T) {
	id := func(text string, imports ...string) string {
		modules, err := Read("x", repository(t, text), imports)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := modules.Tree(nil)
		if err != nil {
			t.Fatal(err)
		}
		return tree.ID().String()
	}
	base := id(sources, "a", "b")
	if got := id(sources, "b", "a", "b"); got != base {
		t.Error("the order of imports matters")
	}
	if id(sources, "a") == base || id(sources+"-- go.sum --\nx\n", "a", "b") == base {
		t.Error("imports or go.sum do not matter")
	}
}
