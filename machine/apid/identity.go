package apid

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/config/secret"
	"github.com/talos-factory/talos-factory/machine/state"
)

// roleKey is the metadata in which machined finds the caller's roles.
const roleKey = "talos-role"

// roleImpersonator is another node's apid: the roles it sends are the caller's.
const roleImpersonator = "os:impersonator"

// lastWord is how long connections live on when the rules by which they were let in end: the
// reply to the call that ended them, the applied configuration, is still on its way. Where
// it was maintenance that ended, new calls on them are refused.
const lastWord = time.Second

// identity is who this machine is, and decides who a caller is. It changes while apid
// serves; connections made under rules that no longer hold are closed.
type identity struct {
	mu          sync.Mutex
	maintenance bool
	trusted     string      // the accepted CAs, to see whether they change
	server      *tls.Config // for callers; nil: nobody is let in
	client      *tls.Config // for other nodes; nil: this machine does not forward
	conns       map[net.Conn]struct{}
}

// change makes the identity that of the resource. If the resource is broken nobody is
// let in until the next change: the old rules may be weaker.
func (i *identity) change(spec state.APICertificatesSpec) error {
	server, client, err := configs(spec)
	i.mu.Lock()
	defer i.mu.Unlock()
	same := err == nil && i.server != nil && i.maintenance == spec.Maintenance && i.trusted == string(spec.AcceptedCAs)
	i.maintenance, i.trusted = spec.Maintenance, string(spec.AcceptedCAs)
	i.server, i.client = server, client
	if same {
		return nil
	}
	old := i.conns
	i.conns = nil
	if err == nil {
		time.AfterFunc(lastWord, func() { closeAll(old) })
	} else {
		closeAll(old)
	}
	return err
}

func closeAll(conns map[net.Conn]struct{}) {
	for conn := range conns {
		_ = conn.Close() // its owner notices
	}
}

func configs(spec state.APICertificatesSpec) (server, client *tls.Config, err error) {
	crt, err := keyPair(spec.Server)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the server certificate: %w", err)
	}
	server = &tls.Config{
		Certificates: []tls.Certificate{crt},
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{"h2"},
		// A resumed session would be one that was let in by older rules.
		SessionTicketsDisabled: true,
	}
	if spec.Maintenance {
		return server, nil, nil
	}
	pool, err := pki.Pool(spec.AcceptedCAs)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the accepted CAs: %w", err)
	}
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, pool
	if spec.Client.IsZero() {
		return server, nil, nil
	}
	own, err := keyPair(spec.Client)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the client certificate: %w", err)
	}
	client = &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool, MinVersion: tls.VersionTLS13}
	return server, client, nil
}

func keyPair(pair state.KeyPair) (tls.Certificate, error) {
	return pki.Pair{Crt: secret.PEM(pair.Crt), Key: pair.Key}.TLS()
}

// tls asks for the rules at each handshake.
func (i *identity) tls() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			i.mu.Lock()
			defer i.mu.Unlock()
			if i.server == nil {
				return nil, errors.New("no certificates")
			}
			return i.server, nil
		},
	}
}

// clientTLS is how to connect to another node, or nil.
func (i *identity) clientTLS() *tls.Config {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.client
}

type callerKey struct{}

// intercept adds the caller's roles to the call, or refuses it.
func (i *identity) intercept(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	roles, err := i.roles(stream.Context())
	if err != nil {
		return err
	}
	return next(srv, &callerStream{stream, context.WithValue(stream.Context(), callerKey{}, roles)})
}

type callerStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *callerStream) Context() context.Context { return s.ctx }

func (i *identity) roles(ctx context.Context) ([]string, error) {
	crt, err := peerCertificate(ctx)
	if err != nil {
		return nil, err
	}
	if crt == nil {
		i.mu.Lock()
		defer i.mu.Unlock()
		if !i.maintenance {
			return nil, status.Error(codes.Unauthenticated, "a client certificate is required")
		}
		// None: machined knows by itself what it answers to anybody. A role would be good for more than
		// that between a configuration and its certificates, which on a worker may be long in coming.
		return nil, nil
	}
	if !slices.Equal(crt.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || len(crt.UnknownExtKeyUsage) > 0 {
		return nil, status.Error(codes.PermissionDenied, "the certificate must be for client authentication and nothing else")
	}
	if !slices.Contains(crt.Subject.Organization, roleImpersonator) {
		return crt.Subject.Organization, nil
	}
	incoming, _ := metadata.FromIncomingContext(ctx)
	return slices.DeleteFunc(slices.Clone(incoming.Get(roleKey)), func(role string) bool { return role == roleImpersonator }), nil
}

// peerCertificate returns the certificate that the handshake verified, or nil if it asked
// for none. In maintenance none is asked for.
func peerCertificate(ctx context.Context) (*x509.Certificate, error) {
	caller, ok := peer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "no peer")
	}
	info, ok := caller.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "not a TLS connection")
	}
	if len(info.State.VerifiedChains) == 0 {
		return nil, nil
	}
	return info.State.VerifiedChains[0][0], nil
}

// track remembers the listener's connections.
func (i *identity) track(listener net.Listener) net.Listener {
	return &trackingListener{listener, i}
}

type trackingListener struct {
	net.Listener
	identity *identity
}

func (l *trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, identity: l.identity}
	l.identity.mu.Lock()
	defer l.identity.mu.Unlock()
	if l.identity.conns == nil {
		l.identity.conns = map[net.Conn]struct{}{}
	}
	// The raw connection is kept: closing it must not come back here for the lock.
	l.identity.conns[conn] = struct{}{}
	return tracked, nil
}

type trackedConn struct {
	net.Conn
	identity *identity
}

func (c *trackedConn) Close() error {
	c.identity.mu.Lock()
	delete(c.identity.conns, c.Conn)
	c.identity.mu.Unlock()
	return c.Conn.Close()
}
