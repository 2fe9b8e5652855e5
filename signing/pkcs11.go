package signing

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/talos-factory/talos-factory/api/signer"
	"github.com/talos-factory/talos-factory/signing/p11kit"
)

const pkcs11Form = "pkcs11:token=LABEL;object=LABEL?server=SOCKET, where p11-kit server listens"

// tokenKey is a key in a PKCS #11 token.
type tokenKey struct {
	ctx  context.Context // crypto.Signer has none to pass
	key  *p11kit.Key
	cert *x509.Certificate
}

func (k *tokenKey) Public() crypto.PublicKey       { return k.key.Public }
func (k *tokenKey) Certificate() *x509.Certificate { return k.cert }
func (k *tokenKey) String() string                 { return Algorithm(k.Public()) + " " + k.key.String() }
func (k *tokenKey) GoString() string               { return k.String() }

// openPKCS11 reads the URI of RFC 7512 behind its scheme: token, and object or id; of the query pin-source, and our own
// server and certificate. The passphrase is the PIN where there is no pin-source.
func openPKCS11(ctx context.Context, rest string, opts Options) (*tokenKey, error) {
	path, query, _ := strings.Cut(rest, "?")
	attributes, err := parsePKCS11(path)
	if err != nil {
		return nil, err
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("cannot read the query of a PKCS#11 URI") // the error may quote a PIN
	}
	for name := range values {
		switch name {
		case "server", "certificate", "pin-source":
		case "pin-value":
			return nil, errors.New("cannot use pin-value: others could read it; want pin-source=file:FILE, or the PIN as the passphrase")
		default:
			return nil, fmt.Errorf("cannot use %q in a PKCS#11 URI: want %s", name, pkcs11Form)
		}
	}
	token := p11kit.Token{Socket: values.Get("server"), Label: attributes["token"], PIN: opts.Passphrase, Timeout: opts.Timeout}
	if token.Socket == "" || token.Label == "" || attributes["object"]+attributes["id"] == "" {
		return nil, fmt.Errorf("cannot use this PKCS#11 URI: want %s", pkcs11Form)
	}
	if token.Timeout == 0 {
		token.Timeout = defaultTimeout
	}
	if source := values.Get("pin-source"); source != "" {
		pin, err := os.ReadFile(strings.TrimPrefix(strings.TrimPrefix(source, "file:"), "//"))
		if err != nil {
			return nil, fmt.Errorf("reading PIN: %w", err)
		}
		token.PIN = bytes.TrimRight(pin, "\r\n")
	}
	var id []byte
	if text, ok := attributes["id"]; ok {
		id = []byte(text)
	}
	key, err := token.Find(ctx, attributes["object"], id)
	if err != nil {
		return nil, err
	}
	k := &tokenKey{ctx, key, key.Certificate}
	if named := values.Get("certificate"); named != "" {
		if k.cert, err = ReadCertificate(named); err != nil {
			return nil, err
		}
	}
	if err := usable(k.Public()); err != nil {
		return nil, err
	}
	if k.cert != nil && !same(k.Public(), k.cert) {
		return nil, fmt.Errorf("cannot use %v with certificate %q: it is another key's", key, k.cert.Subject)
	}
	return k, nil
}

func parsePKCS11(path string) (map[string]string, error) {
	attributes := map[string]string{}
	for pair := range strings.SplitSeq(path, ";") {
		name, escaped, ok := strings.Cut(pair, "=")
		text, err := url.PathUnescape(escaped)
		switch {
		case !ok || err != nil:
			return nil, fmt.Errorf("cannot read %q in a PKCS#11 URI: want %s", pair, pkcs11Form)
		case name == "type" && text == "private":
		case name == "token", name == "object", name == "id":
			attributes[name] = text
		default:
			return nil, fmt.Errorf("cannot choose keys by %q: want %s", name, pkcs11Form)
		}
	}
	return attributes, nil
}

// Sign has the token sign, and checks what it answers.
func (k *tokenKey) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if _, ok := opts.(*rsa.PSSOptions); ok {
		return nil, errors.New("cannot sign by RSA-PSS with a PKCS#11 key: only PKCS#1 v1.5")
	}
	if len(digest) != opts.HashFunc().Size() {
		return nil, fmt.Errorf("cannot sign a digest of %d bytes: %v has %d", len(digest), opts.HashFunc(), opts.HashFunc().Size())
	}
	signature, err := k.key.Sign(k.ctx, digest, opts.HashFunc())
	if err == nil {
		err = check(k.Public(), signer.Scheme_SCHEME_RSA_PKCS1V15, opts.HashFunc(), digest, signature)
	}
	if err != nil {
		return nil, err
	}
	return signature, nil
}
