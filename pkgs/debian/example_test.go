package debian_test

import (
	"fmt"
	"strings"

	"github.com/talos-factory/talos-factory/pkgs/debian"
)

func ExampleUniverse_Resolve() {
	index := ""
	for _, p := range []string{"make 4.4 libc6 (>= 2.38)", "libc6 2.41 libgcc-s1 | libgcc1", "libgcc-s1 14.2"} {
		f := strings.SplitN(p, " ", 3)
		index += "Package: " + f[0] + "\nVersion: " + f[1] + "\nArchitecture: amd64\n"
		if len(f) == 3 {
			index += "Depends: " + f[2] + "\n"
		}
		index += "Filename: pool/" + f[0] + ".deb\nSize: 1\nSHA256: " + strings.Repeat("0", 64) + "\n\n"
	}
	packages, err := debian.ParsePackages(strings.NewReader(index))
	if err != nil {
		fmt.Println(err)
		return
	}
	universe, err := debian.NewUniverse("amd64", packages)
	if err != nil {
		fmt.Println(err)
		return
	}
	closure, err := universe.Resolve([]string{"make"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range closure {
		fmt.Println(p.Name, p.Version)
	}
	// Output:
	// libc6 2.41
	// libgcc-s1 14.2
	// make 4.4
}
