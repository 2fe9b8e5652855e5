package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	cosi "github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/talos-factory/talos-factory/api/common"
	"github.com/talos-factory/talos-factory/api/machine"
	"github.com/talos-factory/talos-factory/config"
	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/machine/apid"
	"github.com/talos-factory/talos-factory/machine/state"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"talosctl": main})
}

// Each script has a machine of its own at $NODE: a real apid, in maintenance at first.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			node, fingerprint, err := startMachine(env)
			env.Setenv("NODE", node)
			env.Setenv("FINGERPRINT", fingerprint)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("TALOSCONFIG", "")
			return err
		},
	})
}

// TestExamples: every command's help has examples, and they are of that command.
func TestExamples(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example + "\n") {
			words := strings.Fields(line)
			if len(words) == 0 || words[0] != "talosctl" {
				t.Errorf("%s: got the example %q", cmd.CommandPath(), line)
				continue
			}
			rest := words
			for _, word := range strings.Fields(cmd.CommandPath()) { // flags may stand between
				i := slices.Index(rest, word)
				if i < 0 {
					t.Errorf("%s: the example %q is not one of it", cmd.CommandPath(), line)
					break
				}
				rest = rest[i+1:]
			}
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(newRoot())
}

// fakeMachine answers as machined would, with little behind it.
type fakeMachine struct {
	machine.UnimplementedMachineServiceServer
	store cosi.State
}

func startMachine(env *testscript.Env) (address, fingerprint string, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	store, err := state.New(ctx)
	if err != nil {
		cancel()
		return "", "", err
	}
	dir, err := os.MkdirTemp("", "talosctl")
	if err != nil {
		cancel()
		return "", "", err
	}
	socket := filepath.Join(dir, "machined.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		cancel()
		return "", "", err
	}
	s := grpc.NewServer()
	machine.RegisterMachineServiceServer(s, &fakeMachine{store: store})
	machine.RegisterImageServiceServer(s, fakeImages{})
	machine.RegisterDebugServiceServer(s, fakeDebug{})
	v1alpha1.RegisterStateServer(s, server.NewState(store))
	go s.Serve(listener)

	address = freeAddress()
	done := make(chan error, 1)
	go func() {
		done <- apid.Run(ctx, apid.Options{
			Listen: address, Port: "1", RuntimeSocket: socket, MachineSocket: socket,
			Addresses: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil },
			Log:       slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
	}()
	env.Defer(func() {
		cancel()
		<-done
		s.Stop()
		os.RemoveAll(dir)
	})
	self, err := pki.NewSelfSigned(time.Now(), "127.0.0.1")
	if err != nil {
		return "", "", err
	}
	spec := state.APICertificatesSpec{Maintenance: true, Server: state.KeyPair{Crt: self.Crt, Key: self.Key}}
	if err := state.Put(ctx, store, state.NewAPICertificates(spec)); err != nil {
		return "", "", err
	}
	for range 500 { // until it listens
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	crt, err := self.Certificate()
	return address, pki.Fingerprint(crt), err
}

func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func (m *fakeMachine) Version(context.Context, *emptypb.Empty) (*machine.VersionResponse, error) {
	return &machine.VersionResponse{Messages: []*machine.Version{{
		Version:  &machine.VersionInfo{Tag: "v1.12.0", Sha: "abc123", Os: "linux", Arch: "amd64"},
		Platform: &machine.PlatformInfo{Name: "metal", Mode: "metal"},
	}}}, nil
}

func (m *fakeMachine) ApplyConfiguration(ctx context.Context, r *machine.ApplyConfigurationRequest) (*machine.ApplyConfigurationResponse, error) {
	c, err := config.Load(r.Data)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	own, err := pki.NewServer(c.Machine.CA, time.Now(), "127.0.0.1")
	if err != nil {
		return nil, err
	}
	spec := state.APICertificatesSpec{AcceptedCAs: c.Machine.TrustedCAs(), Server: state.KeyPair{Crt: own.Crt, Key: own.Key}}
	if !r.DryRun {
		// After the reply, as the connection ends with the old certificates.
		time.AfterFunc(50*time.Millisecond, func() { state.Put(context.WithoutCancel(ctx), m.store, state.NewAPICertificates(spec)) })
	}
	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{{
		Warnings: c.Warnings(), Mode: machine.ApplyConfigurationRequest_NO_REBOOT, ModeDetails: "applied",
	}}}, nil
}

func (m *fakeMachine) ServiceList(context.Context, *emptypb.Empty) (*machine.ServiceListResponse, error) {
	service := func(id, state string) *machine.ServiceInfo {
		return &machine.ServiceInfo{
			Id: id, State: state, Health: &machine.ServiceHealth{Healthy: true},
			Events: &machine.ServiceEvents{Events: []*machine.ServiceEvent{
				{Msg: "started", State: state, Ts: timestamppb.New(time.Now().Add(-time.Minute))},
			}},
		}
	}
	return &machine.ServiceListResponse{Messages: []*machine.ServiceList{{
		Services: []*machine.ServiceInfo{service("apid", "Running"), service("containerd", "Waiting")},
	}}}, nil
}

func (m *fakeMachine) ServiceRestart(_ context.Context, r *machine.ServiceRestartRequest) (*machine.ServiceRestartResponse, error) {
	return &machine.ServiceRestartResponse{Messages: []*machine.ServiceRestart{{Resp: "restarted " + r.Id}}}, nil
}

func (m *fakeMachine) Read(r *machine.ReadRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	data, err := os.ReadFile(r.Path)
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	return stream.Send(&common.Data{Bytes: data})
}

func (m *fakeMachine) Logs(r *machine.LogsRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	return stream.Send(&common.Data{Bytes: []byte("log of " + r.Id + "\n")})
}

func (m *fakeMachine) List(r *machine.ListRequest, stream grpc.ServerStreamingServer[machine.FileInfo]) error {
	for _, name := range []string{"one", "two\x1b[31m"} {
		if err := stream.Send(&machine.FileInfo{Name: r.Root + name, RelativeName: name, Mode: 0o644, Size: 5}); err != nil {
			return err
		}
	}
	return nil
}

type fakeImages struct {
	machine.UnimplementedImageServiceServer
}

func (fakeImages) Import(stream grpc.ClientStreamingServer[machine.ImageServiceImportRequest, machine.ImageServiceImportResponse]) error {
	total := 0
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		total += len(r.GetImageChunk().GetBytes())
	}
	if total == 0 {
		return status.Error(codes.InvalidArgument, "the archive is empty")
	}
	return stream.SendAndClose(&machine.ImageServiceImportResponse{Name: "registry.example/app:v1"})
}

type fakeDebug struct {
	machine.UnimplementedDebugServiceServer
}

// ContainerRun prints its arguments and what it reads; its exit code is 3.
func (fakeDebug) ContainerRun(stream machine.DebugService_ContainerRunServer) error {
	r, err := stream.Recv()
	if err != nil {
		return err
	}
	if r.GetSpec().GetProfile() != machine.DebugContainerRunRequestSpec_PROFILE_PRIVILEGED {
		return status.Error(codes.InvalidArgument, "cannot run a container of this profile")
	}
	output := ""
	for _, arg := range r.GetSpec().GetArgs() {
		output += arg + "\n"
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			break
		}
		output += string(r.GetStdinData())
	}
	if err := stream.Send(&machine.DebugContainerRunResponse{Resp: &machine.DebugContainerRunResponse_StdoutData{StdoutData: []byte(output)}}); err != nil {
		return err
	}
	return stream.Send(&machine.DebugContainerRunResponse{Resp: &machine.DebugContainerRunResponse_ExitCode{ExitCode: 3}})
}
