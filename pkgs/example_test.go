package pkgs_test

import (
	"fmt"

	"github.com/talos-factory/talos-factory/pkgs"
)

func ExampleLoad() {
	lock, err := pkgs.Load(".") // the pkgs folder of a checkout
	if err != nil {
		fmt.Println(err)
		return
	}
	tree, err := lock.DebTree("linux-source", "amd64")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tree.Name, "of", len(tree.Fetches), "package")
	// Output: linux-source amd64 of 1 package
}
