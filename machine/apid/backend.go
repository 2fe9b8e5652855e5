package apid

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/siderolabs/grpc-proxy/proxy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// backends holds the connections to machined and to other nodes.
type backends struct {
	port     string
	identity *identity
	socket   *grpc.ClientConn

	mu    sync.Mutex
	nodes map[string]*grpc.ClientConn
}

func newBackends(options Options, identity *identity) (*backends, error) {
	socket, err := dial("unix:"+options.MachineSocket, insecure.NewCredentials())
	if err != nil {
		return nil, err
	}
	return &backends{port: options.Port, identity: identity, socket: socket, nodes: map[string]*grpc.ClientConn{}}, nil
}

func dial(target string, creds credentials.TransportCredentials) (*grpc.ClientConn, error) {
	return grpc.NewClient(target,
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(proxy.Codec()),
			grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage),
		))
}

// machined is this machine. Its replies are marked with name where replies are merged.
func (b *backends) machined(name string) proxy.Backend {
	return &backend{name: name, conn: b.socket}
}

// remote is another node.
func (b *backends) remote(node string) (proxy.Backend, error) {
	config := b.identity.clientTLS()
	if config == nil {
		return nil, status.Errorf(codes.PermissionDenied, "no request forwarding: this machine asks no other (%s); connect to a control plane", node)
	}
	if !isNode(node) {
		return nil, status.Errorf(codes.InvalidArgument, "cannot ask node %q: neither a name nor an address", node)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	conn := b.nodes[node]
	if conn == nil {
		config = config.Clone()
		config.ServerName = node
		var err error
		// passthrough: names are resolved when connecting, and never as gRPC's own target syntax.
		if conn, err = dial("passthrough:///"+net.JoinHostPort(node, b.port), credentials.NewTLS(config)); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "cannot ask node %q: %v", node, err)
		}
		b.nodes[node] = conn
	}
	return &backend{name: node, conn: conn, forward: true}, nil
}

// isNode keeps out what would mean more than a host to a dialler.
func isNode(node string) bool {
	if _, err := netip.ParseAddr(node); err == nil {
		return true
	}
	return node != "" && len(node) <= 253 && !strings.ContainsFunc(node, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && r != '-' && r != '.'
	})
}

// reset closes the connections to other nodes: they were made with the old certificates.
func (b *backends) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.nodes {
		_ = conn.Close() // its calls end with an error of their own
	}
	clear(b.nodes)
}

func (b *backends) close() {
	b.reset()
	_ = b.socket.Close()
}

// A backend is one node for one call.
type backend struct {
	name    string
	conn    *grpc.ClientConn
	forward bool
}

func (b *backend) String() string { return b.name }

// GetConnection passes on the caller's metadata, except what it may not say about itself.
func (b *backend) GetConnection(ctx context.Context, _ string) (context.Context, *grpc.ClientConn, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	outgoing := incoming.Copy()
	authority := strings.Join(outgoing.Get(":authority"), ",")
	for _, key := range []string{":authority", nodeKey, nodesKey, fromKey, roleKey} {
		outgoing.Delete(key)
	}
	roles, ok := ctx.Value(callerKey{}).([]string)
	if !ok {
		return ctx, nil, status.Error(codes.Internal, "internal error: the caller's roles are not known")
	}
	outgoing.Set(roleKey, roles...)
	if b.forward {
		outgoing.Set(fromKey, authority)
	}
	return metadata.NewOutgoingContext(ctx, outgoing), b.conn, nil
}

// AppendInfo marks a reply with its node.
func (b *backend) AppendInfo(streaming bool, reply []byte) ([]byte, error) {
	if b.name == "" {
		return reply, nil
	}
	return mark(streaming, reply, b.name)
}

// BuildError makes a reply of a node's error, so that the other nodes' replies are not lost.
func (b *backend) BuildError(streaming bool, err error) ([]byte, error) {
	return errorReply(streaming, b.name, err)
}
