//go:build linux

package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-factory/talos-factory/api/common"
	"github.com/talos-factory/talos-factory/api/machine"
	"github.com/talos-factory/talos-factory/machine/machined/kmsg"
)

// chunk is how much of a stream travels in one message.
const chunk = 32 << 10

// chunks writes to a stream of Data.
type chunks struct {
	stream grpc.ServerStreamingServer[common.Data]
}

func (c chunks) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), chunk)
		if err := c.stream.Send(&common.Data{Bytes: rest[:n]}); err != nil {
			return 0, err
		}

		rest = rest[n:]
	}

	return len(p), nil
}

// Dmesg streams the kernel log.
func (s *server) Dmesg(req *machine.DmesgRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	boot, err := kmsg.BootTime()
	if err != nil {
		return err
	}

	return kmsg.Read(stream.Context(), req.GetFollow(), req.GetTail(), func(m kmsg.Message) error {
		return stream.Send(&common.Data{Bytes: []byte(m.Format(boot))})
	})
}

// Logs streams what a service wrote.
func (s *server) Logs(req *machine.LogsRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	if ns := req.GetNamespace(); ns != "" && ns != "system" {
		return status.Errorf(codes.Unimplemented, "cannot read logs of namespace %q: only those of the system's services are kept", ns)
	}

	output, err := s.Supervisor.Output(req.GetId())
	if err != nil {
		return serviceError(err)
	}

	return output.Copy(stream.Context(), chunks{stream}, int(req.GetTailLines()), req.GetFollow())
}

// LogsContainers lists what Logs knows.
func (s *server) LogsContainers(context.Context, *emptypb.Empty) (*machine.LogsContainersResponse, error) {
	list := &machine.LogsContainer{}
	for _, st := range s.Supervisor.List() {
		list.Ids = append(list.Ids, st.ID)
	}

	return &machine.LogsContainersResponse{Messages: []*machine.LogsContainer{list}}, nil
}
