package pki_test

import (
	"fmt"
	"time"

	"github.com/talos-factory/talos-factory/config/pki"
)

func Example() {
	now := time.Now()
	ca, err := pki.NewCA("lab", now)
	if err != nil {
		panic(err)
	}
	admin, err := pki.NewClient(ca, now, pki.ClientLifetime, "os:admin")
	if err != nil {
		panic(err)
	}
	crt, err := admin.Certificate()
	if err != nil {
		panic(err)
	}
	fmt.Println(crt.Subject.Organization, admin.Key)
	// Output: [os:admin] (secret)
}
