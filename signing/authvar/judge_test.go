//go:build judge

package authvar_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/signing/authvar"
)

func write(t *testing.T, path string, b []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sbsiglist writes the list that we write, and we accept what sbvarsign signs (it adds attributes with the clock's time).
func TestJudgeSbvarsign(t *testing.T) {
	dir := t.TempDir()
	key, cert := newKey(t, "judged")
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := write(t, filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	certFile := write(t, filepath.Join(dir, "cert.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	derFile := write(t, filepath.Join(dir, "cert.der"), cert.Raw)

	listFile := filepath.Join(dir, "list")
	judge.Run(t, []string{"sbsiglist", "--owner", owner(t).String(), "--type", "x509", "--output", "list", "cert.der"}, listFile, derFile)
	list, err := os.ReadFile(listFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(list, value(t, cert)) {
		t.Error("sbsiglist writes another signature list")
	}

	for _, v := range []authvar.Variable{authvar.PK, authvar.KEK, authvar.DB} {
		out := filepath.Join(dir, v.Name+".auth")
		judge.Run(t, []string{"sbvarsign", "--key", "key.pem", "--cert", "cert.pem", "--output", v.Name + ".auth",
			"--attr", "NON_VOLATILE,BOOTSERVICE_ACCESS,RUNTIME_ACCESS", v.Name, "list"}, keyFile, certFile, out, listFile)
		theirs, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		update, err := authvar.Parse(theirs)
		if err != nil {
			t.Fatal(err)
		}
		if err := update.Verify(wide(v), cert); err != nil {
			t.Errorf("what sbvarsign signs is refused: %v", err)
		}
		theirs[len(theirs)-1] ^= 1
		if update, err := authvar.Parse(theirs); err != nil || update.Verify(wide(v), cert) == nil {
			t.Errorf("a flipped byte behind sbvarsign's signature is not found (%v)", err)
		}
	}
}

// wide: Debian's sbvarsign 0.9.4 takes characters of 4 bytes where the specification has 2, so its signature is for a
// variable with zeros in the name. Firmware refuses that; the rest of what it signs can still be compared.
func wide(v authvar.Variable) authvar.Variable {
	var name strings.Builder
	for _, r := range v.Name {
		name.WriteRune(r)
		name.WriteByte(0)
	}
	v.Name = name.String()
	return v
}

// sbkeysync reads our files as what it would enroll.
func TestJudgeSbkeysync(t *testing.T) {
	dir := t.TempDir()
	key, cert := newKey(t, "judged")
	for _, v := range []authvar.Variable{authvar.PK, authvar.KEK, authvar.DB} {
		update, err := authvar.Sign(v, at, value(t, cert), key, cert)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "keys", v.Name, "ours.auth"), update.Encode())
	}
	if err := os.Mkdir(filepath.Join(dir, "efivars"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := judge.Run(t, []string{"sbkeysync", "--dry-run", "--verbose", "--pk", "--no-default-keystores",
		"--efivars-path", "efivars", "--keystore", "keys"}, filepath.Join(dir, "efivars"), filepath.Join(dir, "keys"))
	t.Log(got)
	for _, v := range []string{"PK", "KEK", "db"} {
		if !strings.Contains(got, "from "+filepath.Join(dir, "keys", v, "ours.auth")) {
			t.Errorf("sbkeysync does not see %s", v)
		}
	}
}
