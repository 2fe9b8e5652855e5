//go:build linux

package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/talos-factory/talos-factory/api/machine"
	timeapi "github.com/talos-factory/talos-factory/api/time"
	"github.com/talos-factory/talos-factory/machine/machined/supervisor"
)

// Version answers what runs. The tag is the product's version and the sha the image's build ID.
func (s *server) Version(context.Context, *emptypb.Empty) (*machine.VersionResponse, error) {
	v := s.Parts.Version

	return &machine.VersionResponse{Messages: []*machine.Version{{
		Version: &machine.VersionInfo{
			Tag: v.Version, Sha: v.BuildID, GoVersion: v.GoVersion, Os: "linux", Arch: v.Arch,
		},
		Platform: &machine.PlatformInfo{Name: "metal", Mode: "metal"},
		Features: &machine.FeaturesInfo{Rbac: true},
	}}}, nil
}

// Hostname answers the kernel's host name.
func (s *server) Hostname(context.Context, *emptypb.Empty) (*machine.HostnameResponse, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}

	return &machine.HostnameResponse{Messages: []*machine.Hostname{{Hostname: name}}}, nil
}

// ApplyConfiguration hands the configuration to the machine. What is wrong with it is the caller's to read, line by line.
func (s *server) ApplyConfiguration(ctx context.Context, req *machine.ApplyConfigurationRequest) (*machine.ApplyConfigurationResponse, error) {
	if req.GetMode() == machine.ApplyConfigurationRequest_TRY {
		return nil, status.Error(codes.Unimplemented, "cannot apply a configuration in mode TRY: use NO_REBOOT or STAGED")
	}

	done, err := s.Machine.Apply(ctx, req.GetData(), req.GetMode(), req.GetDryRun(), roleOf(ctx) >= Admin)
	if err != nil {
		if _, ok := status.FromError(err); ok {
			return nil, err
		}

		return nil, status.Error(codes.InvalidArgument, err.Error())
	}

	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{{
		Warnings: done.Warnings, Mode: done.Mode, ModeDetails: done.Details,
	}}}, nil
}

// Reboot acknowledges and reboots.
func (s *server) Reboot(context.Context, *machine.RebootRequest) (*machine.RebootResponse, error) {
	if err := s.Machine.Stop(true, "asked for by the API"); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}

	return &machine.RebootResponse{Messages: []*machine.Reboot{{}}}, nil
}

// Shutdown acknowledges and powers off.
func (s *server) Shutdown(context.Context, *machine.ShutdownRequest) (*machine.ShutdownResponse, error) {
	if err := s.Machine.Stop(false, "asked for by the API"); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}

	return &machine.ShutdownResponse{Messages: []*machine.Shutdown{{}}}, nil
}

// Time answers the machine's own clock: no time server is asked yet, so none is named.
func (s *server) Time(context.Context, *emptypb.Empty) (*timeapi.TimeResponse, error) {
	now := timestamppb.New(time.Now())

	return &timeapi.TimeResponse{Messages: []*timeapi.Time{{Localtime: now, Remotetime: now}}}, nil
}

// ServiceList answers the state of all services.
func (s *server) ServiceList(context.Context, *emptypb.Empty) (*machine.ServiceListResponse, error) {
	list := &machine.ServiceList{}
	for _, st := range s.Supervisor.List() {
		list.Services = append(list.Services, serviceInfo(st))
	}

	return &machine.ServiceListResponse{Messages: []*machine.ServiceList{list}}, nil
}

func serviceInfo(st supervisor.Status) *machine.ServiceInfo {
	info := &machine.ServiceInfo{
		Id: st.ID, State: string(st.State), Events: &machine.ServiceEvents{},
		Health: &machine.ServiceHealth{Unknown: st.HealthUnknown, Healthy: st.Healthy, LastMessage: st.HealthMessage},
	}
	if !st.HealthChanged.IsZero() {
		info.Health.LastChange = timestamppb.New(st.HealthChanged)
	}

	for _, e := range st.Events {
		info.Events.Events = append(info.Events.Events, &machine.ServiceEvent{Msg: e.Message, State: string(e.State), Ts: timestamppb.New(e.At)})
	}

	return info
}

// ServiceStart starts a service that is not running.
func (s *server) ServiceStart(_ context.Context, req *machine.ServiceStartRequest) (*machine.ServiceStartResponse, error) {
	if err := s.Supervisor.Start(req.GetId()); err != nil {
		return nil, serviceError(err)
	}

	return &machine.ServiceStartResponse{Messages: []*machine.ServiceStart{{Resp: fmt.Sprintf("Service %q started", req.GetId())}}}, nil
}

// ServiceStop stops a service, except the one through which it could be started again.
func (s *server) ServiceStop(ctx context.Context, req *machine.ServiceStopRequest) (*machine.ServiceStopResponse, error) {
	if req.GetId() == "apid" {
		return nil, status.Error(codes.FailedPrecondition, "cannot stop apid: the machine could not be reached any more; restart it instead")
	}

	if err := s.Supervisor.Stop(ctx, req.GetId()); err != nil {
		return nil, serviceError(err)
	}

	return &machine.ServiceStopResponse{Messages: []*machine.ServiceStop{{Resp: fmt.Sprintf("Service %q stopped", req.GetId())}}}, nil
}

// ServiceRestart stops and starts a service. The caller may lose its connection by that, so the start does not depend on the call.
func (s *server) ServiceRestart(ctx context.Context, req *machine.ServiceRestartRequest) (*machine.ServiceRestartResponse, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()

	if err := s.Supervisor.Stop(ctx, req.GetId()); err != nil {
		return nil, serviceError(err)
	}

	if err := s.Supervisor.Start(req.GetId()); err != nil {
		return nil, serviceError(err)
	}

	return &machine.ServiceRestartResponse{Messages: []*machine.ServiceRestart{{Resp: fmt.Sprintf("Service %q restarted", req.GetId())}}}, nil
}

func serviceError(err error) error {
	if errors.Is(err, supervisor.ErrUnknown) {
		return status.Error(codes.NotFound, err.Error())
	}

	return status.Error(codes.FailedPrecondition, err.Error())
}
