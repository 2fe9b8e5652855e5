package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/api/common"
	"github.com/talos-factory/talos-factory/api/machine"
)

const importChunk = 256 << 10

func imageCommand(t *target) *cobra.Command {
	return group("image", "List, pull and import container images", imageListCommand(t), imagePullCommand(t), imageImportCommand(t))
}

func namespaceFlag(cmd *cobra.Command) func() (*common.ContainerdInstance, error) {
	name := cmd.Flags().String("namespace", "system", "containerd's namespace: system or cri")
	return func() (*common.ContainerdInstance, error) {
		switch *name {
		case "system":
			return &common.ContainerdInstance{Namespace: common.ContainerdNamespace_NS_SYSTEM}, nil
		case "cri":
			return &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_CRI}, nil
		}
		return nil, hint(fmt.Errorf("unknown namespace %q", *name), "want system or cri")
	}
}

func imageListCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the images", Example: "  talosctl -n 10.0.0.2 image list", Args: exactly(0)}
	namespace, f := namespaceFlag(cmd), outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		instance, err := namespace()
		if err != nil {
			return err
		}
		s, err := t.open()
		if err != nil {
			return err
		}
		defer s.close()
		table := newTable(cmd.OutOrStdout(), "NODE|IMAGE|DIGEST|SIZE|CREATED")
		err = s.each(cmd.Context(), func(ctx context.Context, node string) error {
			stream, err := machine.NewImageServiceClient(s).List(ctx, &machine.ImageServiceListRequest{Containerd: instance})
			if err != nil {
				return err
			}
			return eachMessage(stream, func(image *machine.ImageServiceListResponse) error {
				created := image.GetCreatedAt().AsTime().Format("2006-01-02")
				if *f == "table" {
					table.add(node, image.Name, image.Digest, size(uint64(max(image.Size, 0))), created)
					return nil
				}
				return printValue(cmd.OutOrStdout(), *f, map[string]any{
					"node": node, "name": image.Name, "digest": image.Digest, "size": image.Size, "created": created})
			})
		})
		if *f == "table" {
			err = errors.Join(err, table.flush())
		}
		return err
	}
	return cmd
}

func imagePullCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{Use: "pull IMAGE", Short: "Have machines fetch an image", Example: "  talosctl -n 10.0.0.2 image pull registry.example/app:v1", Args: exactly(1)}
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
		return s.each(cmd.Context(), func(ctx context.Context, node string) error {
			stream, err := machine.NewImageServiceClient(s).Pull(ctx, &machine.ImageServicePullRequest{Containerd: instance, ImageRef: args[0]})
			if err != nil {
				return err
			}
			return eachMessage(stream, func(r *machine.ImageServicePullResponse) error {
				if r.GetName() != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", node, r.GetName())
				}
				return nil
			})
		})
	}
	return cmd
}

func imageImportCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Send an image archive to a machine",
		Long:    "Send an image archive (an OCI layout or a `docker save`, as a tar file) to a machine.",
		Example: "  talosctl -n 10.0.0.2 image import app.tar",
		Args:    exactly(1),
	}
	namespace := namespaceFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		instance, err := namespace()
		if err != nil {
			return err
		}
		archive := cmd.InOrStdin()
		if args[0] != "-" {
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			archive = file
		}
		s, err := t.open()
		if err != nil {
			return err
		}
		defer s.close()
		ctx, err := s.one(cmd.Context(), "import")
		if err != nil {
			return err
		}
		name, err := importImage(ctx, machine.NewImageServiceClient(s), instance, archive)
		if err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), name)
		}
		return err
	}
	return cmd
}

func importImage(ctx context.Context, client machine.ImageServiceClient, instance *common.ContainerdInstance, archive io.Reader) (string, error) {
	stream, err := client.Import(ctx)
	if err != nil {
		return "", err
	}
	err = stream.Send(&machine.ImageServiceImportRequest{Request: &machine.ImageServiceImportRequest_Containerd{Containerd: instance}})
	buffer := make([]byte, importChunk)
	for err == nil {
		n, readErr := archive.Read(buffer)
		if n > 0 {
			err = stream.Send(&machine.ImageServiceImportRequest{Request: &machine.ImageServiceImportRequest_ImageChunk{
				ImageChunk: &common.Data{Bytes: buffer[:n]}}})
		}
		if errors.Is(readErr, io.EOF) {
			break
		}
		if readErr != nil {
			return "", readErr
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the machine has ended the call, and CloseAndRecv says why
		return "", err
	}
	reply, err := stream.CloseAndRecv()
	return reply.GetName(), err
}
