package apid_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	cosi "github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-factory/talos-factory/api/common"
	"github.com/talos-factory/talos-factory/api/machine"
	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/machine/apid"
	"github.com/talos-factory/talos-factory/machine/state"
)

// machined answers with what it was told: its name, and the roles that came with the call.
type machined struct {
	machine.UnimplementedMachineServiceServer
	name string
}

func (m *machined) Hostname(ctx context.Context, _ *emptypb.Empty) (*machine.HostnameResponse, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	text := m.name + " " + strings.Join(incoming.Get("talos-role"), ",")
	return &machine.HostnameResponse{Messages: []*machine.Hostname{{Hostname: text}}}, nil
}

func (m *machined) Reboot(context.Context, *machine.RebootRequest) (*machine.RebootResponse, error) {
	return nil, status.Errorf(codes.PermissionDenied, "%s does not reboot", m.name)
}

func (m *machined) Dmesg(_ *machine.DmesgRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	for range 2 {
		if err := stream.Send(&common.Data{Bytes: []byte(m.name)}); err != nil {
			return err
		}
	}
	return nil
}

// Events goes on until the caller is gone.
func (m *machined) Events(_ *machine.EventsRequest, stream grpc.ServerStreamingServer[machine.Event]) error {
	if err := stream.Send(&machine.Event{}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// A node is a real apid with a real machined-like server behind it, on sockets in a
// temporary folder.
type node struct {
	address string // host
	port    string
	store   cosi.State
}

func (n *node) target() string { return net.JoinHostPort(n.address, n.port) }

func startNode(t *testing.T, name, address, port string) *node {
	t.Helper()
	dir := t.TempDir()
	store, err := state.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := &machined{name: name}
	serve(t, filepath.Join(dir, "machine.sock"), func(s *grpc.Server) {
		machine.RegisterMachineServiceServer(s, m)
		machine.RegisterImageServiceServer(s, machine.UnimplementedImageServiceServer{})
	})
	serve(t, filepath.Join(dir, "runtime.sock"), func(s *grpc.Server) {
		v1alpha1.RegisterStateServer(s, server.NewState(state.Only(store, state.APICertificatesType)))
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- apid.Run(ctx, apid.Options{
			Listen: net.JoinHostPort(address, port), Port: port,
			RuntimeSocket: filepath.Join(dir, "runtime.sock"), MachineSocket: filepath.Join(dir, "machine.sock"),
			Addresses: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr(address)}, nil },
			Log:       slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("apid of %s ended: %v", name, err)
		}
	})
	return &node{address: address, port: port, store: store}
}

func serve(t *testing.T, socket string, register func(*grpc.Server)) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go s.Serve(listener)
	t.Cleanup(s.Stop)
}

// configure gives apid its certificates and waits until it serves with them.
func (n *node) configure(t *testing.T, spec state.APICertificatesSpec) {
	t.Helper()
	if err := state.Put(t.Context(), n.store, state.NewAPICertificates(spec)); err != nil {
		t.Fatal(err)
	}
	want, err := pki.ParseCertificate(spec.Server.Crt)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := tls.Dial("tcp", n.target(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err == nil {
			got := conn.ConnectionState().PeerCertificates[0]
			conn.Close()
			if got.Equal(want) {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not serve with its new certificate: %v", n.target(), err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func keyPair(p pki.Pair) state.KeyPair { return state.KeyPair{Crt: p.Crt, Key: p.Key} }

func must(t *testing.T) func(pki.Pair, error) pki.Pair {
	return func(p pki.Pair, err error) pki.Pair {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// member is the resource of a configured machine; only control planes forward.
func member(t *testing.T, ca pki.Pair, address string, controlPlane bool) state.APICertificatesSpec {
	t.Helper()
	spec := state.APICertificatesSpec{
		AcceptedCAs: ca.Crt,
		Server:      keyPair(must(t)(pki.NewServer(ca, time.Now(), address))),
	}
	if controlPlane {
		spec.Client = keyPair(must(t)(pki.NewClient(ca, time.Now(), time.Hour, "os:impersonator")))
	}
	return spec
}

// connect returns a client; without a certificate it verifies nothing, like --insecure.
func (n *node) connect(t *testing.T, ca pki.Pair, client *pki.Pair) *grpc.ClientConn {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if client != nil {
		pool, err := pki.Pool(ca.Crt)
		if err != nil {
			t.Fatal(err)
		}
		own, err := client.TLS()
		if err != nil {
			t.Fatal(err)
		}
		config = &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}}
	}
	conn, err := grpc.NewClient(n.target(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// freePort is one that is free on both loopback addresses.
func freePort(t *testing.T) string {
	t.Helper()
	for range 20 {
		one, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(one.Addr().String())
		two, err := net.Listen("tcp", "127.0.0.2:"+port)
		one.Close()
		if err == nil {
			two.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return ""
}
