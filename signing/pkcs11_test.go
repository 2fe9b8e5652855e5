package signing_test

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-p11-kit/p11kit"

	"github.com/talos-factory/talos-factory/signing"
)

// serveToken serves the folder's keys as a token by somebody else's implementation of the protocol, and returns the socket.
// It knows no PIN; SoftHSM behind p11-kit's own server does.
func serveToken(t *testing.T, dir string, names ...string) string {
	t.Helper()
	var objects []p11kit.Object
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		add := func(o p11kit.Object, err error) {
			if err != nil {
				t.Fatal(err)
			}
			o.SetID(uint64(len(objects) + 1)) // the handle; this implementation has no CKA_ID
			o.SetLabel(name)
			objects = append(objects, o)
		}
		add(p11kit.NewPrivateKeyObject(private))
		add(p11kit.NewPublicKeyObject(private.(crypto.Signer).Public()))
		if cert := open(t, filepath.Join(dir, name), signing.Options{}).Certificate(); cert != nil {
			add(p11kit.NewX509CertificateObject(cert))
		}
	}
	handler := &p11kit.Handler{Manufacturer: "test", Library: "test", Slots: []p11kit.Slot{{ID: 7, Label: "release", Objects: objects}}}
	socket := filepath.Join(t.TempDir(), "p")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = handler.Handle(conn) // what it did not like, the client sees
			conn.Close()
		}
	}()
	return socket
}

func TestPKCS11(t *testing.T) {
	dir := generate(t, signing.Plan{Name: "Test"})
	names := []string{"uki-signing-key.pem", "pcr-signing-key.pem", "cosign.key"}
	socket := serveToken(t, dir, names...)
	digest := sha256.Sum256([]byte("digest"))
	for _, name := range names {
		local := open(t, filepath.Join(dir, name), signing.Options{})
		key := open(t, fmt.Sprintf("pkcs11:token=release;object=%s?server=%s", name, socket), signing.Options{})
		if !key.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(local.Public()) {
			t.Errorf("%s: the token has another public key", name)
		}
		if (key.Certificate() == nil) != (local.Certificate() == nil) {
			t.Errorf("%s: certificate %v, want %v", name, key.Certificate(), local.Certificate())
		}
		got, err := key.Sign(nil, digest[:], crypto.SHA256) // is checked before it is returned
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := key.Public().(*rsa.PublicKey); !ok {
			continue
		}
		if want, err := local.Sign(nil, digest[:], crypto.SHA256); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the token signs with other bytes (%v)", name, err)
		}
		if _, err := key.Sign(nil, digest[:], &rsa.PSSOptions{Hash: crypto.SHA256}); err == nil {
			t.Errorf("%s signs by RSA-PSS", name)
		}
	}
}

func TestPKCS11Refusals(t *testing.T) {
	dir := generate(t, signing.Plan{Name: "Test"})
	socket := serveToken(t, dir, "cosign.key")
	for uri, want := range map[string]string{
		"pkcs11:token=release;object=k":                                                                                 "want pkcs11:token=LABEL;object=LABEL?server=SOCKET",
		"pkcs11:object=k?server=" + socket:                                                                              "want pkcs11:token=LABEL",
		"pkcs11:token=release;object=k?server=" + socket:                                                                "cannot find the private key",
		"pkcs11:token=other;object=k?server=" + socket:                                                                  `cannot find token "other" (there is: ["release"])`,
		"pkcs11:token=release;object=k?server=/nowhere":                                                                 "no such file or directory",
		"pkcs11:token=release;object=k?server=/nowhere&pin-value=4711":                                                  "cannot use pin-value",
		"pkcs11:token=release;object=k?server=/nowhere&pin-source=file:none":                                            "reading PIN: open none",
		"pkcs11:token=release;serial=1?server=/nowhere":                                                                 `cannot choose keys by "serial"`,
		"pkcs11:token=release;object=cosign.key?certificate=" + filepath.Join(dir, "PK-cert.pem") + "&server=" + socket: "it is another key's",
	} {
		_, err := signing.Open(t.Context(), uri, signing.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: got %v, want %q", uri, err, want)
		}
	}
}
