//go:build long

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/factory/vm"
)

// hostSeenFromMachine is where QEMU's user network shows this host's 127.0.0.1 to a machine.
const hostSeenFromMachine = "10.0.2.2"

var (
	joinToken       = regexp.MustCompile(`(?m)^(\s+token: )\S+$`)
	refusedByTrustd = regexp.MustCompile(`issuing certificates error=.*token`)
)

// TestWorkerJoins boots a control plane and a worker. The worker has no key of the cluster's authority: it asks the
// control plane's trustd for its certificate, by the join token. A worker with another token gets none.
func TestWorkerJoins(t *testing.T) {
	controlPlane := start(t, vm.UEFI, diskSize, map[int]int{50001: 50001})
	controlPlane.maintenance()
	controlPlane.must([]string{"gen", "config", "join", "https://" + hostSeenFromMachine + ":6443", "--output", controlPlane.config})
	controlPlane.configure()

	worker := start(t, vm.BIOS, diskSize, nil)
	worker.config = controlPlane.config
	worker.maintenance()
	worker.must(worker.insecure("apply-config", "--file", filepath.Join(worker.config, "worker.yaml")))
	worker.servicesRun(2)
	if out := worker.must(worker.secure("version")); !strings.Contains(out, release.BuildID) {
		t.Errorf("the worker answers %s", out)
	}

	stranger := start(t, vm.BIOS, diskSize, nil)
	stranger.maintenance()
	config, err := os.ReadFile(filepath.Join(worker.config, "worker.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "stranger.yaml")
	if err := os.WriteFile(file, joinToken.ReplaceAll(config, []byte("${1}zzzzzz.0123456789abcdef")), 0o600); err != nil {
		t.Fatal(err)
	}
	stranger.must(stranger.insecure("apply-config", "--file", file))
	if _, err := stranger.console.wait(refusedByTrustd, 0, serviceLimit); err != nil {
		t.Errorf("a worker with a wrong join token was not refused: %v", err)
	}

	worker.must(worker.secure("shutdown"))
	controlPlane.must(controlPlane.secure("shutdown"))
	worker.waitOff(serviceLimit)
	controlPlane.waitOff(serviceLimit)
}
