// Package apid is the machine's door: the one API server on the network. It decides who a
// caller is, and passes calls on, to machined on this machine or to other nodes' apid,
// without looking into them.
//
// It does not decide what a caller may do; machined does, from the roles that apid adds to
// every call. It holds no state but the certificates it watches.
package apid

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/siderolabs/grpc-proxy/proxy"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/talos-factory/talos-factory/machine/state"
)

// maxMessage is the largest message that passes, as in the public API.
const maxMessage = 32 << 20

// stopTimeout is how long running calls have when apid is stopped.
const stopTimeout = 5 * time.Second

// Options are apid's surroundings.
type Options struct {
	Listen        string // address to serve on
	Port          string // other nodes' API port
	RuntimeSocket string // where machined serves apid's resource
	MachineSocket string // where machined serves the API

	// Addresses are the machine's own; nil asks the kernel.
	Addresses func() ([]netip.Addr, error)
	Log       *slog.Logger
}

// Main runs apid with a command line's arguments until ctx ends or it is told to stop.
func Main(ctx context.Context, args []string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	options := Options{Port: "50000", Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags := flag.NewFlagSet("apid", flag.ContinueOnError)
	flags.StringVar(&options.Listen, "listen", ":50000", "address to serve on")
	flags.StringVar(&options.RuntimeSocket, "runtime-socket", "/system/run/apid/runtime.sock", "machined's resources")
	flags.StringVar(&options.MachineSocket, "machine-socket", "/system/run/machined/machine.sock", "machined's API")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return Run(ctx, options)
}

// Run serves until ctx ends. It begins to listen as soon as there are certificates.
func Run(ctx context.Context, options Options) error {
	if options.Addresses == nil {
		options.Addresses = interfaceAddresses
	}
	identity := &identity{}
	backends, err := newBackends(options, identity)
	if err != nil {
		return err
	}
	defer backends.close()
	server := newServer(identity, &router{local: backends, addresses: options.Addresses})

	group, ctx := errgroup.WithContext(ctx)
	ready := make(chan struct{}, 1)
	group.Go(func() error {
		return state.FollowAPICertificates(ctx, options.Log, options.RuntimeSocket, func(spec state.APICertificatesSpec) {
			err := identity.change(spec)
			backends.reset()
			if err != nil {
				options.Log.Error("cannot serve with these certificates: nobody is let in", "error", err)
				return
			}
			options.Log.Info("certificates changed", "maintenance", spec.Maintenance, "forwards", !spec.Client.IsZero())
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
		options.Log.Info("serving the API", "address", listener.Addr().String())
		if err := server.Serve(identity.track(listener)); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		timer := time.AfterFunc(stopTimeout, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
		return nil
	})
	return group.Wait()
}

func newServer(identity *identity, router *router) *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(credentials.NewTLS(identity.tls())),
		grpc.ForceServerCodecV2(proxy.Codec()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.ConnectionTimeout(10*time.Second),
		// A dead client is noticed; one that asks for signs of life more often than this is not let.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.StreamInterceptor(identity.intercept),
		grpc.UnknownServiceHandler(proxy.TransparentHandler(router.direct, proxy.WithStreamedDetector(streams))),
	)
}

func interfaceAddresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing the machine's addresses: %w", err)
	}
	var addresses []netip.Addr
	for _, address := range found {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			addresses = append(addresses, prefix.Addr().Unmap())
		}
	}
	return addresses, nil
}
