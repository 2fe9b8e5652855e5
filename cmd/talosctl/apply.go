package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/api/machine"
	"github.com/talos-factory/talos-factory/config"
)

func applyCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "apply-config -f FILE",
		Aliases: []string{"apply"},
		Short:   "Give machines their configuration",
		Long: `Give machines their configuration.

The file is checked here first; nothing is sent if it is wrong. A machine that has no
configuration yet is asked with --insecure, and answers on its own: its fingerprint is on
its console.`,
		Example: `  talosctl apply-config --insecure -n 10.0.0.2 --cert-fingerprint FINGERPRINT -f controlplane.yaml
  talosctl -n 10.0.0.2 apply-config -f controlplane.yaml --mode no-reboot`,
		Args: exactly(0),
	}
	file := cmd.Flags().StringP("file", "f", "", "the configuration (\"-\": standard input)")
	mode := cmd.Flags().StringP("mode", "m", "auto", "auto, no-reboot, reboot, staged (at the next boot) or try")
	dry := cmd.Flags().Bool("dry-run", false, "only say what would be done")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, ok := machine.ApplyConfigurationRequest_Mode_value[strings.ToUpper(strings.ReplaceAll(*mode, "-", "_"))]
		if !ok {
			return hint(fmt.Errorf("unknown mode %q", *mode), "want auto, no-reboot, reboot, staged or try")
		}
		data, err := readConfig(cmd, *file)
		if err != nil {
			return err
		}
		s, err := t.open()
		if err != nil {
			return err
		}
		defer s.close()
		reply, err := machine.NewMachineServiceClient(s).ApplyConfiguration(s.all(cmd.Context()), &machine.ApplyConfigurationRequest{
			Data: data, Mode: machine.ApplyConfigurationRequest_Mode(m), DryRun: *dry,
		})
		if err != nil {
			return err
		}
		for _, a := range reply.Messages {
			for _, warning := range a.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", s.node(a), warning)
			}
		}
		return report(cmd, s, "table", reply.Messages, "NODE|MODE|RESULT", func(node string, a *machine.ApplyConfiguration, add func(...any)) {
			add(node, strings.ToLower(strings.ReplaceAll(a.Mode.String(), "_", "-")), a.ModeDetails)
		})
	}
	return cmd
}

func readConfig(cmd *cobra.Command, file string) ([]byte, error) {
	var data []byte
	var err error
	switch file {
	case "":
		return nil, hint(fmt.Errorf("no configuration"), "name it with --file FILE")
	case "-":
		data, err = io.ReadAll(cmd.InOrStdin())
	default:
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, hint(fmt.Errorf("cannot read the configuration: %w", err), "nothing was sent; make one with `talosctl gen config`")
	}
	if _, err := config.Load(data); err != nil {
		return nil, hint(fmt.Errorf("cannot use %s: %w", file, err), "nothing was sent")
	}
	return data, nil
}
