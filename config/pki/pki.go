// Package pki makes and reads the certificates of a cluster's machine API: an ed25519 CA,
// short-lived server certificates, and client certificates whose organizations are roles.
//
// It keeps no state and no files, does not revoke, and knows nothing of Kubernetes' own
// certificates.
package pki

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"time"

	"github.com/talos-factory/talos-factory/config/secret"
)

// PEM block types (RFC 7468, except the second).
const (
	typeCertificate = "CERTIFICATE"
	// The field's clients call a PKCS #8 body by this name, and accept it.
	typeEd25519Key = "ED25519 PRIVATE KEY"
	typePKCS8      = "PRIVATE KEY"
)

// How long certificates live. A server gets a new one well before; a person must ask for one.
const (
	CALifetime     = 10 * 365 * 24 * time.Hour
	ClientLifetime = 365 * 24 * time.Hour
	ServerLifetime = 24 * time.Hour

	// A machine's clock may be behind that of whoever signs.
	backdate = time.Hour
)

// Pair is a certificate and its key, PEM; in YAML both are base64.
type Pair struct {
	Crt secret.PEM `yaml:"crt"`
	Key secret.Key `yaml:"key"`
}

// IsZero says that the pair has no certificate.
func (p Pair) IsZero() bool { return len(p.Crt) == 0 }

// Certificate returns the pair's (first) certificate.
func (p Pair) Certificate() (*x509.Certificate, error) { return ParseCertificate(p.Crt) }

// Signer returns the pair's key.
func (p Pair) Signer() (crypto.Signer, error) { return parseKey(p.Key) }

// TLS returns the pair as crypto/tls wants it.
func (p Pair) TLS() (tls.Certificate, error) {
	crt, err := p.Certificate()
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := p.Signer()
	if err != nil {
		return tls.Certificate{}, err
	}
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(crt.PublicKey) {
		return tls.Certificate{}, errors.New("the key is not the certificate's")
	}
	return tls.Certificate{Certificate: [][]byte{crt.Raw}, PrivateKey: key, Leaf: crt}, nil
}

// NewCA returns a CA for the API. Its organization says whose it is; nothing checks it.
func NewCA(organization string, now time.Time) (Pair, error) {
	template := template(now, CALifetime)
	template.Subject = pkix.Name{Organization: []string{organization}}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return issue(template, nil)
}

// NewClient returns a client certificate with these roles.
func NewClient(ca Pair, now time.Time, lifetime time.Duration, roles ...string) (Pair, error) {
	template := template(now, lifetime)
	template.Subject = pkix.Name{Organization: roles}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return issue(template, &ca)
}

// NewServer returns a server certificate for these names and addresses.
func NewServer(ca Pair, now time.Time, hosts ...string) (Pair, error) {
	return issue(server(now, hosts), &ca)
}

// NewSelfSigned returns the certificate a machine shows before it has a configuration.
// Clients cannot verify it, only compare its Fingerprint.
func NewSelfSigned(now time.Time, hosts ...string) (Pair, error) {
	template := server(now, hosts)
	template.NotAfter = now.Add(ClientLifetime)
	return issue(template, nil)
}

func server(now time.Time, hosts []string) *x509.Certificate {
	template := template(now, ServerLifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if addr, err := netip.ParseAddr(host); err == nil {
			template.IPAddresses = append(template.IPAddresses, addr.AsSlice())
		} else if host != "" {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if len(hosts) > 0 {
		template.Subject.CommonName = hosts[0]
	}
	return template
}

func template(now time.Time, lifetime time.Duration) *x509.Certificate {
	return &x509.Certificate{NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime)}
}

// issue makes a key and a certificate for it; without a CA the certificate signs itself.
func issue(template *x509.Certificate, ca *Pair) (Pair, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	parent, signer := template, crypto.Signer(private)
	if ca != nil {
		if parent, signer, err = ca.issuer(); err != nil {
			return Pair{}, err
		}
	}
	crt, err := sign(template, parent, public, signer)
	if err != nil {
		return Pair{}, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Crt: crt, Key: pem.EncodeToMemory(&pem.Block{Type: typeEd25519Key, Bytes: key})}, nil
}

func (p Pair) issuer() (*x509.Certificate, crypto.Signer, error) {
	leaf, err := p.TLS()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the CA: %w", err)
	}
	if !leaf.Leaf.IsCA {
		return nil, nil, errors.New("cannot sign: the certificate is not a CA's")
	}
	return leaf.Leaf, leaf.PrivateKey.(crypto.Signer), nil
}

// sign gives the certificate a random serial number of 128 bits, below RFC 5280's limit
// of 20 octets (4.1.2.2).
func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Bytes: der}), nil
}

// ParseCertificate returns the first certificate of a PEM text.
func ParseCertificate(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != typeCertificate {
		return nil, errors.New("no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

func parseKey(data secret.Key) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil || (block.Type != typeEd25519Key && block.Type != typePKCS8) {
		return nil, errors.New("no PEM private key (PKCS #8)")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the private key is not PKCS #8") // the cause might quote it
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("cannot sign with a %T", key)
	}
	return signer, nil
}

// Pool returns a pool of PEM certificates and refuses an empty or broken one, which
// crypto/tls would take to mean the system's.
func Pool(data []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errors.New("no CA certificate")
	}
	return pool, nil
}

// Fingerprint is the sha256 of the certificate's public key (its SubjectPublicKeyInfo) in
// base64, what `talosctl --cert-fingerprint` takes: it stays when the certificate is
// issued anew for the same key.
func Fingerprint(crt *x509.Certificate) string {
	sum := sha256.Sum256(crt.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}
