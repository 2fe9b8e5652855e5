package authenticode_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/uki"
	"github.com/talos-factory/talos-factory/signing/authenticode"
)

// maker is a key with its certificate.
type maker struct {
	key  crypto.Signer
	cert *x509.Certificate
}

// newMaker makes one, whose certificate is by issuer or itself.
func newMaker(t testing.TB, name string, issuer *maker) maker {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(name))), Subject: pkix.Name{CommonName: name}, IsCA: issuer == nil, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1e9, 0), // expired: firmware does not mind
	}
	parent, by := template, crypto.Signer(key)
	if issuer != nil {
		parent, by = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return maker{key, cert}
}

// program is a UKI with a kernel of about so many bytes, and an initrd of four times as many.
func program(t testing.TB, m extent.Memory, kernel int) *extent.Plan {
	t.Helper()
	stub, err := os.ReadFile("../../format/uki/testdata/stub.efi")
	if err != nil {
		t.Fatal(err)
	}
	p, err := uki.Image{
		Stub: stub, OSRelease: "ID=talos\n", Cmdline: "console=ttyS0",
		Linux:  extent.FromBlob(m.Add(bytes.Repeat([]byte{0x90, 7, 1, 2, 3}, kernel/5))),
		Initrd: extent.FromBlob(m.Add(bytes.Repeat([]byte("cpio"), kernel))),
	}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func sign(t testing.TB, p *extent.Plan, m extent.Memory, by maker) *extent.Plan {
	t.Helper()
	signed, err := authenticode.Sign(p, m, by.key, by.cert)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func content(t testing.TB, p *extent.Plan, m extent.Memory) []byte {
	t.Helper()
	b, err := io.ReadAll(p.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSign(t *testing.T) {
	m := extent.Memory{}
	key := newMaker(t, "ours", nil)
	p := program(t, m, 5_000_000)
	signed := sign(t, p, m, key)
	if n := signed.Literals(); n > 16<<10 {
		t.Errorf("%d literal bytes", n)
	}
	if diff := cmp.Diff(signed.Extents(), sign(t, p, m, key).Extents()); diff != "" {
		t.Errorf("signed twice, it is not the same:\n%s", diff)
	}
	before, err := authenticode.Digest(p.NewReader(m), p.Size())
	if err != nil {
		t.Fatal(err)
	}
	after, err := authenticode.Digest(signed.NewReader(m), signed.Size())
	if err != nil || after != before {
		t.Errorf("the digest is %x, and was %x before signing (%v)", after, before, err)
	}
	got, err := authenticode.Verify(signed.NewReader(m), signed.Size(), []*x509.Certificate{key.cert})
	if err != nil || !got.Equal(key.cert) {
		t.Errorf("got signer %v, %v", got, err)
	}
	if got, err := authenticode.Signer(signed.NewReader(m), signed.Size()); err != nil || !got.Equal(key.cert) {
		t.Errorf("got signer %v, %v", got, err)
	}
	if _, err := authenticode.Sign(signed, m, key.key, key.cert); err == nil || !strings.Contains(err.Error(), "signed already") {
		t.Errorf("signed again: %v", err)
	}
}

// TestTrust: the signer's own certificate, or its issuer's, whatever the clock says; none else.
func TestTrust(t *testing.T) {
	m := extent.Memory{}
	root := newMaker(t, "the root", nil)
	issued := newMaker(t, "issued", &root)
	stranger := newMaker(t, "stranger", nil)
	namesake := newMaker(t, "the root", nil)
	signed := sign(t, program(t, m, 100), m, issued)
	for _, c := range []struct {
		trust *x509.Certificate
		ok    bool
	}{{issued.cert, true}, {root.cert, true}, {stranger.cert, false}, {namesake.cert, false}} {
		_, err := authenticode.Verify(signed.NewReader(m), signed.Size(), []*x509.Certificate{c.trust})
		if (err == nil) != c.ok {
			t.Errorf("trusting %q: %v", c.trust.Subject, err)
		}
	}
	if _, err := authenticode.Verify(signed.NewReader(m), signed.Size(), nil); err == nil {
		t.Error("trusting nobody, the signature was accepted")
	}
	unsigned := program(t, m, 100)
	if _, err := authenticode.Verify(unsigned.NewReader(m), unsigned.Size(), []*x509.Certificate{root.cert}); !errors.Is(err, authenticode.ErrUnsigned) {
		t.Errorf("unsigned: %v", err)
	}
}

// TestFlippedBytes: whatever byte is changed, the signature is void; the checksum is the one exception.
func TestFlippedBytes(t *testing.T) {
	m := extent.Memory{}
	key := newMaker(t, "ours", nil)
	signed := content(t, sign(t, program(t, m, 100), m, key), m)
	coff := int(signed[60]) | int(signed[61])<<8
	checksum := coff + 4 + 20 + 64
	padding := len(signed) - 8 // of the table: what of it is no signature does not count
	step := 1
	if testing.Short() {
		step = 37
	}
	accepted := 0
	for at := 0; at < padding; at += step {
		if at > 4096 && at < len(signed)-4096 && at%64 != 0 {
			continue
		}
		b := bytes.Clone(signed)
		b[at] ^= 0x20
		_, err := authenticode.Verify(bytes.NewReader(b), int64(len(b)), []*x509.Certificate{key.cert})
		switch {
		case err == nil && at >= checksum && at < checksum+4:
		case err == nil && at > len(signed)-2500:
			accepted++ // see below
		case err == nil:
			t.Errorf("byte %#x was changed and the signature accepted", at)
		}
	}
	// Some bytes of the signature's wrapping are signed by nobody and mean nothing: versions, the copy of the certificate.
	if accepted > 1100 {
		t.Errorf("%d bytes of the signature may be changed", accepted)
	}
}

func TestRefusals(t *testing.T) {
	m := extent.Memory{}
	ours, other := newMaker(t, "ours", nil), newMaker(t, "other", nil)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	gap := content(t, program(t, m, 100), m)
	coff := int(gap[60]) + 4
	gap[coff+20+int(gap[coff+16])+40+20]++ // PointerToRawData of the second section
	for want, c := range map[string]struct {
		p    *extent.Plan
		key  crypto.Signer
		cert *x509.Certificate
	}{
		"another key's":       {program(t, m, 100), ours.key, other.cert},
		"without the key's":   {program(t, m, 100), ours.key, nil},
		"wants RSA":           {program(t, m, 100), curve, ours.cert},
		"no MZ signature":     {extent.FromBytes([]byte("text")), ours.key, ours.cert},
		"asking the key":      {program(t, m, 100), broken{ours.key, errors.New("no")}, ours.cert},
		"what the key":        {program(t, m, 100), broken{ours.key, nil}, ours.cert},
		"cannot hash section": {extent.FromBytes(gap), ours.key, ours.cert},
		"cannot find blob":    {program(t, extent.Memory{}, 105), ours.key, ours.cert},
	} {
		if _, err := authenticode.Sign(c.p, m, c.key, c.cert); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// broken is a key whose signatures are worth nothing.
type broken struct {
	crypto.Signer
	err error
}

func (b broken) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return make([]byte, 256), b.err
}

func FuzzVerify(f *testing.F) {
	m := extent.Memory{}
	key := newMaker(f, "ours", nil)
	p := program(f, m, 100)
	f.Add(content(f, p, m))
	f.Add(content(f, sign(f, p, m, key), m))
	other := newMaker(f, "other", &key)
	f.Add(content(f, sign(f, p, m, other), m))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		signer, err := authenticode.Verify(r, r.Size(), []*x509.Certificate{key.cert})
		if err == nil && !bytes.Equal(signer.RawIssuer, key.cert.RawSubject) {
			t.Errorf("accepted a signature of %q", signer.Subject)
		}
		if signer, err := authenticode.Signer(r, r.Size()); err == nil && signer == nil {
			t.Error("no signer and no error")
		}
		if _, err := authenticode.Digest(r, r.Size()); err != nil {
			return
		}
		signed, err := authenticode.Sign(extent.FromBytes(b), nil, broken{key.key, nil}, key.cert)
		if err == nil || !strings.Contains(err.Error(), "what the key returned") && !strings.Contains(err.Error(), "signed already") {
			t.Errorf("got %v, %v", signed, err)
		}
	})
}

func Example() {
	t := &testing.T{}
	store := extent.Memory{}
	program, owner := program(t, store, 1000), newMaker(t, "Example", nil)

	signed, err := authenticode.Sign(program, store, owner.key, owner.cert)
	if err != nil {
		panic(err)
	}
	signer, err := authenticode.Verify(signed.NewReader(store), signed.Size(), []*x509.Certificate{owner.cert})
	if err != nil {
		panic(err)
	}
	fmt.Println(signer.Subject)
	// Output: CN=Example
}

// BenchmarkSign and BenchmarkSHA256 are compared: signing reads the program once.
func BenchmarkSign(b *testing.B) {
	m := extent.Memory{}
	p, key := program(b, m, 12<<20), newMaker(b, "ours", nil)
	b.SetBytes(p.Size())
	for b.Loop() {
		sign(b, p, m, key)
	}
}

func BenchmarkSHA256(b *testing.B) {
	m := extent.Memory{}
	p := program(b, m, 12<<20)
	b.SetBytes(p.Size())
	for b.Loop() {
		if _, err := io.Copy(sha256.New(), p.NewReader(m)); err != nil {
			b.Fatal(err)
		}
	}
}
