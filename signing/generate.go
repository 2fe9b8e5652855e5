package signing

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/talos-factory/talos-factory/signing/authvar"
)

// Certificates are valid between two days that no clock moves. Firmware does not look at them; other readers may. The
// variables' updates have the first day as their time, so that any later rotation is later.
var (
	notBefore = time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)
	notAfter  = time.Date(2049, time.December, 31, 23, 59, 59, 0, time.UTC) // the last year of UTCTime, RFC 5280, 4.1.2.5
)

// rsaBits: firmware is not asked to know more (UEFI 2.10, 32.2.4 has RSA 2048), and TPMs verify policies of 2048 in hardware.
const rsaBits = 2048

// A Plan of a new set.
type Plan struct {
	Name       string // begins the certificates' common names
	Passphrase Secret // encrypts the private keys; nil leaves them plain
}

// A secureBootKey has a certificate that firmware is to trust.
type secureBootKey struct {
	private *rsa.PrivateKey
	cert    *x509.Certificate
}

// Generate makes the keys of a set in dir, which must not be there, or be empty: it appears whole or not at all.
//
// PK, KEK and UKI signing have a key each: PK allows changes of KEK, KEK those of db, db holds the certificate of UKI signing.
// So the key that is at work every day can be replaced by one that is not.
func (p Plan) Generate(dir string) (err error) {
	if err := vacant(dir); err != nil {
		return err
	}
	files, err := p.files()
	if err != nil {
		return fmt.Errorf("generating keys: %w", err)
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("writing keys: %w", err)
	}
	temporary, err := os.MkdirTemp(parent, ".keys-")
	if err != nil {
		return fmt.Errorf("writing keys: %w", err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(temporary)
		}
	}()
	for name, f := range files {
		if err := writeSynced(filepath.Join(temporary, name), f); err != nil {
			return fmt.Errorf("writing keys: %w", err)
		}
	}
	if err := os.Rename(temporary, dir); err != nil { // refuses a folder that got files meanwhile
		return fmt.Errorf("writing keys: %w", err)
	}
	return nil
}

// ErrExists says that a set would overwrite something.
var ErrExists = errors.New("cannot write keys over what is there")

func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("writing keys: %w", err)
	case len(entries) > 0:
		return fmt.Errorf("%w: %s has %s", ErrExists, dir, entries[0].Name())
	}
	return nil
}

type file struct {
	content []byte
	mode    fs.FileMode
}

func writeSynced(path string, f file) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
	if err != nil {
		return err
	}
	_, err = out.Write(f.content)
	return errors.Join(err, out.Sync(), out.Close())
}

// files are the set's, by name.
func (p Plan) files() (map[string]file, error) {
	files := map[string]file{}
	var boot [3]secureBootKey
	for i, k := range []struct{ purpose, key, cert string }{
		{"PK", pkKeyFile, pkCertFile}, {"KEK", kekKeyFile, kekCertFile}, {"UKI signing", ukiKeyFile, ukiCertFile},
	} {
		key, err := newSecureBootKey(p.Name + " " + k.purpose)
		if err != nil {
			return nil, err
		}
		boot[i] = key
		files[k.cert] = file{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: key.cert.Raw}), 0o644}
		if err := p.addKey(files, k.key, key.private); err != nil {
			return nil, err
		}
	}
	pcr, err := rsa.GenerateKey(rand.Reader, rsaBits)
	if err != nil {
		return nil, err
	}
	cosign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	for _, k := range []struct {
		key, public string
		private     crypto.Signer
	}{{pcrKeyFile, pcrPublicFile, pcr}, {cosignKeyFile, cosignPublic, cosign}} {
		if err := p.addKey(files, k.key, k.private); err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKIXPublicKey(k.private.Public())
		if err != nil {
			return nil, err
		}
		files[k.public] = file{pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644}
	}
	return files, addAuth(files, boot[0], boot[1], boot[2])
}

func (p Plan) addKey(files map[string]file, name string, private crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "PRIVATE KEY", Bytes: der}
	if p.Passphrase != nil {
		block.Type = "ENCRYPTED PRIVATE KEY"
		if block.Bytes, err = encryptPKCS8(der, p.Passphrase); err != nil {
			return err
		}
	}
	files[name] = file{pem.EncodeToMemory(block), 0o600}
	return nil
}

// addAuth adds the variables' updates: PK signed by itself, KEK by PK, db by KEK.
func addAuth(files map[string]file, pk, kek, uki secureBootKey) error {
	owner := ownerOf(pk.cert)
	for _, u := range []struct {
		variable authvar.Variable
		trusted  *x509.Certificate
		by       secureBootKey
	}{{authvar.PK, pk.cert, pk}, {authvar.KEK, kek.cert, pk}, {authvar.DB, uki.cert, kek}} {
		value, err := authvar.EncodeLists([]authvar.List{authvar.CertificateList(owner, u.trusted)})
		if err != nil {
			return err
		}
		update, err := authvar.Sign(u.variable, notBefore, value, u.by.private, u.by.cert)
		if err != nil {
			return err
		}
		files[u.variable.Name+authFileSuffix] = file{update.Encode(), 0o644}
	}
	return nil
}

// ownerOf is a GUID for whoever holds the platform key, so that a set has the same in all its variables (RFC 9562, 5.8).
func ownerOf(pk *x509.Certificate) authvar.GUID {
	sum := sha256.Sum256(pk.Raw)
	owner := authvar.GUID(sum[:16])
	owner[7] = owner[7]&0x0f | 0x80 // version 8; the third field is little-endian
	owner[8] = owner[8]&0x3f | 0x80 // variant
	return owner
}

func newSecureBootKey(name string) (secureBootKey, error) {
	private, err := rsa.GenerateKey(rand.Reader, rsaBits)
	if err != nil {
		return secureBootKey{}, err
	}
	cert, err := selfSigned(name, private)
	return secureBootKey{private, cert}, err
}

// selfSigned depends on name and key only: the serial number is of the key's hash.
func selfSigned(name string, private *rsa.PrivateKey) (*x509.Certificate, error) {
	spki, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(spki)
	template := &x509.Certificate{
		SerialNumber:          new(big.Int).SetBytes(append([]byte{0x01}, sum[:15]...)),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		BasicConstraintsValid: true,
		IsCA:                  true, // its own authority, as openssl req -x509 makes them
		SubjectKeyId:          sum[:20],
		SignatureAlgorithm:    x509.SHA256WithRSA,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, fmt.Errorf("making certificate %q: %w", name, err)
	}
	return x509.ParseCertificate(der)
}
