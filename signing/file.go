package signing

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// maxFile is more than any key or certificate.
const maxFile = 1 << 20

// fileKey is a private key in memory.
type fileKey struct {
	name    string
	private crypto.Signer
	cert    *x509.Certificate
}

func (k *fileKey) Public() crypto.PublicKey       { return k.private.Public() }
func (k *fileKey) Certificate() *x509.Certificate { return k.cert }
func (k *fileKey) String() string                 { return Algorithm(k.Public()) + " key " + k.name }
func (k *fileKey) GoString() string               { return k.String() }
func (k *fileKey) Format(f fmt.State, _ rune)     { fmt.Fprint(f, k.String()) }
func (k *fileKey) MarshalText() ([]byte, error)   { return []byte(k.String()), nil }

// Sign draws no lots but for RSA-PSS, whatever the caller would draw them from.
func (k *fileKey) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	switch private := k.private.(type) {
	case *ecdsa.PrivateKey:
		return private.Sign(nil, digest, opts) // nil: deterministic, RFC 6979
	case *rsa.PrivateKey:
		return private.Sign(rand.Reader, digest, opts) // only PSS uses it
	}
	return nil, fmt.Errorf("internal error: key of kind %T", k.private)
}

// openFile reads PATH or PATH?certificate=PATH.
func openFile(name string, opts Options) (*fileKey, error) {
	path, query, _ := strings.Cut(name, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("reading key URI: %w", err)
	}
	blocks, err := readPEM(path)
	if err != nil {
		return nil, fmt.Errorf("reading key: %w", err)
	}
	key := &fileKey{name: path}
	for _, b := range blocks {
		switch b.Type {
		case "CERTIFICATE":
			if key.cert == nil {
				key.cert, err = x509.ParseCertificate(b.Bytes)
			}
		case "PUBLIC KEY", "EC PARAMETERS":
		default:
			if key.private != nil {
				return nil, fmt.Errorf("cannot use %s: it has two private keys", path)
			}
			key.private, err = parsePrivate(b, opts.Passphrase)
		}
		if err != nil {
			return nil, fmt.Errorf("reading key %s: %w", path, err)
		}
	}
	if key.private == nil {
		return nil, fmt.Errorf("cannot use %s: it has no private key", path)
	}
	if err := usable(key.Public()); err != nil {
		return nil, fmt.Errorf("reading key %s: %w", path, err)
	}
	if named := values.Get("certificate"); named != "" {
		key.cert, err = ReadCertificate(named)
	} else if key.cert == nil {
		key.cert, err = certificateBeside(path)
	}
	if err != nil {
		return nil, err
	}
	if key.cert != nil && !same(key.Public(), key.cert) {
		return nil, fmt.Errorf("cannot use key %s with certificate %q: it is another key's", path, key.cert.Subject)
	}
	return key, nil
}

// parsePrivate reads a private key in any of the PEM forms that OpenSSL writes and that are not obsolete.
func parsePrivate(b *pem.Block, passphrase Secret) (crypto.Signer, error) {
	var key any
	var err error
	switch b.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(b.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		if passphrase == nil {
			return nil, ErrPassphrase
		}
		var der []byte
		if der, err = decryptPKCS8(b.Bytes, passphrase); err != nil {
			return nil, err
		}
		if key, err = x509.ParsePKCS8PrivateKey(der); err != nil {
			return nil, errWrongPassphrase // padding that is right by chance
		}
	case "RSA PRIVATE KEY", "EC PRIVATE KEY":
		if b.Headers["DEK-Info"] != "" {
			return nil, errors.New("cannot read PEM encrypted the old way (DEK-Info), which protects little: convert it with openssl pkcs8 -topk8")
		}
		if b.Type[0] == 'R' {
			key, err = x509.ParsePKCS1PrivateKey(b.Bytes)
		} else {
			key, err = x509.ParseECPrivateKey(b.Bytes)
		}
	case "ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY":
		return nil, errors.New("cannot read cosign's own encrypted form: want PKCS#8, plain or encrypted")
	default:
		return nil, fmt.Errorf("cannot use PEM of type %q: want PRIVATE KEY or ENCRYPTED PRIVATE KEY (PKCS#8)", b.Type)
	}
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("cannot sign with a key of kind %T", key)
	}
	return signer, nil
}

// certificateBeside reads x-cert.pem for x-key.pem, if there is one.
func certificateBeside(path string) (*x509.Certificate, error) {
	base, ok := strings.CutSuffix(path, "-key.pem")
	if !ok {
		return nil, nil
	}
	cert, err := ReadCertificate(base + "-cert.pem")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return cert, err
}

// ReadCertificate reads the first certificate of a PEM file.
func ReadCertificate(path string) (*x509.Certificate, error) {
	blocks, err := readPEM(path)
	if err != nil {
		return nil, fmt.Errorf("reading certificate: %w", err)
	}
	for _, b := range blocks {
		if b.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading certificate %s: %w", path, err)
		}
		return cert, nil
	}
	return nil, fmt.Errorf("cannot use %s: it has no certificate", path)
}

func readPEM(path string) ([]*pem.Block, error) {
	file, err := os.Open(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, fmt.Errorf("cannot read %s: more than %d bytes", path, maxFile)
	}
	var blocks []*pem.Block
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			break
		}
		blocks = append(blocks, b)
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("cannot read %s: it has no PEM", path)
	}
	return blocks, nil
}
