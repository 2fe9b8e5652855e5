//go:build linux

package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-factory/talos-factory/api/machine"
	"github.com/talos-factory/talos-factory/machine/machined/mounts"
)

// Memory answers /proc/meminfo.
func (s *server) Memory(context.Context, *emptypb.Empty) (*machine.MemoryResponse, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, err
	}

	return &machine.MemoryResponse{Messages: []*machine.Memory{{Meminfo: parseMeminfo(string(b))}}}, nil
}

// parseMeminfo fills the message by name: its fields are the lines' keys in small letters without punctuation.
func parseMeminfo(text string) *machine.MemInfo {
	info := &machine.MemInfo{}
	m := info.ProtoReflect()

	byName := map[string]protoreflect.FieldDescriptor{}
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		byName[plain(string(fd.Name()))] = fd
	}

	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)

		fd := byName[plain(key)]
		if fd == nil || len(fields) == 0 {
			continue
		}

		if n, err := strconv.ParseUint(fields[0], 10, 64); err == nil && fd.Kind() == protoreflect.Uint64Kind {
			m.Set(fd, protoreflect.ValueOfUint64(n))
		}
	}

	return info
}

func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}

		return -1
	}, strings.ToLower(s))
}

// LoadAvg answers /proc/loadavg.
func (s *server) LoadAvg(context.Context, *emptypb.Empty) (*machine.LoadAvgResponse, error) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil, err
	}

	l := &machine.LoadAvg{}
	if _, err := fmt.Sscan(string(b), &l.Load1, &l.Load5, &l.Load15); err != nil {
		return nil, fmt.Errorf("reading /proc/loadavg: %w", err)
	}

	return &machine.LoadAvgResponse{Messages: []*machine.LoadAvg{l}}, nil
}

// Mounts answers what is mounted, with sizes.
func (s *server) Mounts(context.Context, *emptypb.Empty) (*machine.MountsResponse, error) {
	current, err := mounts.Current()
	if err != nil {
		return nil, err
	}

	out := &machine.Mounts{}

	for _, m := range current {
		size, available, err := mounts.Size(m.Target)
		if err != nil {
			continue // hidden by another mount, or gone
		}

		out.Stats = append(out.Stats, &machine.MountStat{Filesystem: m.Source, Size: size, Available: available, MountedOn: m.Target})
	}

	return &machine.MountsResponse{Messages: []*machine.Mounts{out}}, nil
}

// Processes answers all processes; one that ends meanwhile is left out.
func (s *server) Processes(context.Context, *emptypb.Empty) (*machine.ProcessesResponse, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}

	out := &machine.Process{}

	for _, dir := range dirs {
		if p, err := readProcess(dir); err == nil {
			out.Processes = append(out.Processes, p)
		}
	}

	return &machine.ProcessesResponse{Messages: []*machine.Process{out}}, nil
}

func readProcess(dir string) (*machine.ProcessInfo, error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return nil, err
	}

	p, err := parseStat(string(stat), uint64(os.Getpagesize()))
	if err != nil {
		return nil, err
	}

	p.Executable, _ = os.Readlink(filepath.Join(dir, "exe")) // kernel threads have none

	if args, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil {
		p.Args = strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " "))
	}

	if label, err := os.ReadFile(filepath.Join(dir, "attr/current")); err == nil {
		p.Label = strings.Trim(string(label), "\x00\n")
	}

	return p, nil
}

// ticks is USER_HZ, the unit of times in /proc: 100 on all architectures we build for.
const ticks = 100

// parseStat reads /proc/PID/stat, proc_pid_stat(5). The second field may hold blanks and parentheses; the last one ends it.
func parseStat(text string, page uint64) (*machine.ProcessInfo, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return nil, fmt.Errorf("process status %.40q has no name", text)
	}

	f := strings.Fields(text[end+1:])
	if len(f) < 22 {
		return nil, fmt.Errorf("process status %.40q has %d fields after the name, want at least 22", text, len(f))
	}

	number := func(field int) uint64 { // numbered as in the manual, from 3
		n, _ := strconv.ParseUint(f[field-3], 10, 64)

		return n
	}
	pid, _ := strconv.ParseUint(strings.TrimSpace(text[:open]), 10, 31)

	return &machine.ProcessInfo{
		Pid: int32(pid), Ppid: int32(number(4)), State: f[0], Threads: int32(number(20)), Command: text[open+1 : end],
		CpuTime: float64(number(14)+number(15)) / ticks, VirtualMemory: number(23), ResidentMemory: number(24) * page,
	}, nil
}
