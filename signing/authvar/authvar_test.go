package authvar_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/signing/authvar"
)

var at = time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)

func newKey(t testing.TB, name string) (*rsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(0x1234567890), Subject: pkix.Name{CommonName: name},
		NotBefore: at, NotAfter: at.AddDate(20, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

func value(t testing.TB, cert *x509.Certificate) []byte {
	t.Helper()
	b, err := authvar.EncodeLists([]authvar.List{authvar.CertificateList(owner(t), cert)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func owner(t testing.TB) authvar.GUID {
	t.Helper()
	g, err := authvar.ParseGUID("11223344-5566-7788-99aa-bbccddeeff00")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestSign(t *testing.T) {
	key, cert := newKey(t, "ours")
	_, other := newKey(t, "other")
	update, err := authvar.Sign(authvar.DB, at.Add(300*time.Millisecond), value(t, cert), key, cert)
	if err != nil {
		t.Fatal(err)
	}
	again, err := authvar.Sign(authvar.DB, at, value(t, cert), key, cert)
	if err != nil {
		t.Fatal(err)
	}
	file := update.Encode()
	if !bytes.Equal(file, again.Encode()) {
		t.Error("the same update signed twice has different bytes")
	}
	got, err := authvar.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Time.Equal(at) {
		t.Errorf("time is %v, want %v", got.Time, at)
	}
	lists, err := got.Lists()
	if err != nil {
		t.Fatal(err)
	}
	want := []authvar.List{{Type: authvar.X509, Signatures: []authvar.Signature{{Owner: owner(t), Data: cert.Raw}}}}
	if diff := cmp.Diff(want, lists); diff != "" {
		t.Error(diff)
	}
	certs, err := authvar.Certificates(lists)
	if err != nil || len(certs) != 1 || !certs[0].Equal(cert) {
		t.Errorf("certificates %v, %v", certs, err)
	}
	if err := got.Verify(authvar.DB, other, cert); err != nil {
		t.Error(err)
	}
	appending := authvar.DB
	appending.Attributes |= authvar.AppendWrite
	for name, v := range map[string]authvar.Variable{"another variable": authvar.KEK, "another vendor": {Name: "db", Vendor: authvar.KEK.Vendor, Attributes: authvar.DB.Attributes}, "appending": appending} {
		if err := got.Verify(v, cert); err == nil {
			t.Errorf("an update of db is taken for one of %s", name)
		}
	}
	if err := got.Verify(authvar.DB, other); err == nil || !strings.Contains(err.Error(), "none of the certificates given made it") {
		t.Errorf("another's certificate: got %v", err)
	}
}

// One flipped bit anywhere is found.
func TestTampered(t *testing.T) {
	key, cert := newKey(t, "ours")
	update, err := authvar.Sign(authvar.PK, at, value(t, cert), key, cert)
	if err != nil {
		t.Fatal(err)
	}
	file := update.Encode()
	ignored := bytes.Index(file, cert.Raw) // the certificate that is sent along is not what is trusted
	for i := range file {
		if i >= ignored && i < ignored+len(cert.Raw) {
			continue
		}
		bad := bytes.Clone(file)
		bad[i] ^= 0x10
		got, err := authvar.Parse(bad)
		if err == nil {
			err = got.Verify(authvar.PK, cert)
		}
		if err == nil {
			t.Errorf("flipped byte %d of %d is not found", i, len(file))
		}
	}
}

func TestRefusals(t *testing.T) {
	key, cert := newKey(t, "ours")
	otherKey, _ := newKey(t, "other")
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authvar.Sign(authvar.PK, at, nil, curve, cert); err == nil || !strings.Contains(err.Error(), "firmware wants RSA") {
		t.Errorf("ECDSA: got %v", err)
	}
	if _, err := authvar.Sign(authvar.PK, at, nil, otherKey, cert); err == nil || !strings.Contains(err.Error(), "it is another key's") {
		t.Errorf("another key's certificate: got %v", err)
	}
	if _, err := authvar.Sign(authvar.PK, at, nil, key, nil); err == nil {
		t.Error("no certificate is taken")
	}
	if _, err := authvar.Sign(authvar.PK, time.Time{}, nil, key, cert); err == nil {
		t.Error("the year 1 is taken")
	}
	update, err := authvar.Sign(authvar.PK, at, value(t, cert), key, cert)
	if err != nil {
		t.Fatal(err)
	}
	file := update.Encode()
	for n := range file[:len(file)-len(update.Value)] {
		if _, err := authvar.Parse(file[:n]); err == nil {
			t.Fatalf("the first %d bytes of an update are taken for a whole one", n)
		}
	}
	nanoseconds := bytes.Clone(file)
	nanoseconds[8] = 1
	if _, err := authvar.Parse(nanoseconds); err == nil {
		t.Error("nanoseconds are taken; the specification wants zero")
	}
	for n := 1; n < len(update.Value); n++ {
		if _, err := authvar.ParseLists(update.Value[:n]); err == nil {
			t.Fatalf("the first %d bytes of a list are taken for a whole one", n)
		}
	}
	if _, err := authvar.EncodeLists([]authvar.List{{Type: authvar.SHA256}}); err == nil {
		t.Error("a list of nothing is written")
	}
	if _, err := authvar.EncodeLists([]authvar.List{{Type: authvar.SHA256, Signatures: []authvar.Signature{{Data: make([]byte, 32)}, {Data: make([]byte, 31)}}}}); err == nil {
		t.Error("signatures of different sizes are written")
	}
}

func TestGUID(t *testing.T) {
	const text = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
	if got := authvar.PK.Vendor.String(); got != text {
		t.Errorf("got %s", got)
	}
	if got := authvar.PK.Vendor[0]; got != 0x61 {
		t.Errorf("first byte %#x, want the last of the first field", got)
	}
	for _, bad := range []string{"", "8be4df6193ca11d2aa0d00e098032b8c", "8be4df61-93ca-11d2-aa0d-00e098032b8g", text + "0"} {
		if _, err := authvar.ParseGUID(bad); err == nil {
			t.Errorf("%q is taken for a GUID", bad)
		}
	}
}

// What is read is written again as it was, and nothing makes the readers panic.
func FuzzParse(f *testing.F) {
	key, cert := newKey(f, "seed")
	update, err := authvar.Sign(authvar.DB, at, value(f, cert), key, cert)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(update.Encode())
	f.Add(update.Encode()[:60])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := authvar.Parse(b)
		if err != nil {
			return
		}
		if !bytes.Equal(u.Encode(), b) {
			t.Error("an update is written otherwise than it was read")
		}
		if !bytes.Equal(b, update.Encode()) && u.Verify(authvar.DB, cert) == nil && !bytes.Equal(u.Value, update.Value) {
			t.Error("another value than the signed one is accepted")
		}
		lists, err := u.Lists()
		if err != nil {
			return
		}
		_, _ = authvar.Certificates(lists)
	})
}

func FuzzParseLists(f *testing.F) {
	_, cert := newKey(f, "seed")
	f.Add(value(f, cert))
	f.Add(append(value(f, cert), value(f, cert)...))
	f.Add(bytes.Repeat([]byte{0}, 28))
	f.Fuzz(func(t *testing.T, b []byte) {
		lists, err := authvar.ParseLists(b)
		if err != nil {
			return
		}
		again, err := authvar.EncodeLists(lists)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("lists are written otherwise than they were read: %v", err)
		}
		_, _ = authvar.Certificates(lists)
	})
}
