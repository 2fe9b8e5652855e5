package signing

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/talos-factory/talos-factory/signing/authvar"
)

// Facts are what may be known of a key.
type Facts struct {
	Use         string            `json:"use"`
	Algorithm   string            `json:"algorithm"`
	Fingerprint string            `json:"sha256"` // of the SubjectPublicKeyInfo
	Certificate *CertificateFacts `json:"certificate,omitempty"`
}

// CertificateFacts are what people look for in a certificate.
type CertificateFacts struct {
	Subject     string    `json:"subject"`
	Issuer      string    `json:"issuer"`
	NotBefore   time.Time `json:"notBefore"`
	NotAfter    time.Time `json:"notAfter"`
	Fingerprint string    `json:"sha256"` // of the certificate
}

// VariableFacts are what an update of a firmware variable sets it to.
type VariableFacts struct {
	Name         string             `json:"name"`
	Time         time.Time          `json:"time"`
	Certificates []CertificateFacts `json:"certificates"`
}

// Describe tells what is known of the key that has this use.
func Describe(use string, key Key) (Facts, error) {
	fingerprint, err := Fingerprint(key.Public())
	f := Facts{Use: use, Algorithm: Algorithm(key.Public()), Fingerprint: fingerprint}
	if cert := key.Certificate(); cert != nil {
		facts := describeCertificate(cert)
		f.Certificate = &facts
	}
	return f, err
}

func describeCertificate(c *x509.Certificate) CertificateFacts {
	sum := sha256.Sum256(c.Raw)
	return CertificateFacts{c.Subject.String(), c.Issuer.String(), c.NotBefore.UTC(), c.NotAfter.UTC(), hex.EncodeToString(sum[:])}
}

// DescribeAuth tells what a set's updates do, in the order PK, KEK, db, dbx.
func DescribeAuth(auth map[string][]byte) ([]VariableFacts, error) {
	var all []VariableFacts
	for _, v := range []authvar.Variable{authvar.PK, authvar.KEK, authvar.DB, authvar.DBX} {
		b, ok := auth[v.Name]
		if !ok {
			continue
		}
		update, err := authvar.Parse(b)
		if err != nil {
			return nil, fmt.Errorf("reading update of %s: %w", v.Name, err)
		}
		lists, err := update.Lists()
		if err != nil {
			return nil, fmt.Errorf("reading update of %s: %w", v.Name, err)
		}
		certs, err := authvar.Certificates(lists)
		if err != nil {
			return nil, fmt.Errorf("reading update of %s: %w", v.Name, err)
		}
		f := VariableFacts{Name: v.Name, Time: update.Time, Certificates: []CertificateFacts{}}
		for _, c := range certs {
			f.Certificates = append(f.Certificates, describeCertificate(c))
		}
		all = append(all, f)
	}
	return all, nil
}

// IsSet says whether uri names a set (a folder, or its document) and not one key. What is not there is taken for a set, unless
// it looks like a key.
func IsSet(uri string) bool {
	scheme, path, found := strings.Cut(uri, ":")
	switch {
	case !found || strings.Contains(scheme, "/"):
		path = uri
	case scheme != "file":
		return false
	}
	path = strings.TrimPrefix(path, "//")
	info, err := os.Stat(path)
	if err != nil {
		return !slices.Contains([]string{".pem", ".key"}, filepath.Ext(path)) && !strings.Contains(path, "?")
	}
	return info.IsDir() || slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path))
}
