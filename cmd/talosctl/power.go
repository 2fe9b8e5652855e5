package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/api/common"
	"github.com/talos-factory/talos-factory/api/machine"
)

const bootIDFile = "/proc/sys/kernel/random/boot_id" // random(4)

func rebootCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reboot", Short: "Reboot machines",
		Example: "  talosctl -n 10.0.0.2 reboot --wait",
		Args:    exactly(0),
	}
	wait := cmd.Flags().Bool("wait", false, "until the machine has booted again")
	timeout := cmd.Flags().Duration("timeout", 10*time.Minute, "with --wait: how long at most")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := t.open()
		if err != nil {
			return err
		}
		defer s.close()
		c := machine.NewMachineServiceClient(s)
		return s.each(cmd.Context(), func(ctx context.Context, node string) error {
			before := ""
			if *wait {
				if before, err = bootID(ctx, c); err != nil {
					return err
				}
			}
			if _, err := c.Reboot(ctx, &machine.RebootRequest{}); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: reboots\n", node)
			if !*wait {
				return nil
			}
			if err := waitForBoot(ctx, c, before, *timeout); err != nil {
				return fmt.Errorf("waiting for %s: %w", node, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: has booted again\n", node)
			return nil
		})
	}
	return cmd
}

func shutdownCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "shutdown", Short: "Switch machines off",
		Example: "  talosctl -n 10.0.0.2 shutdown",
		Args:    exactly(0),
	}
	force := cmd.Flags().Bool("force", false, "without what is done for the cluster's sake")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := t.open()
		if err != nil {
			return err
		}
		defer s.close()
		return s.each(cmd.Context(), func(ctx context.Context, node string) error {
			if _, err := machine.NewMachineServiceClient(s).Shutdown(ctx, &machine.ShutdownRequest{Force: *force}); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: shuts down\n", node)
			return nil
		})
	}
	return cmd
}

func bootID(ctx context.Context, c machine.MachineServiceClient) (string, error) {
	stream, err := c.Read(ctx, &machine.ReadRequest{Path: bootIDFile})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = eachMessage(stream, func(data *common.Data) error {
		text.Write(data.Bytes)
		return nil
	})
	return strings.TrimSpace(text.String()), err
}

// waitForBoot asks until the answer is another boot's. A machine that is down cannot
// announce that it is back, so this has to ask again and again.
func waitForBoot(ctx context.Context, c machine.MachineServiceClient, before string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		call, done := context.WithTimeout(ctx, 5*time.Second)
		id, err := bootID(call, c)
		done()
		if err == nil && id != "" && id != before {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return hint(fmt.Errorf("it is not back after %s", timeout), "wait longer with --timeout, or look at its console")
			}
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}
