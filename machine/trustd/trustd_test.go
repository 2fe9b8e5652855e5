package trustd_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/config/secret"
	"github.com/talos-factory/talos-factory/machine/state"
	"github.com/talos-factory/talos-factory/machine/trustclient"
	"github.com/talos-factory/talos-factory/machine/trustd"
)

const token = "abcdef.0123456789abcdef"

type logBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// start runs a real trustd that finds spec on a socket, and gives its port and its log.
func start(t *testing.T, spec state.TrustdCertificatesSpec) (port string, log *logBuffer) {
	t.Helper()
	store, err := state.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Put(t.Context(), store, state.NewTrustdCertificates(spec)); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	v1alpha1.RegisterStateServer(s, server.NewState(store))
	go s.Serve(listener)
	t.Cleanup(s.Stop)

	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := probe.Addr().String()
	probe.Close()
	_, port, _ = net.SplitHostPort(address)
	log = &logBuffer{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- trustd.Run(ctx, trustd.Options{Listen: address, RuntimeSocket: socket, Log: slog.New(slog.NewTextHandler(log, nil))})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("trustd ended: %v", err)
		}
	})
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(log.String(), "certificates"); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("trustd does nothing: %s", log)
		}
	}
	return port, log
}

func cluster(t *testing.T) (pki.Pair, state.TrustdCertificatesSpec) {
	t.Helper()
	ca, err := pki.NewCA("cluster", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own, err := pki.NewServer(ca, time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return ca, state.TrustdCertificatesSpec{
		CA: state.KeyPair{Crt: ca.Crt, Key: ca.Key}, AcceptedCAs: ca.Crt, Token: secret.Key(token),
		Server: state.KeyPair{Crt: own.Crt, Key: own.Key},
	}
}

func ask(t *testing.T, ca pki.Pair, port string, token secret.Text, hosts ...string) (pki.Pair, []byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		pair, cas, err := trustclient.Certificate(ctx, trustclient.Request{Host: "127.0.0.1", Port: port, CAs: ca.Crt, Token: token, Hosts: hosts})
		if status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "refused") && ctx.Err() == nil {
			time.Sleep(2 * time.Millisecond) // it is about to listen
			continue
		}
		return pair, cas, err
	}
}

func TestCertificate(t *testing.T) {
	ca, spec := cluster(t)
	port, log := start(t, spec)
	pair, cas, err := ask(t, ca, port, token, "worker", "10.0.0.7")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(cas, ca.Crt) {
		t.Errorf("CAs %q", cas)
	}
	crt, err := pair.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pki.Pool(ca.Crt)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"worker", "10.0.0.7"} {
		if _, err := crt.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); err != nil {
			t.Error(err)
		}
	}
	if _, err := crt.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
		t.Error("the certificate can be a client's")
	}
	if strings.Contains(log.String(), token) || strings.Contains(log.String(), "PRIVATE") {
		t.Errorf("the log has secrets: %s", log)
	}
}

func TestRefuses(t *testing.T) {
	ca, spec := cluster(t)
	port, log := start(t, spec)
	tests := map[string]struct {
		token secret.Text
		hosts []string
		want  codes.Code
	}{
		"no token":      {"", []string{"worker"}, codes.PermissionDenied},
		"wrong token":   {"abcdef.0123456789abcdeg", []string{"worker"}, codes.PermissionDenied},
		"half a token":  {"abcdef", []string{"worker"}, codes.PermissionDenied},
		"names no host": {token, nil, codes.InvalidArgument},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, _, err := ask(t, ca, port, tt.token, tt.hosts...); status.Code(err) != tt.want {
				t.Errorf("error %v, want %v", err, tt.want)
			}
		})
	}
	if !strings.Contains(log.String(), "wrong or missing join token") || strings.Contains(log.String(), "abcdeg") {
		t.Errorf("log: %s", log)
	}
	other, _ := cluster(t)
	if _, _, err := ask(t, other, port, token, "worker"); status.Code(err) != codes.Unavailable {
		t.Errorf("the client trusts a server of another cluster: %v", err)
	}
}

// Without its token, its CA or its certificate trustd does not even listen.
func TestFailsClosed(t *testing.T) {
	tests := map[string]func(*state.TrustdCertificatesSpec){
		"no token":           func(s *state.TrustdCertificatesSpec) { s.Token = nil },
		"no CA key":          func(s *state.TrustdCertificatesSpec) { s.CA.Key = nil },
		"another CA's key":   func(s *state.TrustdCertificatesSpec) { s.CA.Key = s.Server.Key },
		"no own certificate": func(s *state.TrustdCertificatesSpec) { s.Server = state.KeyPair{} },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			_, spec := cluster(t)
			spoil(&spec)
			port, log := start(t, spec)
			if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
				conn.Close()
				t.Error("it listens")
			}
			if !strings.Contains(log.String(), "nothing is signed") {
				t.Errorf("log: %s", log)
			}
		})
	}
}
