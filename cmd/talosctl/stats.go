package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-factory/talos-factory/api/machine"
)

func memoryCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "memory", Short: "Show the machines' memory",
		Example: "  talosctl -n 10.0.0.2 memory",
		Args:    exactly(0),
	}
	f := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return ask(cmd, t, func(ctx context.Context, s *session, c machine.MachineServiceClient) error {
			reply, err := c.Memory(ctx, &emptypb.Empty{})
			if err != nil {
				return err
			}
			return report(cmd, s, *f, reply.Messages, "NODE|TOTAL|USED|FREE|SHARED|BUFFERS|CACHE|AVAILABLE", func(node string, m *machine.Memory, add func(...any)) {
				i := m.GetMeminfo()
				kib := func(n uint64) string { return size(n << 10) }
				used := i.GetMemtotal() - min(i.GetMemtotal(), i.GetMemfree()+i.GetCached()+i.GetBuffers())
				add(node, kib(i.GetMemtotal()), kib(used), kib(i.GetMemfree()), kib(i.GetShmem()), kib(i.GetBuffers()), kib(i.GetCached()), kib(i.GetMemavailable()))
			})
		})
	}
	return cmd
}

func mountsCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "mounts", Short: "List what is mounted",
		Example: "  talosctl -n 10.0.0.2 mounts",
		Args:    exactly(0),
	}
	f := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return ask(cmd, t, func(ctx context.Context, s *session, c machine.MachineServiceClient) error {
			reply, err := c.Mounts(ctx, &emptypb.Empty{})
			if err != nil {
				return err
			}
			return report(cmd, s, *f, reply.Messages, "NODE|FILESYSTEM|SIZE|USED|AVAILABLE|USED %|MOUNTED ON", func(node string, m *machine.Mounts, add func(...any)) {
				for _, mount := range m.Stats {
					used, percent := mount.Size-min(mount.Size, mount.Available), 0.0
					if mount.Size > 0 {
						percent = 100 * float64(used) / float64(mount.Size)
					}
					add(node, mount.Filesystem, size(mount.Size), size(used), size(mount.Available), fmt.Sprintf("%.0f%%", percent), mount.MountedOn)
				}
			})
		})
	}
	return cmd
}

func processesCommand(t *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "processes", Short: "List the processes that run",
		Example: "  talosctl -n 10.0.0.2 processes --sort cpu",
		Args:    exactly(0),
	}
	f := outputFlag(cmd)
	order := cmd.Flags().String("sort", "rss", "order: rss, cpu or pid")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		less, ok := processOrders()[*order]
		if !ok {
			return hint(fmt.Errorf("cannot sort by %q", *order), "want rss, cpu or pid")
		}
		return ask(cmd, t, func(ctx context.Context, s *session, c machine.MachineServiceClient) error {
			reply, err := c.Processes(ctx, &emptypb.Empty{})
			if err != nil {
				return err
			}
			for _, m := range reply.Messages {
				slices.SortStableFunc(m.Processes, less)
			}
			return report(cmd, s, *f, reply.Messages, "NODE|PID|PPID|STATE|THREADS|CPU TIME|VIRTUAL|RESIDENT|COMMAND", func(node string, m *machine.Process, add func(...any)) {
				for _, p := range m.Processes {
					cpu := time.Duration(p.CpuTime * float64(time.Second)).Truncate(10 * time.Millisecond)
					add(node, p.Pid, p.Ppid, p.State, p.Threads, cpu, size(p.VirtualMemory), size(p.ResidentMemory), cmp.Or(p.Args, p.Executable, p.Command))
				}
			})
		})
	}
	return cmd
}

func processOrders() map[string]func(a, b *machine.ProcessInfo) int {
	return map[string]func(a, b *machine.ProcessInfo) int{
		"rss": func(a, b *machine.ProcessInfo) int { return cmp.Compare(b.ResidentMemory, a.ResidentMemory) },
		"cpu": func(a, b *machine.ProcessInfo) int { return cmp.Compare(b.CpuTime, a.CpuTime) },
		"pid": func(a, b *machine.ProcessInfo) int { return cmp.Compare(a.Pid, b.Pid) },
	}
}
