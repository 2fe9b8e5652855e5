package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-factory/talos-factory/api/machine"
	"github.com/talos-factory/talos-factory/version"
)

func versionCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the client's and the machines' version",
		Example: `  talosctl version --client
  talosctl --nodes 127.0.0.1 version --insecure`,
		Args: exactly(0),
	}
	client := cmd.Flags().Bool("client", false, "only the client's")
	f := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		if *f == "table" {
			fmt.Fprintf(out, "Client:\n  %s client, Talos API %s, %s, %s/%s\n", version.Name, version.TalosAPI, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		}
		if *client {
			return nil
		}
		s, err := t.open()
		if err != nil {
			return err
		}
		defer s.close()
		reply, err := machine.NewMachineServiceClient(s).Version(s.all(cmd.Context()), &emptypb.Empty{})
		if err != nil {
			return err
		}
		if *f == "table" {
			fmt.Fprintln(out, "Server:")
		}
		return report(cmd, s, *f, reply.Messages, "  NODE|TAG|BUILD ID|OS/ARCH|PLATFORM", func(node string, v *machine.Version, add func(...any)) {
			info := v.GetVersion()
			add("  "+node, info.GetTag(), info.GetSha(), info.GetOs()+"/"+info.GetArch(), v.GetPlatform().GetName()+" "+v.GetPlatform().GetMode())
		})
	}
	return cmd
}
