package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/talos-factory/talos-factory/api/common"
	"github.com/talos-factory/talos-factory/api/machine"
)

func dmesgCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dmesg", Short: "Print the kernel's log",
		Example: "  talosctl -n 10.0.0.2 dmesg --follow",
		Args:    exactly(0),
	}
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with what comes")
	tail := cmd.Flags().Bool("tail", false, "only what comes (with --follow)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := t.open()
		if err != nil {
			return err
		}
		defer s.close()
		stream, err := machine.NewMachineServiceClient(s).Dmesg(s.all(cmd.Context()), &machine.DmesgRequest{Follow: *follow, Tail: *tail})
		if err != nil {
			return err
		}
		return copyLines(cmd, s, stream)
	}
	return cmd
}

func logsCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "logs SERVICE", Short: "Print a service's log",
		Example: "  talosctl -n 10.0.0.2 logs apid --tail 20 --follow",
		Args:    exactly(1),
	}
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with what comes")
	tail := cmd.Flags().Int32("tail", -1, "begin with the last `N` lines (-1: all)")
	kubernetes := cmd.Flags().BoolP("kubernetes", "k", false, "a container of Kubernetes instead of a service")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := t.open()
		if err != nil {
			return err
		}
		defer s.close()
		request := &machine.LogsRequest{Namespace: "system", Id: args[0], Follow: *follow, TailLines: *tail}
		if *kubernetes {
			request.Namespace, request.Driver = "k8s.io", common.ContainerDriver_CRI
		}
		stream, err := machine.NewMachineServiceClient(s).Logs(s.all(cmd.Context()), request)
		if err != nil {
			return err
		}
		return copyLines(cmd, s, stream)
	}
	return cmd
}

func readCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "read PATH", Short: "Print a file of a machine",
		Example: "  talosctl -n 10.0.0.2 read /proc/cmdline",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := t.open()
			if err != nil {
				return err
			}
			defer s.close()
			ctx, err := s.one(cmd.Context(), "read")
			if err != nil {
				return err
			}
			stream, err := machine.NewMachineServiceClient(s).Read(ctx, &machine.ReadRequest{Path: args[0]})
			if err != nil {
				return err
			}
			return eachMessage(stream, func(data *common.Data) error {
				_, err := cmd.OutOrStdout().Write(data.Bytes)
				return err
			})
		},
	}
}

func listCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [PATH]", Short: "List a machine's files",
		Example: "  talosctl -n 10.0.0.2 list /etc\n  talosctl -n 10.0.0.2 list /var --recurse --depth 2",
		Aliases: []string{"ls"},
		Args:    between(0, 1),
	}
	f := outputFlag(cmd)
	recurse := cmd.Flags().BoolP("recurse", "r", false, "what is in folders, too")
	depth := cmd.Flags().Int32P("depth", "d", 0, "with --recurse: how deep (0: no limit)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := t.open()
		if err != nil {
			return err
		}
		defer s.close()
		request := &machine.ListRequest{Root: "/", Recurse: *recurse, RecursionDepth: *depth}
		if len(args) > 0 {
			request.Root = args[0]
		}
		stream, err := machine.NewMachineServiceClient(s).List(s.all(cmd.Context()), request)
		if err != nil {
			return err
		}
		return printFiles(cmd, s, *f, stream)
	}
	return cmd
}

func printFiles(cmd *cobra.Command, s *session, f format, stream grpc.ServerStreamingClient[machine.FileInfo]) error {
	t := newTable(cmd.OutOrStdout(), "NODE|MODE|UID|GID|SIZE|MODIFIED|NAME")
	failed := false
	err := eachMessage(stream, func(file *machine.FileInfo) error {
		problem := file.GetMetadata().GetError() + file.Error
		if problem != "" {
			failed = true
			fmt.Fprintf(cmd.ErrOrStderr(), "error: %s: %s: %s\n", s.node(file), file.Name, problem)
			return nil
		}
		if f != "table" {
			return print(cmd.OutOrStdout(), s, f, []*machine.FileInfo{file}, "", nil)
		}
		name := file.RelativeName
		if file.Link != "" {
			name += " -> " + file.Link
		}
		t.add(s.node(file), fs.FileMode(file.Mode), file.Uid, file.Gid, file.Size, time.Unix(file.Modified, 0).UTC().Format(time.RFC3339), name)
		return nil
	})
	if f == "table" {
		err = errors.Join(err, t.flush())
	}
	if err == nil && failed {
		return exitStatus(1)
	}
	return err
}

func eachMessage[T any](stream grpc.ServerStreamingClient[T], f func(*T) error) error {
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f(message); err != nil {
			return err
		}
	}
}

// copyLines prints a stream of text. If several machines send, whole lines are printed,
// each with its machine's name.
func copyLines(cmd *cobra.Command, s *session, stream grpc.ServerStreamingClient[common.Data]) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	rest := map[string][]byte{} // begun lines
	failed := false
	err := eachMessage(stream, func(data *common.Data) error {
		node := s.node(data)
		if text := data.GetMetadata().GetError(); text != "" {
			failed = true
			fmt.Fprintf(cmd.ErrOrStderr(), "error: %s: %s\n", node, text)
			return nil
		}
		if len(s.nodes) < 2 {
			return writeNow(out, data.Bytes)
		}
		rest[node] = append(rest[node], data.Bytes...)
		for {
			line, after, ok := bytes.Cut(rest[node], []byte("\n"))
			if !ok {
				return out.Flush()
			}
			fmt.Fprintf(out, "%s: %s\n", node, line)
			rest[node] = after
		}
	})
	for _, node := range s.nodes {
		if len(rest[node]) > 0 {
			fmt.Fprintf(out, "%s: %s\n", node, rest[node])
		}
	}
	err = errors.Join(err, out.Flush())
	if cmd.Context().Err() != nil {
		return nil // the person has seen enough
	}
	if err == nil && failed {
		return exitStatus(1)
	}
	return err
}

// writeNow writes through the buffer, so that a log that is followed shows at once.
func writeNow(out *bufio.Writer, data []byte) error {
	if _, err := out.Write(data); err != nil {
		return err
	}
	return out.Flush()
}
