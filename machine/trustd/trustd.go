// Package trustd gives server certificates to machines that do not hold the machine CA's
// key: workers. Whoever knows the cluster's join token gets one, for the names he asks for.
//
// It gives nothing else: no client certificates, so no roles; and it runs only on control
// planes. When anything is missing it refuses.
package trustd

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/talos-factory/talos-factory/api/security"
	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/config/secret"
	"github.com/talos-factory/talos-factory/machine/state"
)

// maxRequest is far more than a certificate request needs.
const maxRequest = 64 << 10

// Options are trustd's surroundings.
type Options struct {
	Listen        string // address to serve on
	RuntimeSocket string // where machined serves trustd's resource
	Log           *slog.Logger
}

// Main runs trustd with a command line's arguments until ctx ends or it is told to stop.
func Main(ctx context.Context, args []string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	options := Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags := flag.NewFlagSet("trustd", flag.ContinueOnError)
	flags.StringVar(&options.Listen, "listen", ":50001", "address to serve on")
	flags.StringVar(&options.RuntimeSocket, "runtime-socket", "/system/run/trustd/runtime.sock", "machined's resources")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return Run(ctx, options)
}

// Run serves until ctx ends. It begins to listen as soon as there are certificates.
func Run(ctx context.Context, options Options) error {
	issuer := &issuer{log: options.Log, now: time.Now}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(issuer.tls())),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.ConnectionTimeout(10*time.Second),
		// Anybody may connect; who asks for nothing does not stay.
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: time.Minute}),
	)
	security.RegisterSecurityServiceServer(server, issuer)

	group, ctx := errgroup.WithContext(ctx)
	ready := make(chan struct{}, 1)
	group.Go(func() error {
		return state.FollowTrustdCertificates(ctx, options.Log, options.RuntimeSocket, func(spec state.TrustdCertificatesSpec) {
			if err := issuer.change(spec); err != nil {
				options.Log.Error("cannot serve with these certificates: nothing is signed", "error", err)
				return
			}
			options.Log.Info("certificates changed")
			select {
			case ready <- struct{}{}:
			default:
			}
		})
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
		listener, err := net.Listen("tcp", options.Listen)
		if err != nil {
			return fmt.Errorf("listening: %w", err)
		}
		options.Log.Info("serving certificates", "address", listener.Addr().String())
		if err := server.Serve(listener); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		server.Stop() // a call takes milliseconds and can be made again
		return nil
	})
	return group.Wait()
}

// issuer answers. Its zero value refuses everything.
type issuer struct {
	security.UnimplementedSecurityServiceServer
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	server *tls.Certificate // nil: no handshake succeeds
	spec   state.TrustdCertificatesSpec
}

func (i *issuer) change(spec state.TrustdCertificatesSpec) error {
	server, err := pair(spec.Server).TLS()
	if err == nil {
		_, err = pair(spec.CA).TLS()
	}
	if err == nil && len(spec.Token) == 0 {
		err = errors.New("the token is empty")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.server, i.spec = nil, state.TrustdCertificatesSpec{}
		return err
	}
	i.server, i.spec = &server, spec
	return nil
}

func pair(p state.KeyPair) pki.Pair { return pki.Pair{Crt: secret.PEM(p.Crt), Key: p.Key} }

func (i *issuer) tls() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			i.mu.Lock()
			defer i.mu.Unlock()
			if i.server == nil {
				return nil, errors.New("no certificates")
			}
			return i.server, nil
		},
	}
}

// Certificate signs a server certificate for whoever knows the token.
func (i *issuer) Certificate(ctx context.Context, request *security.CertificateRequest) (*security.CertificateResponse, error) {
	i.mu.Lock()
	spec := i.spec
	i.mu.Unlock()
	caller := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		caller = p.Addr.String()
	}
	if !authorized(ctx, spec.Token) {
		i.log.Warn("wrong or missing join token", "caller", caller)
		return nil, status.Error(codes.PermissionDenied, "cannot sign: the join token is wrong or missing")
	}
	crt, err := pki.SignServer(pair(spec.CA), request.Csr, i.now())
	if err != nil {
		i.log.Warn("bad certificate request", "caller", caller, "error", err)
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	i.log.Info("signed a server certificate", "caller", caller)
	return &security.CertificateResponse{Ca: spec.AcceptedCAs, Crt: crt}, nil
}

// authorized compares hashes, so that time tells neither the token nor its length.
func authorized(ctx context.Context, token secret.Key) bool {
	incoming, _ := metadata.FromIncomingContext(ctx)
	given := incoming.Get("token")
	if len(token) == 0 || len(given) != 1 {
		return false
	}
	got, want := sha256.Sum256([]byte(given[0])), sha256.Sum256(token.Reveal())
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
