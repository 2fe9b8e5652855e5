//go:build vm || long

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/talos-factory/talos-factory/factory/vm"
)

const (
	diskSize = 8 << 30 // larger than the image: the machine has to enlarge EPHEMERAL

	// Software emulation on a loaded host: generous, since every wait ends early on success, panic or power-off.
	bootLimit    = 8 * time.Minute
	serviceLimit = 4 * time.Minute
)

func TestSmokeUEFI(t *testing.T) { smoke(t, vm.UEFI) }

func TestSmokeBIOS(t *testing.T) { smoke(t, vm.BIOS) }

// smoke takes one machine through its first day: maintenance, configuration, services, a container, killed services,
// reboot, shutdown.
func smoke(t *testing.T, firmware vm.Firmware) {
	m := start(t, firmware, diskSize, nil)
	m.maintenance()
	t.Logf("%s: power-on to API %.1f s", firmware, time.Since(m.started).Seconds())
	m.badConfigurations()
	m.configure()
	t.Logf("%s: power-on to configured, all services healthy %.1f s", firmware, time.Since(m.started).Seconds())
	m.showsBuildID()
	m.showsVerifiedRoot(firmware)
	m.runsContainer()
	m.restartsKilled("apid")
	m.restartsKilled("containerd")
	m.keepsStateOverReboot()
	m.must(m.secure("shutdown"))
	m.waitOff(2 * time.Minute)
}

var fingerprintLine = regexp.MustCompile(`fingerprint[= ]+([A-Za-z0-9+/]{43}=)`)

// maintenance waits for the API of an unconfigured machine and checks what it answers and what not.
func (m *machine) maintenance() {
	m.t.Helper()
	match, err := m.console.wait(fingerprintLine, 0, bootLimit)
	if err != nil {
		m.t.Fatalf("waiting for the certificate's fingerprint: %v", err)
	}
	fingerprint := []string{"--cert-fingerprint", match[1]}
	m.eventually(bootLimit, "the API in maintenance mode", append(m.insecure("version"), fingerprint...), func(out string) bool {
		return strings.Contains(out, release.BuildID)
	})
	m.refused("fingerprint", append(m.insecure("version"), "--cert-fingerprint", strings.Repeat("A", 43)+"="))
	m.refused("maintenance", m.insecure("services"))
	m.refused("maintenance", m.insecure("reboot"))
}

// badConfigurations are refused with the place of the mistake, and leave the machine in maintenance mode.
func (m *machine) badConfigurations() {
	m.t.Helper()
	m.must([]string{"gen", "config", "smoke", "https://127.0.0.1:6443", "--output", m.config})
	good, err := os.ReadFile(filepath.Join(m.config, "controlplane.yaml"))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, test := range []struct{ name, text, want string }{
		{"unknown.yaml", strings.Replace(string(good), "machine:", "machine:\n  tokken: x", 1), "tokken"},
		{"broken.yaml", "machine: [\n", "line"},
	} {
		file := filepath.Join(m.config, test.name)
		if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
			m.t.Fatal(err)
		}
		m.refused(test.want, m.insecure("apply-config", "--file", file))
	}
	m.must(m.insecure("version"))
}

func (m *machine) configure() {
	m.t.Helper()
	m.must(m.insecure("apply-config", "--file", filepath.Join(m.config, "controlplane.yaml")))
	m.servicesRun(3)
	if out, err := m.talosctl(m.insecure("apply-config", "--file", filepath.Join(m.config, "controlplane.yaml"))...); err == nil {
		m.t.Errorf("a configured machine took a configuration from a stranger: %s", out)
	}
}

var serviceRow = regexp.MustCompile(`(?m)^\S+\s+(containerd|apid|trustd)\s+Running\s+OK\b`)

func (m *machine) servicesRun(number int) {
	m.t.Helper()
	m.eventually(serviceLimit, "healthy services", m.secure("services"), func(out string) bool {
		return len(serviceRow.FindAllString(out, -1)) == number
	})
}

func (m *machine) showsBuildID() {
	m.t.Helper()
	for _, call := range [][]string{m.secure("version"), m.secure("read", "/etc/os-release")} {
		if out := m.must(call); !strings.Contains(out, release.BuildID) {
			m.t.Errorf("talosctl %q shows another build than the image's %s:\n%s", call, release.BuildID, out)
		}
	}
	if out := m.must(m.secure("dmesg")); !strings.Contains(out, "Using kCFI") {
		m.t.Errorf("the kernel does not say that it checks control flow:\n%s", out)
	}
}

const probeImage = "docker.io/talos-factory/probe:latest"

func (m *machine) runsContainer() {
	m.t.Helper()
	m.must(m.secure("image", "import", probeArchive(m.t)))
	if out := m.probe("hello"); !strings.Contains(out, "hello from a container on Linux 6.12") {
		m.t.Errorf("the container printed %q", out)
	}
}

// probe runs the probe in a privileged container, which sees the machine's processes.
func (m *machine) probe(args ...string) string {
	m.t.Helper()
	return m.must(append(m.secure("debug", "container", probeImage, "--", "/probe"), args...))
}

// service is what the Service resource says.
type service struct {
	pid, restarts int
	exit          string
}

var (
	pidField      = regexp.MustCompile(`(?m)^\s+pid: (\d+)$`)
	restartsField = regexp.MustCompile(`(?m)^\s+restarts: (\d+)$`)
	exitField     = regexp.MustCompile(`(?m)^\s+lastExit: (.*)$`)
	healthyField  = regexp.MustCompile(`(?m)^\s+healthy: true$`)
)

func parseService(text string) (s service, ok bool) {
	pid, restarts, exit := pidField.FindStringSubmatch(text), restartsField.FindStringSubmatch(text), exitField.FindStringSubmatch(text)
	if pid == nil || restarts == nil || !healthyField.MatchString(text) {
		return s, false
	}
	s.pid, _ = strconv.Atoi(pid[1])
	s.restarts, _ = strconv.Atoi(restarts[1])
	if exit != nil {
		s.exit = exit[1]
	}
	return s, s.pid > 0
}

// restartsKilled kills a service by process ID and waits for it to come back under another one.
func (m *machine) restartsKilled(name string) {
	m.t.Helper()
	get := m.secure("get", "services", name, "--output", "yaml")
	var before, after service
	m.eventually(serviceLimit, name+" to run", get, func(out string) (ok bool) {
		before, ok = parseService(out)
		return ok
	})
	// Killing apid or containerd cuts the call that asked for it: its answer proves nothing either way.
	if out, err := m.talosctl(append(m.secure("debug", "container", probeImage, "--", "/probe"), "kill", strconv.Itoa(before.pid))...); err != nil {
		m.t.Logf("killing %s ended the call: %s%v", name, out, err)
	}
	m.eventually(serviceLimit, name+" to be restarted", get, func(out string) (ok bool) {
		after, ok = parseService(out)
		return ok && after.pid != before.pid
	})
	if after.restarts != before.restarts+1 || !strings.Contains(after.exit, "killed") {
		m.t.Errorf("%s: was %+v, is %+v: want one restart more and the signal as its reason", name, before, after)
	}
	m.t.Logf("%s: process %d killed, restarted as %d (restart %d: %s)", name, before.pid, after.pid, after.restarts, after.exit)
}

func (m *machine) keepsStateOverReboot() {
	m.t.Helper()
	state := func() (all string) {
		for _, file := range []string{"/system/state/config.yaml", "/system/state/node-identity.yaml"} {
			all += m.must(m.secure("read", file))
		}
		return all
	}
	const bootID = "/proc/sys/kernel/random/boot_id"
	oldState, oldBoot := state(), m.must(m.secure("read", bootID))
	m.must(m.secure("reboot"))
	m.eventually(bootLimit, "the API after a reboot", m.secure("read", bootID), func(out string) bool {
		return strings.TrimSpace(out) != "" && out != oldBoot
	})
	m.servicesRun(3)
	if got := state(); got != oldState {
		m.t.Error("configuration or node identity changed over a reboot")
	}
	m.varFillsDisk()
}

// varFillsDisk compares the size of /var with the disk's: what the other partitions and XFS itself take is less than 3 GiB.
func (m *machine) varFillsDisk() {
	m.t.Helper()
	out := m.must(m.secure("mounts", "--output", "json"))
	match := regexp.MustCompile(`\{[^{}]*"/var"[^{}]*\}`).FindString(out)
	var mount struct {
		Size int64 `json:",string"`
	}
	if err := json.Unmarshal([]byte(match), &mount); err != nil {
		m.t.Fatalf("no /var among the mounts (%v):\n%s", err, out)
	}
	size := mount.Size
	if size < diskSize-3<<30 || size > diskSize {
		m.t.Errorf("/var has %d bytes on a disk of %d: it was not made at full size", size, int64(diskSize))
	}
	m.t.Logf("/var has %.1f GiB on a disk of %.0f GiB", float64(size)/(1<<30), float64(diskSize)/(1<<30))
}
