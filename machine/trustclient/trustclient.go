// Package trustclient asks a control plane's trustd for this machine's server certificate.
// machined uses it on workers. It asks once; when to ask, and again, is the caller's matter.
package trustclient

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/talos-factory/talos-factory/api/security"
	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/config/secret"
)

// Port is where trustd serves.
const Port = "50001"

// Request says whom to ask, for what.
type Request struct {
	Host  string      // the control plane: a name or an address
	Port  string      // "" is Port
	CAs   []byte      // who may have signed trustd's certificate, PEM
	Token secret.Text // the join token
	Hosts []string    // this machine's names and addresses
}

// Certificate returns a new key with its certificate, and the CAs that the cluster accepts.
// The key is made here and stays here.
func Certificate(ctx context.Context, r Request) (pki.Pair, []byte, error) {
	pool, err := pki.Pool(r.CAs)
	if err != nil {
		return pki.Pair{}, nil, err
	}
	key, csr, err := pki.Request(r.Hosts...)
	if err != nil {
		return pki.Pair{}, nil, err
	}
	if r.Port == "" {
		r.Port = Port
	}
	target := net.JoinHostPort(r.Host, r.Port)
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(credentials.NewTLS(
		&tls.Config{RootCAs: pool, ServerName: r.Host, MinVersion: tls.VersionTLS13})))
	if err != nil {
		return pki.Pair{}, nil, fmt.Errorf("connecting to trustd at %s: %w", target, err)
	}
	defer func() { _ = conn.Close() }()
	ctx = metadata.AppendToOutgoingContext(ctx, "token", r.Token.Reveal())
	reply, err := security.NewSecurityServiceClient(conn).Certificate(ctx, &security.CertificateRequest{Csr: csr})
	if err != nil {
		return pki.Pair{}, nil, fmt.Errorf("asking trustd at %s for a certificate: %w", target, err)
	}
	server := pki.Pair{Crt: reply.Crt, Key: key}
	if _, err := server.TLS(); err != nil {
		return pki.Pair{}, nil, fmt.Errorf("reading the certificate from trustd at %s: %w", target, err)
	}
	if _, err := pki.Pool(reply.Ca); err != nil {
		return pki.Pair{}, nil, fmt.Errorf("reading the CAs from trustd at %s: %w", target, err)
	}
	return server, reply.Ca, nil
}
