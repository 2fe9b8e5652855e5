package signing_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/signing"
	"github.com/talos-factory/talos-factory/signing/authvar"
)

func generate(t *testing.T, p signing.Plan) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	if err := p.Generate(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, uri string, opts signing.Options) signing.Key {
	t.Helper()
	key, err := signing.Open(t.Context(), uri, opts)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestGenerate(t *testing.T) {
	dir := generate(t, signing.Plan{Name: "Test"})
	set, err := signing.OpenSet(t.Context(), dir, signing.Options{})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if private := strings.HasSuffix(e.Name(), "-key.pem") || e.Name() == "cosign.key"; private && info.Mode() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v (%v)", info.Mode(), err)
	}
	cert := func(name string) *x509.Certificate {
		c, err := signing.ReadCertificate(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	pk, kek := cert("PK-cert.pem"), cert("KEK-cert.pem")
	for _, u := range []struct {
		variable    authvar.Variable
		by, trusted *x509.Certificate
	}{{authvar.PK, pk, pk}, {authvar.KEK, pk, kek}, {authvar.DB, kek, set.UKI.Certificate()}} {
		update, err := authvar.Parse(set.Auth[u.variable.Name])
		if err != nil {
			t.Fatal(err)
		}
		if err := update.Verify(u.variable, u.by); err != nil {
			t.Error(err)
		}
		lists, err := update.Lists()
		if err != nil {
			t.Fatal(err)
		}
		certs, err := authvar.Certificates(lists)
		if err != nil || len(certs) != 1 || !certs[0].Equal(u.trusted) {
			t.Errorf("%s trusts %v (%v)", u.variable.Name, certs, err)
		}
	}
	if got := set.UKI.Certificate().NotAfter.Format("2006-01-02"); got != "2049-12-31" {
		t.Errorf("the certificate is valid until %s", got)
	}
	if err := (signing.Plan{}).Generate(dir); !errors.Is(err, signing.ErrExists) {
		t.Errorf("over a set: got %v", err)
	}
}

func TestDeterministic(t *testing.T) {
	dir := generate(t, signing.Plan{Name: "Test"})
	digest := sha256.Sum256([]byte("digest"))
	for _, name := range []string{"cosign.key", "pcr-signing-key.pem"} {
		key := open(t, filepath.Join(dir, name), signing.Options{})
		first, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		second, err := key.Sign(nil, digest[:], crypto.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%s signs the same digest with other bytes", name)
		}
	}
	key := open(t, filepath.Join(dir, "pcr-signing-key.pem"), signing.Options{})
	pss, err := key.Sign(nil, digest[:], &rsa.PSSOptions{Hash: crypto.SHA256})
	if err != nil {
		t.Fatal(err)
	}
	if err := rsa.VerifyPSS(key.Public().(*rsa.PublicKey), crypto.SHA256, digest[:], pss, nil); err != nil {
		t.Error(err)
	}
}

func TestEncrypted(t *testing.T) {
	dir := generate(t, signing.Plan{Name: "Test", Passphrase: signing.Secret("correct horse")})
	path := filepath.Join(dir, "pcr-signing-key.pem")
	if text, err := os.ReadFile(path); err != nil || !bytes.Contains(text, []byte("BEGIN ENCRYPTED PRIVATE KEY")) {
		t.Fatalf("the key is not encrypted: %v", err)
	}
	open(t, path, signing.Options{Passphrase: signing.Secret("correct horse")})
	if _, err := signing.Open(t.Context(), path, signing.Options{}); !errors.Is(err, signing.ErrPassphrase) {
		t.Errorf("without a passphrase: got %v", err)
	}
	_, err := signing.Open(t.Context(), path, signing.Options{Passphrase: signing.Secret("battery staple")})
	if err == nil || !strings.Contains(err.Error(), "the passphrase is wrong") || strings.Contains(err.Error(), "staple") {
		t.Errorf("with a wrong one: got %v", err)
	}
}

// A key that OpenSSL 3 encrypted: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -aes-256-cbc -pass pass:secret
func TestEncryptedByOpenSSL(t *testing.T) {
	for _, name := range []string{"openssl-ec.pem", "openssl-sha1-aes128.pem"} {
		key := open(t, filepath.Join("testdata", name), signing.Options{Passphrase: signing.Secret("secret")})
		if _, ok := key.Public().(*ecdsa.PublicKey); !ok {
			t.Errorf("%s is of kind %T", name, key.Public())
		}
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	passphrase := signing.Secret("correct horse")
	dir := generate(t, signing.Plan{Name: "Test"})
	key := open(t, filepath.Join(dir, "pcr-signing-key.pem"), signing.Options{Passphrase: passphrase})
	text, err := os.ReadFile(filepath.Join(dir, "pcr-signing-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	exponent := private.(*rsa.PrivateKey).D.String()
	var out bytes.Buffer
	for _, value := range []any{key, passphrase, signing.Options{Passphrase: passphrase}, []any{key}, struct{ K signing.Key }{key}} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, format+"\n", value)
		}
		if err := json.NewEncoder(&out).Encode(value); err != nil {
			t.Error(err)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("key", "value", value)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("key", "value", value)
	}
	hexed := fmt.Sprintf("%x", "correct horse")
	for _, secret := range []string{exponent, exponent[:20], "correct horse", hexed, "Y29ycmVjdCBob3JzZQ", "[99 111 114"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%.20s... is printed", secret)
		}
	}
	if !strings.Contains(out.String(), "RSA 2048 key ") {
		t.Error("a key does not say what it is")
	}
}

func TestRefusals(t *testing.T) {
	dir := generate(t, signing.Plan{Name: "Test"})
	other := generate(t, signing.Plan{Name: "Other"})
	weak, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(weak)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, headers map[string]string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Headers: headers, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for uri, want := range map[string]string{
		"nothing.pem":                     "no such file",
		"file:nothing.pem":                "no such file",
		filepath.Join(dir, "PK.auth"):     "it has no PEM",
		filepath.Join(dir, "PK-cert.pem"): "it has no private key",
		filepath.Join(dir, "uki-signing-key.pem") + "?certificate=" + filepath.Join(other, "uki-signing-cert.pem"): "it is another key's",
		write("k", "EC PRIVATE KEY", map[string]string{"DEK-Info": "AES-128-CBC,00"}, der):                         "encrypted the old way",
		write("k", "ENCRYPTED SIGSTORE PRIVATE KEY", nil, der):                                                     "cosign's own encrypted form",
		write("k", "ENCRYPTED PRIVATE KEY", nil, der):                                                              "passphrase",
		write("k", "OPENSSH PRIVATE KEY", nil, der):                                                                "want PRIVATE KEY",
		"awskms:///k":   "awskms has no client in this program",
		"vault:k":       `unknown scheme "vault"`,
		"unix:/nowhere": "no such file or directory",
	} {
		if _, err := signing.Open(t.Context(), uri, signing.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", uri, err, want)
		}
	}
}

func TestOpenSet(t *testing.T) {
	dir := generate(t, signing.Plan{Name: "Test"})
	named := t.TempDir()
	document := func(text string) {
		if err := os.WriteFile(filepath.Join(named, "keys.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	document(fmt.Sprintf("uki: %[1]s/uki-signing-key.pem\npcr: file:%[1]s/pcr-signing-key.pem\ncosign: mine.key\n", dir))
	if err := os.Rename(filepath.Join(dir, "cosign.key"), filepath.Join(named, "mine.key")); err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{named, filepath.Join(named, "keys.yaml"), "file:" + named} {
		if _, err := signing.OpenSet(t.Context(), uri, signing.Options{}); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]string{
		"uki: a\npcr: b\n":            "want uki, pcr and cosign",
		"uki: a\npcr: b\ncosgin: c\n": "did you mean cosign",
		"uki: a\npcr: b\ncosign: c\n": "no such file",
		fmt.Sprintf("uki: %[1]s/pcr-signing-key.pem\npcr: %[1]s/pcr-signing-key.pem\ncosign: mine.key\n", dir):          "without the key's certificate",
		fmt.Sprintf("uki: %[1]s/uki-signing-key.pem\npcr: mine.key\ncosign: mine.key\n", dir):                           "cannot sign PCR policies with ECDSA P-256",
		fmt.Sprintf("uki: %[1]s/uki-signing-key.pem\npcr: %[1]s/pcr-signing-key.pem\ncosign: %[1]s/KEK-key.pem\n", dir): "cannot sign images with RSA 2048",
	} {
		document(text)
		if _, err := signing.OpenSet(t.Context(), named, signing.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	for _, uri := range []string{dir, filepath.Join(dir, "absent"), t.TempDir()} {
		if _, err := signing.OpenSet(context.Background(), uri, signing.Options{}); !errors.Is(err, signing.ErrNoSet) {
			t.Errorf("%s: got %v", uri, err)
		}
	}
}

// Nothing that stands in a key file makes the reader panic or busy.
func FuzzOpen(f *testing.F) {
	for _, name := range []string{"openssl-ec.pem", "openssl-sha1-aes128.pem"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		block, _ := pem.Decode(text)
		f.Add(block.Type, block.Bytes)
	}
	f.Add("PRIVATE KEY", []byte{0x30, 0})
	f.Add("CERTIFICATE", []byte{0x30, 0})
	f.Fuzz(func(t *testing.T, kind string, b []byte) {
		path := filepath.Join(t.TempDir(), "key.pem")
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := signing.Open(t.Context(), path, signing.Options{Passphrase: signing.Secret("secret")})
		if err == nil && key.Public() == nil {
			t.Error("a key without a public key")
		}
	})
}
