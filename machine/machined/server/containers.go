//go:build linux

package server

import (
	"context"
	"errors"
	"io"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/talos-factory/talos-factory/api/common"
	"github.com/talos-factory/talos-factory/api/machine"
	"github.com/talos-factory/talos-factory/machine/machined/containers"
)

// Containers lists the containers of a namespace.
func (s *server) Containers(ctx context.Context, req *machine.ContainersRequest) (*machine.ContainersResponse, error) {
	namespace := req.GetNamespace()
	if namespace != containers.System && namespace != containers.Kubernetes {
		return nil, status.Errorf(codes.InvalidArgument, "cannot list containers of namespace %q: want %s or %s", namespace, containers.System, containers.Kubernetes)
	}

	list, err := s.Parts.Containers.List(ctx, namespace)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}

	out := &machine.Container{}
	for _, c := range list {
		out.Containers = append(out.Containers, &machine.ContainerInfo{
			Namespace: namespace, Id: c.ID, InternalId: c.ID, Image: c.Image, Pid: c.PID, Status: c.Status, PodId: c.Pod, Name: c.Name, Uid: c.UID,
		})
	}

	return &machine.ContainersResponse{Messages: []*machine.Container{out}}, nil
}

// images is the ImageService: its List would be the MachineService's too if one type were both.
type images struct {
	machine.UnimplementedImageServiceServer

	parts Parts
}

func namespaceOf(instance *common.ContainerdInstance) (string, error) {
	switch ns := instance.GetNamespace(); ns {
	case common.ContainerdNamespace_NS_SYSTEM:
		return containers.System, nil
	case common.ContainerdNamespace_NS_CRI:
		return containers.Kubernetes, nil
	default:
		return "", status.Errorf(codes.InvalidArgument, "cannot use containerd namespace %s: want NS_SYSTEM or NS_CRI", ns)
	}
}

// List streams the images of a namespace.
func (i images) List(req *machine.ImageServiceListRequest, stream grpc.ServerStreamingServer[machine.ImageServiceListResponse]) error {
	namespace, err := namespaceOf(req.GetContainerd())
	if err != nil {
		return err
	}

	list, err := i.parts.Containers.Images(stream.Context(), namespace)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}

	for _, img := range list {
		err := stream.Send(&machine.ImageServiceListResponse{Name: img.Name, Digest: img.Digest, Size: img.Size, CreatedAt: timestamppb.New(img.Created)})
		if err != nil {
			return err
		}
	}

	return nil
}

// Pull fetches an image from its registry.
func (i images) Pull(req *machine.ImageServicePullRequest, stream grpc.ServerStreamingServer[machine.ImageServicePullResponse]) error {
	namespace, err := namespaceOf(req.GetContainerd())
	if err != nil {
		return err
	}

	name, err := i.parts.Containers.Pull(stream.Context(), namespace, req.GetImageRef())
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}

	return stream.Send(&machine.ImageServicePullResponse{Response: &machine.ImageServicePullResponse_Name{Name: name}})
}

// Import takes an image archive: the first message says where to, the others are the archive.
func (i images) Import(stream grpc.ClientStreamingServer[machine.ImageServiceImportRequest, machine.ImageServiceImportResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}

	namespace, err := namespaceOf(first.GetContainerd())
	if err != nil {
		return err
	}

	name, err := i.parts.Containers.Import(stream.Context(), namespace, &importReader{stream: stream})
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}

	i.parts.Log.Info("image imported", "name", name, "namespace", namespace)

	return stream.SendAndClose(&machine.ImageServiceImportResponse{Name: name})
}

type importReader struct {
	stream grpc.ClientStreamingServer[machine.ImageServiceImportRequest, machine.ImageServiceImportResponse]
	rest   []byte
}

func (r *importReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		msg, err := r.stream.Recv()
		if err != nil {
			return 0, err // io.EOF at the end
		}

		r.rest = msg.GetImageChunk().GetBytes()
	}

	n := copy(p, r.rest)
	r.rest = r.rest[n:]

	return n, nil
}

type debugStream = grpc.BidiStreamingServer[machine.DebugContainerRunRequest, machine.DebugContainerRunResponse]

// ContainerRun runs a container, connected to the stream, and answers its exit code last.
func (s *server) ContainerRun(stream debugStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}

	spec := first.GetSpec()

	switch {
	case spec == nil:
		return status.Error(codes.InvalidArgument, "cannot run a container: the first message is not its spec")
	case spec.GetProfile() != machine.DebugContainerRunRequestSpec_PROFILE_PRIVILEGED:
		return status.Error(codes.InvalidArgument, "cannot run a container of another profile than PROFILE_PRIVILEGED")
	case spec.GetTty():
		return status.Error(codes.Unimplemented, "cannot run a container with a terminal")
	}

	namespace, err := namespaceOf(spec.GetContainerd())
	if err != nil {
		return err
	}

	stdin, write := io.Pipe()
	defer write.Close()

	signals := make(chan syscall.Signal, 8)
	go receive(stream, write, signals)

	output := lockedOutput(stream)

	code, err := s.Parts.Containers.Run(stream.Context(), containers.Job{
		Namespace: namespace, Image: spec.GetImageName(), Args: spec.GetArgs(), Env: spec.GetEnv(), Privileged: true,
		Stdin: stdin, Stdout: output, Stderr: output, Signals: signals,
	})
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}

	return stream.Send(&machine.DebugContainerRunResponse{Resp: &machine.DebugContainerRunResponse_ExitCode{ExitCode: int32(code)}})
}

// receive passes on what the caller sends after the spec.
func receive(stream debugStream, stdin *io.PipeWriter, signals chan<- syscall.Signal) {
	for {
		msg, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}

			_ = stdin.CloseWithError(err)

			return
		}

		switch m := msg.GetRequest().(type) {
		case *machine.DebugContainerRunRequest_StdinData:
			if _, err := stdin.Write(m.StdinData); err != nil {
				return
			}
		case *machine.DebugContainerRunRequest_Signal:
			select {
			case signals <- syscall.Signal(m.Signal):
			default:
			}
		}
	}
}
