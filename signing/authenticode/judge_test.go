//go:build judge

package authenticode_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/signing/authenticode"
)

// files writes a program, a signed one, a key and a certificate.
func files(t *testing.T) (dir string, key maker) {
	t.Helper()
	dir, key = t.TempDir(), newMaker(t, "ours", nil)
	m := extent.Memory{}
	p := program(t, m, 300_000)
	der, err := x509.MarshalPKCS8PrivateKey(key.key)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"unsigned.efi": content(t, p, m),
		"signed.efi":   content(t, sign(t, p, m, key), m),
		"key.pem":      pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		"cert.pem":     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: key.cert.Raw}),
		"other.pem":    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: newMaker(t, "other", nil).cert.Raw}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, key
}

func TestSbverify(t *testing.T) {
	dir, _ := files(t)
	verify := func(cert, program string) (string, error) {
		return judge.Try(t, []string{"sbverify", "--cert", cert, program}, filepath.Join(dir, cert), filepath.Join(dir, program))
	}
	if out, err := verify("cert.pem", "signed.efi"); err != nil || !strings.Contains(out, "Signature verification OK") || strings.Contains(out, "warning") {
		t.Errorf("sbverify: %v\n%s", err, out)
	}
	if out, err := verify("other.pem", "signed.efi"); err == nil {
		t.Errorf("sbverify accepts it by another certificate:\n%s", out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "signed.efi"))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(filepath.Join(dir, "changed.efi"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := verify("cert.pem", "changed.efi"); err == nil {
		t.Errorf("sbverify accepts changed bytes:\n%s", out)
	}
}

func TestObjdump(t *testing.T) {
	dir, _ := files(t)
	headers := func(name string) string {
		_, out, _ := strings.Cut(judge.Run(t, []string{"objdump", "-h", name}, filepath.Join(dir, name)), "Sections:")
		return out
	}
	if got, want := headers("signed.efi"), headers("unsigned.efi"); got != want || !strings.Contains(got, ".linux") {
		t.Errorf("objdump -h of the signed program:\n%s\nof the unsigned one:\n%s", got, want)
	}
}

// TestSbsign: we accept what sbsign signs, and mean the same digest.
func TestSbsign(t *testing.T) {
	dir, key := files(t)
	out := filepath.Join(dir, "theirs.efi")
	judge.Run(t, []string{"sbsign", "--key", "key.pem", "--cert", "cert.pem", "--output", out, "unsigned.efi"},
		filepath.Join(dir, "key.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "unsigned.efi"))
	theirs, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(theirs)
	if signer, err := authenticode.Verify(r, r.Size(), []*x509.Certificate{key.cert}); err != nil || !signer.Equal(key.cert) {
		t.Errorf("got %v, %v", signer, err)
	}
	theirs[len(theirs)/2] ^= 1
	if _, err := authenticode.Verify(r, r.Size(), []*x509.Certificate{key.cert}); err == nil {
		t.Error("accepted changed bytes")
	}
}

func TestOsslsigncode(t *testing.T) {
	dir, _ := files(t)
	verify := func(cert, program string) (string, error) {
		// The time is one when the certificate was good.
		return judge.Try(t, []string{"osslsigncode", "verify", "-time", "1000", "-CAfile", cert, "-in", program}, filepath.Join(dir, cert), filepath.Join(dir, program))
	}
	if out, err := verify("cert.pem", "signed.efi"); err != nil || !strings.Contains(out, "Number of verified signatures: 1") {
		t.Errorf("osslsigncode: %v\n%s", err, out)
	}
	if out, err := verify("other.pem", "signed.efi"); err == nil {
		t.Errorf("osslsigncode accepts it by another certificate:\n%s", out)
	}
}

// TestOsslsigncodeSigns: we accept what it signs.
func TestOsslsigncodeSigns(t *testing.T) {
	dir, key := files(t)
	out := filepath.Join(dir, "theirs.efi")
	judge.Run(t, []string{"osslsigncode", "sign", "-h", "sha256", "-certs", "cert.pem", "-key", "key.pem", "-in", "unsigned.efi", "-out", out},
		filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "unsigned.efi"))
	theirs, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	r := bytes.NewReader(theirs)
	if signer, err := authenticode.Verify(r, r.Size(), []*x509.Certificate{key.cert}); err != nil || !signer.Equal(key.cert) {
		t.Errorf("got %v, %v", signer, err)
	}
}
