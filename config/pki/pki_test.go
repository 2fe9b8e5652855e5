package pki_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/config/pki"
)

func newCA(t *testing.T) pki.Pair {
	t.Helper()
	ca, err := pki.NewCA("cluster", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func parse(t *testing.T, pair pki.Pair) *x509.Certificate {
	t.Helper()
	leaf, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return leaf.Leaf
}

func TestClientCertificate(t *testing.T) {
	ca, now := newCA(t), time.Now()
	client, err := pki.NewClient(ca, now, pki.ClientLifetime, "os:admin")
	if err != nil {
		t.Fatal(err)
	}
	crt := parse(t, client)
	if want := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}; !slices.Equal(crt.ExtKeyUsage, want) {
		t.Errorf("usage %v, want %v", crt.ExtKeyUsage, want)
	}
	if diff := cmp.Diff([]string{"os:admin"}, crt.Subject.Organization); diff != "" {
		t.Error(diff)
	}
	if got, want := crt.NotAfter, now.AddDate(0, 0, 365).UTC().Truncate(time.Second); !got.Equal(want) {
		t.Errorf("valid until %s, want %s", got, want)
	}
	pool, err := pki.Pool(ca.Crt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crt.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: crt.ExtKeyUsage}); err != nil {
		t.Error(err)
	}
}

// The key has the type that the field's clients look for.
func TestKeyFormat(t *testing.T) {
	block, _ := pem.Decode(newCA(t).Key)
	if block == nil || block.Type != "ED25519 PRIVATE KEY" {
		t.Fatalf("block %v", block)
	}
	if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
		t.Error(err)
	}
}

func TestSignServerTakesOnlyNames(t *testing.T) {
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	usage := []byte{0x30, 0x0a, 0x06, 0x08, 0x2b, 6, 1, 5, 5, 7, 3, 2} // extKeyUsage clientAuth, RFC 5280 4.2.1.12
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:         pkix.Name{CommonName: "node", Organization: []string{"os:admin"}},
		DNSNames:        []string{"node"},
		IPAddresses:     []net.IP{net.IPv4(10, 0, 0, 5)},
		ExtraExtensions: []pkix.Extension{{Id: []int{2, 5, 29, 37}, Value: usage}},
	}, private)
	if err != nil {
		t.Fatal(err)
	}
	crtPEM, err := pki.SignServer(newCA(t), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	crt, err := pki.ParseCertificate(crtPEM)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("org=%v usage=%v ca=%v names=%v addrs=%v hours=%.0f", crt.Subject.Organization, crt.ExtKeyUsage,
		crt.IsCA, crt.DNSNames, crt.IPAddresses, time.Until(crt.NotAfter).Hours())
	want := "org=[] usage=[serverAuth] ca=false names=[node] addrs=[10.0.0.5] hours=24"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSignServerRefuses(t *testing.T) {
	ca := newCA(t)
	_, nameless, err := pki.Request()
	if err != nil {
		t.Fatal(err)
	}
	_, good, err := pki.Request("node")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(good)
	block.Bytes[len(block.Bytes)-1] ^= 1
	client, err := pki.NewClient(ca, time.Now(), time.Hour, "os:admin")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		ca  pki.Pair
		csr []byte
	}{
		"empty": {ca, nil}, "nameless": {ca, nameless}, "forged": {ca, pem.EncodeToMemory(block)},
		"a certificate": {ca, ca.Crt}, "no CA": {client, good}, "empty CA": {pki.Pair{}, good},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if crt, err := pki.SignServer(tt.ca, tt.csr, time.Now()); err == nil {
				t.Errorf("signed %s", crt)
			}
		})
	}
}

func TestPairDoesNotPrintItsKey(t *testing.T) {
	ca := newCA(t)
	block, _ := pem.Decode(ca.Key)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		text := fmt.Sprintf(format, ca)
		if strings.Contains(text, "ED25519") || strings.Contains(text, fmt.Sprintf("%x", block.Bytes[:8])) {
			t.Errorf("%s prints the key", format)
		}
	}
}
