package pki_test

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"github.com/talos-factory/talos-factory/config/pki"
)

// Whatever is asked for, what is signed is a server's certificate.
func FuzzSignServer(f *testing.F) {
	ca, err := pki.NewCA("cluster", time.Now())
	if err != nil {
		f.Fatal(err)
	}
	_, csr, err := pki.Request("node", "10.0.0.1")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(csr)
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	f.Add([]byte(ca.Crt))
	f.Fuzz(func(t *testing.T, csr []byte) {
		signed, err := pki.SignServer(ca, csr, time.Now())
		if err != nil {
			return
		}
		crt, err := pki.ParseCertificate(signed)
		if err != nil {
			t.Fatal(err)
		}
		if crt.IsCA || len(crt.Subject.Organization) > 0 || !slices.Equal(crt.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
			t.Errorf("signed %v %v", crt.Subject, crt.ExtKeyUsage)
		}
	})
}
