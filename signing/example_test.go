package signing_test

import (
	"context"
	"crypto"
	"crypto/sha256"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/talos-factory/talos-factory/signing"
)

// Make a set of keys, open it, and sign a digest.
func Example() {
	parent, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(parent)
	dir := filepath.Join(parent, "keys")
	if err := (signing.Plan{Name: "Example"}).Generate(dir); err != nil {
		log.Fatal(err)
	}
	set, err := signing.OpenSet(context.Background(), dir, signing.Options{})
	if err != nil {
		log.Fatal(err)
	}
	digest := sha256.Sum256([]byte("what is signed"))
	signature, err := set.UKI.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(signing.Algorithm(set.UKI.Public()), set.UKI.Certificate().Subject, len(signature))
	// Output: RSA 2048 CN=Example UKI signing 256
}
