package pcr_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/uki"
	"github.com/talos-factory/talos-factory/signing/pcr"
)

// read returns a file that testdata/golden.sh made, with a real systemd-measure.
func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// image has the sections that golden.sh measures.
func image(t testing.TB) *extent.Plan {
	t.Helper()
	stub, err := os.ReadFile("../../format/uki/testdata/stub.efi")
	if err != nil {
		t.Fatal(err)
	}
	p, err := uki.Image{
		Stub: stub, OSRelease: "ID=talos\nVERSION_ID=v0.1.0\n", Cmdline: "console=ttyS0 talos.platform=metal", Uname: "6.12.41",
		Linux:        extent.FromBytes([]byte("MZ a kernel")),
		Initrd:       extent.FromBytes([]byte("070701 an initramfs")),
		PCRPublicKey: read(t, "public.pem"),
		PCRSignature: []byte("is not measured"),
	}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func measure(t testing.TB, p *extent.Plan) pcr.Values {
	t.Helper()
	values, err := pcr.Measure(p.NewReader(nil), p.Size())
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func names() map[string]crypto.Hash {
	return map[string]crypto.Hash{"sha256": crypto.SHA256, "sha384": crypto.SHA384, "sha512": crypto.SHA512}
}

func paths() []string {
	return []string{"enter-initrd", "enter-initrd:leave-initrd", pcr.Running}
}

// TestMeasure: systemd-measure predicts the same.
func TestMeasure(t *testing.T) {
	var want map[string][]struct{ Phase, Hash string }
	if err := json.Unmarshal(read(t, "calculate.json"), &want); err != nil {
		t.Fatal(err)
	}
	values, compared := measure(t, image(t)), 0
	for name, bank := range names() {
		for _, w := range want[name] {
			if got := hex.EncodeToString(values.After(w.Phase)[bank]); got != w.Hash {
				t.Errorf("%s after %q is %s, want %s", name, w.Phase, got, w.Hash)
			}
			compared++
		}
	}
	if compared != 12 {
		t.Errorf("only %d values were compared", compared)
	}
}

// owner is a key whose owner has signed a few things once, by systemd-measure.
type owner struct {
	public *rsa.PublicKey
	signed map[string][]byte
}

func (o owner) Public() crypto.PublicKey { return o.public }
func (o owner) Sign(_ io.Reader, digest []byte, _ crypto.SignerOpts) ([]byte, error) {
	if s, ok := o.signed[string(digest)]; ok {
		return s, nil
	}
	return nil, errors.New("never signed that")
}

func golden(t testing.TB) owner {
	t.Helper()
	block, _ := pem.Decode(read(t, "public.pem"))
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	var signed map[string][]struct {
		Pol string
		Sig []byte
	}
	if err := json.Unmarshal(read(t, "sign.json"), &signed); err != nil {
		t.Fatal(err)
	}
	o := owner{public.(*rsa.PublicKey), map[string][]byte{}}
	for name, bank := range names() {
		for _, e := range signed[name] {
			policy, err := hex.DecodeString(e.Pol)
			if err != nil {
				t.Fatal(err)
			}
			h := bank.New()
			h.Write(policy)
			o.signed[string(h.Sum(nil))] = e.Sig
		}
	}
	return o
}

// TestSign: with the same key, the signatures are systemd-measure's to the byte, which the other way round are accepted here.
func TestSign(t *testing.T) {
	key, values, want := golden(t), measure(t, image(t)), read(t, "sign.json")
	got, err := pcr.Sign(values, key, paths()...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("-systemd-measure +ours:\n%s", diff)
	}
	for _, path := range paths() {
		if err := pcr.Verify(want, values, key.public, path); err != nil {
			t.Error(err)
		}
	}
	if public, err := pcr.PublicKey(key); err != nil || !bytes.Equal(public, read(t, "public.pem")) {
		t.Errorf("the public key is %s (%v)", public, err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	key, values, signed := golden(t), measure(t, image(t)), read(t, "sign.json")
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	if err := pcr.Verify(signed, values, key.public, "enter-initrd:leave-initrd:sysinit"); err == nil {
		t.Error("phases that nobody signed were accepted")
	}
	if err := pcr.Verify(signed, values, &other.PublicKey, pcr.Running); err == nil {
		t.Error("another key was accepted")
	}
	at := bytes.LastIndex(signed, []byte(`"sig":"`)) + 20
	changed := bytes.Clone(signed)
	changed[at] ^= 1
	if err := pcr.Verify(changed, values, key.public, pcr.Running); err == nil {
		t.Error("a changed signature was accepted")
	}
	if err := pcr.Verify([]byte(`{"sha256":[]}`), values, key.public, pcr.Running); err == nil {
		t.Error("no signature was accepted")
	}
}

func TestRefusals(t *testing.T) {
	values := measure(t, image(t))
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pcr.Sign(values, curve, pcr.Running); err == nil || !strings.Contains(err.Error(), "want RSA") {
		t.Errorf("got %v", err)
	}
	if _, err := pcr.Sign(values, golden(t), "enter-another"); err == nil || !strings.Contains(err.Error(), "never signed") {
		t.Errorf("got %v", err)
	}
	if _, err := pcr.Policy(crypto.SHA1, make([]byte, 20)); err == nil {
		t.Error("a bank of SHA-1 was used")
	}
	stub, err := os.ReadFile("../../format/uki/testdata/stub.efi")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pcr.Measure(bytes.NewReader(stub), int64(len(stub))); err == nil || !strings.Contains(err.Error(), "no kernel") {
		t.Errorf("got %v", err)
	}
}

func FuzzMeasure(f *testing.F) {
	b, err := io.ReadAll(image(f).NewReader(nil))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("MZ"))
	f.Fuzz(func(t *testing.T, b []byte) {
		values, err := pcr.Measure(bytes.NewReader(b), int64(len(b)))
		if err == nil && len(values) != 3 {
			t.Errorf("got %d banks", len(values))
		}
	})
}

func FuzzVerify(f *testing.F) {
	key, values := golden(f), measure(f, image(f))
	signed := read(f, "sign.json")
	f.Add(signed)
	f.Add([]byte(`{"sha256":[{"pcrs":[11],"sig":"AA=="}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		pcr.Verify(b, values, key.public, pcr.Running)
	})
}

func ExamplePolicy() {
	policy, err := pcr.Policy(crypto.SHA256, make([]byte, 32))
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d bytes\n", len(policy))
	// Output: 32 bytes
}

func BenchmarkMeasure(b *testing.B) {
	m := extent.Memory{}
	stub, err := os.ReadFile("../../format/uki/testdata/stub.efi")
	if err != nil {
		b.Fatal(err)
	}
	p, err := uki.Image{
		Stub: stub, OSRelease: "ID=talos\n",
		Linux:  extent.FromBlob(m.Add(make([]byte, 12<<20))),
		Initrd: extent.FromBlob(m.Add(make([]byte, 48<<20))),
	}.Plan()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(p.Size())
	for b.Loop() {
		if _, err := pcr.Measure(p.NewReader(m), p.Size()); err != nil {
			b.Fatal(err)
		}
	}
}
