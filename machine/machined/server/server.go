//go:build linux

// Package server answers the machine's API on a unix socket: the MachineService, TimeService, ImageService and DebugService that
// apid forwards, and the COSI state.
//
// It does not authenticate: apid does, and hands the caller's roles over in metadata; here they are held against one table of
// methods. It decides nothing about the machine itself: it asks the parts it is given.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/cosi-project/runtime/api/v1alpha1"
	cosi "github.com/cosi-project/runtime/pkg/state"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-factory/talos-factory/api/machine"
	timeapi "github.com/talos-factory/talos-factory/api/time"
	"github.com/talos-factory/talos-factory/machine/machined/containers"
	"github.com/talos-factory/talos-factory/machine/machined/supervisor"
	"github.com/talos-factory/talos-factory/machine/state"
)

// maxMessage is the limit of the public API.
const maxMessage = 32 << 20

// Machine is what only the boot itself can do.
type Machine interface {
	// Maintenance says whether the machine still waits for a configuration.
	Maintenance() bool
	// Apply checks a configuration and, unless dry, makes it the machine's. Only an administrator's may take the place of another:
	// somebody who was let in because there was none may find that there is one by the time it is his turn.
	Apply(ctx context.Context, data []byte, mode machine.ApplyConfigurationRequest_Mode, dry, admin bool) (Applied, error)
	// Stop begins to reboot or to power off; it returns at once.
	Stop(reboot bool, why string) error
}

// Applied says what became of a configuration.
type Applied struct {
	Mode     machine.ApplyConfigurationRequest_Mode
	Details  string
	Warnings []string
}

// Parts are what the server asks.
type Parts struct {
	Machine    Machine
	Supervisor *supervisor.Supervisor
	Store      cosi.State
	Containers *containers.Client
	Version    state.VersionSpec
	Log        *slog.Logger
}

type server struct {
	machine.UnimplementedMachineServiceServer
	machine.UnimplementedDebugServiceServer
	timeapi.UnimplementedTimeServiceServer

	Parts
}

// New returns a gRPC server with all services registered.
func New(parts Parts) *grpc.Server {
	table := required()
	check := func(ctx context.Context, method string) error {
		return authorize(table, parts.Machine.Maintenance(), method, roleOf(ctx))
	}

	s := &server{Parts: parts}
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.ChainUnaryInterceptor(s.unaryRecover, unaryAuth(check)),
		grpc.ChainStreamInterceptor(s.streamRecover, streamAuth(check)),
	)

	machine.RegisterMachineServiceServer(g, s)
	machine.RegisterImageServiceServer(g, images{parts: parts})
	machine.RegisterDebugServiceServer(g, s)
	timeapi.RegisterTimeServiceServer(g, s)

	view := state.ReadOnly(parts.Store, func(ctx context.Context) bool { return roleOf(ctx) >= Admin })
	v1alpha1.RegisterStateServer(g, cosiserver.NewState(view))

	return g
}

// A panic in a handler must not end PID 1.
func (s *server) unaryRecover(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (_ any, err error) {
	defer s.recovered(info.FullMethod, &err)

	return handle(ctx, req)
}

func (s *server) streamRecover(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer s.recovered(info.FullMethod, &err)

	return handle(srv, stream)
}

func (s *server) recovered(method string, err *error) {
	if p := recover(); p != nil {
		s.Log.Error("internal error: panic in an API call", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "internal error: %s panicked", method)
	}
}
