package build_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/talos-factory/talos-factory/build"
)

// A program that builds begins like this:
//
//	func main() {
//		if build.IsStub() {
//			build.StubMain()
//		}
//		...
func Example() {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := build.OpenStore(dir) // "" is the user's cache folder
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	tools := &build.Tree{Name: "tools", Spec: []byte("this program 1"), Make: func(_ context.Context, dir string, _ func(build.Digest) (*os.File, error)) error {
		program, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "tool"), program, 0o755)
	}}
	join := &build.Step{
		Name: "join", Argv: []string{"/tool", "cat", "/out/joined", "/a", "/b"},
		Mounts:  []build.Mount{{Path: "/", Tree: tools}},
		Inputs:  []build.Input{{Path: "/a", Bytes: []byte("one ")}, {Path: "/b", Bytes: []byte("two")}},
		Outputs: []string{"joined"},
	}

	for range 2 {
		engine := &build.Engine{Store: store, Executor: &build.LocalExecutor{Store: store}}
		results, err := engine.Build(context.Background(), join)
		if err != nil {
			log.Fatal(err)
		}
		f, err := store.Open(results[join].Outputs["joined"].Digest)
		if err != nil {
			log.Fatal(err)
		}
		joined, err := io.ReadAll(f)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s (cached: %v)\n", joined, results[join].Cached)
		f.Close()
	}
	// Output:
	// one two (cached: false)
	// one two (cached: true)
}
