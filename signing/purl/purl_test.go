package purl_test

import (
	"fmt"

	"github.com/talos-factory/talos-factory/pkgs"
	"github.com/talos-factory/talos-factory/signing/purl"
)

func Example() {
	fmt.Println(purl.Debian(pkgs.Package{Name: "libstdc++6", Version: "1:2.44~rc1-3+b1", Architecture: "amd64"}))
	fmt.Println(purl.Go("github.com/ProtonMail/go-crypto", "v1.5.2+incompatible"))
	// Output:
	// pkg:deb/debian/libstdc%2B%2B6@1:2.44~rc1-3%2Bb1?arch=amd64
	// pkg:golang/github.com/protonmail/go-crypto@v1.5.2%2Bincompatible
}
