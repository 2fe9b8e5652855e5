//go:build linux

package machined

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-factory/talos-factory/api/machine"
	"github.com/talos-factory/talos-factory/config"
	"github.com/talos-factory/talos-factory/config/generate"
	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/machine/state"
)

func TestInstallerArguments(t *testing.T) {
	for _, tt := range []struct {
		install config.Install
		meta    meta.Values
		want    string
	}{
		{config.Install{Disk: "/dev/vdb"}, meta.Values{0x0c: []byte("a b"), 0x0a: []byte("x")}, "--disk /dev/vdb --meta=0xa=x --meta=0xc=a b"},
		{config.Install{Disk: "/dev/vdb", Wipe: true}, nil, "--disk /dev/vdb --force --zero"},
		{config.Install{Disk: "/dev/vdb", ExtraKernelArgs: []string{"-quiet", "a=b"}}, nil, "--disk /dev/vdb --extra-kernel-arg=-quiet --extra-kernel-arg=a=b"},
	} {
		if got := strings.Join(installerArguments(tt.install, tt.meta), " "); got != "/bin/installer install "+tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestHaltIfInstalled(t *testing.T) {
	for line, want := range map[string]bool{
		"": false, "console=ttyS0 talos.halt_if_installed=1 quiet\n": true, "talos.halt_if_installed=0": false,
		"talos.halt_if_installed=1 talos.halt_if_installed=0": false, "xtalos.halt_if_installed=1": false,
	} {
		if got := haltIfInstalled(line); got != want {
			t.Errorf("%q: got %v, want %v", line, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	var got []string
	l := &lines{say: func(s string) { got = append(got, s) }}
	for _, part := range []string{" 1/9 read\r\n", "\n 2/9", " open\nerror: cannot install: it is in use\nhint: ", "unmount it"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	l.flush()
	if diff := cmp.Diff([]string{" 1/9 read", " 2/9 open", "error: cannot install: it is in use", "hint: unmount it"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if l.last != "cannot install: it is in use" {
		t.Errorf("last: got %q", l.last)
	}
}

// TestApplyInstalls: a machine without a disk of its own hands the configuration to the boot, tells what is wrong with it at
// once, and what was wrong with the one before.
func TestApplyInstalls(t *testing.T) {
	secrets, err := generate.NewSecrets(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	encode := func(disk, image string) []byte {
		bundle, err := generate.Generate(generate.Cluster{Name: "lab", Endpoint: "https://10.0.0.2:6443", Disk: disk, Image: image}, secrets, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		data, err := bundle.ControlPlane.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}

	const auto = machine.ApplyConfigurationRequest_AUTO
	m := newMachine(slog.New(slog.DiscardHandler))
	m.diskless, m.stage = true, state.StageMaintenance

	for want, data := range map[string][]byte{
		"machine.install.image is not":                 encode("/dev/null", ""),
		"machine.install.disk /dev/nothing is no disk": encode("/dev/nothing", "example.org/installer:v1"),
	} {
		if _, err := m.Apply(t.Context(), data, auto, false, false); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}

	m.failure = errors.New("pulling image")
	done, err := m.Apply(t.Context(), encode("", ""), auto, true, false)
	if err != nil || len(done.Warnings) != 1 || done.Warnings[0] != "the last installation failed: pulling image" {
		t.Errorf("after a failure: got %+v, %v", done, err)
	}
}
