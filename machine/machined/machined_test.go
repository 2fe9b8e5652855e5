//go:build linux

package machined

import (
	"bytes"
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
)

func TestPrintBoot(t *testing.T) {
	var out bytes.Buffer
	if err := printBoot(&out); err != nil {
		t.Fatal(err)
	}

	up, down, ok := strings.Cut(out.String(), "shutdown and reboot:")
	if !ok {
		t.Fatalf("got\n%s", out.String())
	}

	inOrder(t, up, "mount kernel and memory", "format STATE", "format EPHEMERAL", "mount overlays", "find a configuration", "install, then reboot",
		"start containerd", "install:", "pull the installer", "run the installer", "configuration there")
	// Services are stopped before what they write on is unmounted, and apid answers until then.
	inOrder(t, down, "start containerd", "mount overlays", "format EPHEMERAL", "format STATE", "start apid", "sync")
}

func inOrder(t *testing.T, text string, want ...string) {
	t.Helper()

	for _, w := range want {
		_, rest, ok := strings.Cut(text, w)
		if !ok {
			t.Errorf("%q is missing, or not behind those before it", w)
		}
		text = rest
	}
}

func TestResolveMode(t *testing.T) {
	worker, plane := &config.Config{Machine: config.Machine{Type: config.Worker}}, &config.Config{Machine: config.Machine{Type: config.ControlPlane}}
	if needsReboot(worker, worker) != "" || needsReboot(worker, plane) == "" {
		t.Error("a change of machine.type needs a reboot, no change does not")
	}

	const (
		auto, reboot     = machine.ApplyConfigurationRequest_AUTO, machine.ApplyConfigurationRequest_REBOOT
		noReboot, staged = machine.ApplyConfigurationRequest_NO_REBOOT, machine.ApplyConfigurationRequest_STAGED
	)

	for _, tt := range []struct {
		mode   machine.ApplyConfigurationRequest_Mode
		reason string
		want   machine.ApplyConfigurationRequest_Mode
		ok     bool
	}{
		{auto, "", noReboot, true},
		{auto, "machine.type changes", reboot, true},
		{noReboot, "", noReboot, true},
		{noReboot, "machine.type changes", noReboot, false},
		{staged, "machine.type changes", staged, true},
		{reboot, "", reboot, true},
		{machine.ApplyConfigurationRequest_TRY, "", machine.ApplyConfigurationRequest_TRY, false},
	} {
		got, _, err := resolveMode(tt.mode, tt.reason)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s %q: got %s, %v", tt.mode, tt.reason, got, err)
		}
	}
}

// TestApplyNeedsAdministrator where there is a configuration already: the caller may have been let in before there was.
func TestApplyNeedsAdministrator(t *testing.T) {
	secrets, err := generate.NewSecrets(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := generate.Generate(generate.Cluster{Name: "lab", Endpoint: "https://10.0.0.2:6443"}, secrets, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	data, err := bundle.Worker.Encode()
	if err != nil {
		t.Fatal(err)
	}

	m := newMachine(slog.New(slog.DiscardHandler))
	m.config = bundle.Worker

	const auto, dry = machine.ApplyConfigurationRequest_AUTO, true
	if _, err := m.Apply(t.Context(), data, auto, dry, false); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stranger: got %v", err)
	}
	if _, err := m.Apply(t.Context(), data, auto, dry, true); err != nil {
		t.Errorf("an administrator: got %v", err)
	}
}

func TestParseOSRelease(t *testing.T) {
	got, err := parseOSRelease(strings.NewReader("# comment\nID=talos\nNAME=\"Talos Factory\"\nVERSION_ID=v0.1.0\n\nBUILD_ID='abc'\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"ID": "talos", "NAME": "Talos Factory", "VERSION_ID": "v0.1.0", "BUILD_ID": "abc"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
