package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-factory/talos-factory/api/machine"
)

func servicesCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "services",
		Short:   "List the machines' services",
		Example: "  talosctl -n 10.0.0.2,10.0.0.3 services",
		Args:    exactly(0),
	}
	f := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return listServices(cmd, t, *f, "") }
	return cmd
}

func serviceCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service NAME [start|stop|restart]",
		Short: "Show one service with its history, or start, stop or restart it",
		Example: `  talosctl -n 10.0.0.2 service containerd
  talosctl -n 10.0.0.2 service containerd restart`,
		Args: between(1, 2),
	}
	f := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return listServices(cmd, t, *f, args[0])
		}
		return controlService(cmd, t, *f, args[0], args[1])
	}
	return cmd
}

func listServices(cmd *cobra.Command, t *target, f format, only string) error {
	s, err := t.open()
	if err != nil {
		return err
	}
	defer s.close()
	reply, err := machine.NewMachineServiceClient(s).ServiceList(s.all(cmd.Context()), &emptypb.Empty{})
	if err != nil {
		return err
	}
	if only == "" {
		return report(cmd, s, f, reply.Messages, "NODE|SERVICE|STATE|HEALTH|LAST CHANGE|LAST EVENT",
			func(node string, list *machine.ServiceList, add func(...any)) {
				for _, service := range list.Services {
					when, what := lastEvent(service)
					add(node, service.Id, service.State, health(service.Health), when, what)
				}
			})
	}
	found := false
	for _, list := range reply.Messages {
		list.Services = keep(list.Services, only)
		found = found || len(list.Services) > 0 || list.GetMetadata().GetError() != ""
	}
	if !found {
		return hint(fmt.Errorf("no service %q", only), "see `talosctl services`")
	}
	return report(cmd, s, f, reply.Messages, "NODE|SERVICE|HEALTH|TIME|STATE|EVENT", func(node string, list *machine.ServiceList, add func(...any)) {
		for _, service := range list.Services {
			for _, event := range service.GetEvents().GetEvents() {
				add(node, service.Id, health(service.Health), event.GetTs().AsTime().Format(time.RFC3339), event.State, event.Msg)
			}
		}
	})
}

func keep(services []*machine.ServiceInfo, id string) []*machine.ServiceInfo {
	for _, service := range services {
		if service.Id == id {
			return []*machine.ServiceInfo{service}
		}
	}
	return nil
}

func health(h *machine.ServiceHealth) string {
	switch {
	case h == nil || h.Unknown:
		return "?"
	case h.Healthy:
		return "OK"
	}
	return "Fail"
}

func lastEvent(service *machine.ServiceInfo) (when, what string) {
	events := service.GetEvents().GetEvents()
	if len(events) == 0 {
		return "", ""
	}
	last := events[len(events)-1]
	return time.Since(last.GetTs().AsTime()).Truncate(time.Second).String() + " ago", last.Msg
}

func controlService(cmd *cobra.Command, t *target, f format, id, verb string) error {
	s, err := t.open()
	if err != nil {
		return err
	}
	defer s.close()
	client, ctx := machine.NewMachineServiceClient(s), s.all(cmd.Context())
	switch verb {
	case "start":
		reply, err := client.ServiceStart(ctx, &machine.ServiceStartRequest{Id: id})
		return said(cmd, s, f, reply.GetMessages(), err)
	case "stop":
		reply, err := client.ServiceStop(ctx, &machine.ServiceStopRequest{Id: id})
		return said(cmd, s, f, reply.GetMessages(), err)
	case "restart":
		reply, err := client.ServiceRestart(ctx, &machine.ServiceRestartRequest{Id: id})
		return said(cmd, s, f, reply.GetMessages(), err)
	}
	return hint(fmt.Errorf("cannot %s a service", verb), "want start, stop or restart")
}

// said prints what the machines replied to a command.
func said[T interface {
	answer
	GetResp() string
}](cmd *cobra.Command, s *session, f format, answers []T, err error) error {
	if err != nil {
		return err
	}
	return report(cmd, s, f, answers, "NODE|RESPONSE", func(node string, a T, add func(...any)) { add(node, a.GetResp()) })
}

func containersCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "containers",
		Short:   "List the containers that run",
		Example: "  talosctl -n 10.0.0.2 containers\n  talosctl -n 10.0.0.2 containers --namespace k8s.io",
		Args:    exactly(0),
	}
	f := outputFlag(cmd)
	namespace := cmd.Flags().String("namespace", "system", "containerd's namespace: system or k8s.io")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return ask(cmd, t, func(ctx context.Context, s *session, c machine.MachineServiceClient) error {
			reply, err := c.Containers(ctx, &machine.ContainersRequest{Namespace: *namespace})
			if err != nil {
				return err
			}
			return report(cmd, s, *f, reply.Messages, "NODE|NAMESPACE|ID|IMAGE|PID|STATUS", func(node string, list *machine.Container, add func(...any)) {
				for _, c := range list.Containers {
					add(node, c.Namespace, c.Id, c.Image, c.Pid, c.Status)
				}
			})
		})
	}
	return cmd
}

// ask opens a session for one call of all nodes.
func ask(cmd *cobra.Command, t *target, call func(context.Context, *session, machine.MachineServiceClient) error) error {
	s, err := t.open()
	if err != nil {
		return err
	}
	defer s.close()
	return call(s.all(cmd.Context()), s, machine.NewMachineServiceClient(s))
}
