package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/talos-factory/talos-factory/api/machine"
)

func debugCommand(t *target) *cobra.Command {
	return group("debug", "Run a container on a machine for a look around", debugContainerCommand(t))
}

func debugContainerCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "container IMAGE [-- ARGUMENT...]", Short: "Run a container and show what it prints",
		Long: `Run a container and show what it prints. It ends with the command and leaves nothing
behind; the exit status is the container's. The image must be on the machine: see
` + "`talosctl image import`" + `. The container is privileged, it has the machine's devices and network.`,
		Example: `  talosctl -n 10.0.0.2 debug container registry.example/tools:latest -- /bin/look around
  talosctl -n 10.0.0.2 debug container --stdin registry.example/tools:latest < commands`,
		Args: between(1, -1),
	}
	interactive := cmd.Flags().Bool("stdin", false, "pass standard input to the container")
	env := cmd.Flags().StringToString("env", nil, "environment, NAME=VALUE")
	namespace := namespaceFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		instance, err := namespace()
		if err != nil {
			return err
		}
		s, err := t.open()
		if err != nil {
			return err
		}
		defer s.close()
		ctx, err := s.one(cmd.Context(), "run a container")
		if err != nil {
			return err
		}
		spec := &machine.DebugContainerRunRequestSpec{Containerd: instance, ImageName: args[0], Args: args[1:], Env: *env,
			Profile: machine.DebugContainerRunRequestSpec_PROFILE_PRIVILEGED} // the only profile the API names
		stream, err := machine.NewDebugServiceClient(s).ContainerRun(ctx)
		if err != nil {
			return err
		}
		input := io.Reader(strings.NewReader(""))
		if *interactive {
			input = cmd.InOrStdin()
		}
		return runContainer(stream, spec, input, cmd.OutOrStdout())
	}
	return cmd
}

type containerStream = grpc.BidiStreamingClient[machine.DebugContainerRunRequest, machine.DebugContainerRunResponse]

func runContainer(stream containerStream, spec *machine.DebugContainerRunRequestSpec, stdin io.Reader, stdout io.Writer) error {
	request := &machine.DebugContainerRunRequest{Request: &machine.DebugContainerRunRequest_Spec{Spec: spec}}
	if err := stream.Send(request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	go func() { // ends with the stream, or with the process if the terminal is silent
		defer func() { _ = stream.CloseSend() }() // a stream that has ended says so to Recv
		buffer := make([]byte, 16<<10)
		for {
			n, err := stdin.Read(buffer)
			if n > 0 && stream.Send(&machine.DebugContainerRunRequest{
				Request: &machine.DebugContainerRunRequest_StdinData{StdinData: buffer[:n]}}) != nil {
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the machine did not say how the container ended")
		}
		if err != nil {
			return err
		}
		switch r := response.Resp.(type) {
		case *machine.DebugContainerRunResponse_StdoutData:
			if _, err := stdout.Write(r.StdoutData); err != nil {
				return err
			}
		case *machine.DebugContainerRunResponse_ExitCode:
			if r.ExitCode != 0 {
				return exitStatus(r.ExitCode)
			}
			return nil
		}
	}
}
