package verify_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/signing/verify"
)

// digest is that of the file which the bundles in testdata are about.
var digest = sha256.Sum256(bytes.Repeat([]byte("image "), 4096))

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func publicKey(t testing.TB, name string) *verify.Key {
	t.Helper()
	key, err := verify.ParseKey(testdata(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestBundles: those named cosign were made by the cosign program, version 2.6.5, with the same key.
func TestBundles(t *testing.T) {
	for _, name := range []string{"file.sigstore.json", "cosign.sigstore.json"} {
		b, err := verify.ParseBundle(testdata(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := b.VerifyFile(digest, publicKey(t, "one.pub")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.VerifyFile(digest, publicKey(t, "two.pub")); !errors.Is(err, verify.ErrSignature) {
			t.Errorf("%s: verified by another key: got %v, want ErrSignature", name, err)
		}
		if err := b.VerifyFile(sha256.Sum256(nil), publicKey(t, "one.pub")); err == nil {
			t.Errorf("%s: verifies another file", name)
		}
		if b.Hint != publicKey(t, "one.pub").Hint() {
			t.Errorf("%s: got hint %s, want %s", name, b.Hint, publicKey(t, "one.pub").Hint())
		}
		if _, err := b.VerifyStatement(publicKey(t, "one.pub")); err == nil {
			t.Errorf("%s: a file's signature counts as a statement", name)
		}
	}
}

func TestStatements(t *testing.T) {
	for _, name := range []string{"file.provenance.json", "cosign.provenance.json"} {
		b, err := verify.ParseBundle(testdata(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s, err := b.VerifyStatement(publicKey(t, "one.pub"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !s.About(digest) || s.About(sha256.Sum256(nil)) || s.PredicateType != verify.ProvenanceType {
			t.Errorf("%s: got statement %+v", name, s)
		}
		if _, err := b.VerifyStatement(publicKey(t, "two.pub")); !errors.Is(err, verify.ErrSignature) {
			t.Errorf("%s: verified by another key: got %v, want ErrSignature", name, err)
		}
		if err := b.VerifyFile(digest, publicKey(t, "one.pub")); err == nil {
			t.Errorf("%s: a statement counts as a file's signature", name)
		}
	}
}

func TestBadBundles(t *testing.T) {
	good := string(testdata(t, "file.sigstore.json"))
	statement := string(testdata(t, "file.provenance.json"))
	change := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the good bundle has no %q", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	for summary, text := range map[string]string{
		"empty":             "",
		"cut":               good[:len(good)/2],
		"two":               good + good,
		"garbage behind":    good + "}",
		"other type":        change("bundle.v0.3", "bundle.v9"),
		"no key":            change(`"publicKey"`, `"tlogEntries"`),
		"certificate":       change(`"publicKey"`, `"certificate"`),
		"other algorithm":   change("SHA2_256", "SHA2_512"),
		"unknown field":     change(`"mediaType"`, `"unknown":1,"mediaType"`),
		"short digest":      change(`"digest":"L+IS`, `"digest":"`),
		"no signature":      change(`"signature":"ME`, `"signature":"","x":"ME`),
		"both":              change(`"messageSignature"`, `"dsseEnvelope":{"payload":"eA==","payloadType":"x","signatures":[{"sig":"eA=="}]},"messageSignature"`),
		"envelope unsigned": statement[:strings.Index(statement, `"signatures"`)] + `"signatures":[]}}`,
		"too long":          strings.Repeat(" ", 9<<20),
	} {
		if _, err := verify.ParseBundle([]byte(text)); err == nil {
			t.Errorf("%s: a bad bundle is read", summary)
		}
	}
}

// TestRefusedKeys: what cannot be trusted, or not be used for files, is refused when it is read.
func TestRefusedKeys(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, public := range []any{&small.PublicKey, edwards, nil} {
		if _, err := verify.NewKey(public); err == nil {
			t.Errorf("key of type %T is taken", public)
		}
	}
	for _, text := range []string{"", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := verify.ParseKey([]byte(text)); err == nil {
			t.Errorf("key %q is taken", text)
		}
	}
}

// TestEnvelopeOfSeveral: one good signature among others is enough, and only over this type and payload.
func TestEnvelopeOfSeveral(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("DSSEv1 29 http://example.com/HelloWorld 11 hello world")) // protocol.md has this example
	if got := sha256.Sum256(verify.PAE("http://example.com/HelloWorld", []byte("hello world"))); got != sum {
		t.Error("the encoding is not that of the specification's example")
	}
	signature, err := private.Sign(nil, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	text := `{"payload":"aGVsbG8gd29ybGQ=","payloadType":"http://example.com/HelloWorld","signatures":[{"sig":"eA=="},{"sig":"` + base64.StdEncoding.EncodeToString(signature) + `"}]}`
	key, err := verify.NewKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	e, err := verify.ParseEnvelope([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if payload, err := e.Verify(key); err != nil || string(payload) != "hello world" {
		t.Errorf("got %q, %v", payload, err)
	}
	e.PayloadType = "http://example.com/HelloWorle"
	if _, err := e.Verify(key); !errors.Is(err, verify.ErrSignature) {
		t.Errorf("another payload type: got %v, want ErrSignature", err)
	}
}

func TestChecksums(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	all, err := verify.ParseChecksums([]byte(sum + "  a b\n" + sum + " *c\n"))
	if err != nil || len(all) != 2 || all[0].Name != "a b" || all[1].Name != "c" || all[0].Digest[0] != 0xab {
		t.Errorf("got %v, %v", all, err)
	}
	for _, text := range []string{
		"", "\n", sum, sum + "\n", sum + "  \n", sum + "  a", sum + "  ../a\n", sum + "  a\n" + sum + "  a\n",
		strings.ToUpper(sum) + "  a\n", sum[2:] + "  a\n", sum + " a\n", "\\" + sum + "  a\n",
	} {
		if all, err := verify.ParseChecksums([]byte(text)); err == nil {
			t.Errorf("%q: got %v, want an error", text, all)
		}
	}
}

func FuzzParseBundle(f *testing.F) {
	for _, name := range []string{"file.sigstore.json", "cosign.sigstore.json", "file.provenance.json", "cosign.provenance.json"} {
		f.Add(testdata(f, name))
	}
	key := publicKey(f, "two.pub")
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := verify.ParseBundle(text)
		if err != nil {
			return
		}
		if b.VerifyFile(digest, key) == nil {
			t.Error("a key that signed nothing verifies a file")
		}
		if _, err := b.VerifyStatement(key); err == nil {
			t.Error("a key that signed nothing verifies a statement")
		}
		again, err := b.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verify.ParseBundle(again); err != nil {
			t.Errorf("what was read cannot be read again: %v", err)
		}
	})
}

func FuzzParseEnvelope(f *testing.F) {
	f.Add([]byte(`{"payload":"aGVsbG8gd29ybGQ=","payloadType":"http://example.com/HelloWorld","signatures":[{"sig":"eA==","keyid":"k"}]}`))
	f.Add([]byte(`{"payload":"","payloadType":"","signatures":[]}`))
	key := publicKey(f, "two.pub")
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := verify.ParseEnvelope(text)
		if err != nil {
			return
		}
		if _, err := e.Verify(key); err == nil {
			t.Error("a key that signed nothing verifies an envelope")
		}
	})
}

func FuzzParseStatement(f *testing.F) {
	f.Add([]byte(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"a","digest":{"sha256":"00"}}],"predicateType":"https://slsa.dev/provenance/v1","predicate":{"runDetails":{"builder":{"id":"b"},"byproducts":[]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := verify.ParseStatement(text)
		if err != nil {
			return
		}
		s.About(digest)
		_, _ = s.Byproducts()
	})
}

func FuzzParseChecksums(f *testing.F) {
	f.Add([]byte(strings.Repeat("ab", 32) + "  a\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := verify.ParseChecksums(text)
		if err == nil && len(all) == 0 {
			t.Error("no checksums and no error")
		}
	})
}
