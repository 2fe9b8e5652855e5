package pki

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/talos-factory/talos-factory/config/secret"
)

const typeRequest = "CERTIFICATE REQUEST"

// Request returns a new key and a request for a server certificate for these names and
// addresses, PEM.
func Request(hosts ...string) (key secret.Key, csr []byte, err error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	wanted := server(time.Time{}, hosts)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: wanted.Subject, DNSNames: wanted.DNSNames, IPAddresses: wanted.IPAddresses,
	}, private)
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate request: %w", err)
	}
	body, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: typeEd25519Key, Bytes: body}),
		pem.EncodeToMemory(&pem.Block{Type: typeRequest, Bytes: der}), nil
}

// SignServer signs a request as a server certificate. Of what was asked for it takes the
// key, the names and the addresses: never an organization (it would be a role), another
// usage, another lifetime, or being a CA.
func SignServer(ca Pair, csr []byte, now time.Time) ([]byte, error) {
	block, _ := pem.Decode(csr)
	if block == nil || block.Type != typeRequest {
		return nil, errors.New("cannot sign: no PEM certificate request")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("cannot sign: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("cannot sign: the request is not signed by its own key: %w", err)
	}
	if len(request.DNSNames)+len(request.IPAddresses) == 0 {
		return nil, errors.New("cannot sign: the request names no host")
	}
	parent, signer, err := ca.issuer()
	if err != nil {
		return nil, err
	}
	template := server(now, nil)
	template.Subject = pkix.Name{CommonName: request.Subject.CommonName}
	template.DNSNames, template.IPAddresses = request.DNSNames, request.IPAddresses
	return sign(template, parent, request.PublicKey, signer)
}
