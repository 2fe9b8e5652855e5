//go:build linux

package machined

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"google.golang.org/grpc"

	"github.com/talos-factory/talos-factory/machine/machined/certs"
	"github.com/talos-factory/talos-factory/machine/machined/server"
	"github.com/talos-factory/talos-factory/machine/machined/supervisor"
	"github.com/talos-factory/talos-factory/machine/state"
)

// Users of the daemons, as in the image's /etc/passwd.
const (
	apidUID   = 50
	trustdUID = 51
)

// sockets are what machined serves. A daemon may reach only its own resources.
const (
	machineSocket = "/system/run/machined/machine.sock"
	apidSocket    = "/system/run/apid/runtime.sock"
	trustdSocket  = "/system/run/trustd/runtime.sock"
)

func (m *Machine) makeStore(ctx context.Context) (err error) {
	if m.version, err = readVersion("/etc/os-release", "/proc/sys/kernel/random/boot_id"); err != nil {
		return err
	}

	m.store, err = state.New(ctx)
	if err != nil {
		return err
	}

	m.log.Info("machine starts", "version", m.version.Version, "build", m.version.BuildID, "boot", m.version.BootID, "go", m.version.GoVersion)

	if err := state.Put(ctx, m.store, state.NewVersion(m.version)); err != nil {
		return err
	}

	m.publishStatus()

	return nil
}

// readVersion takes version and build ID from os-release(5): they are the image's, not this binary's.
func readVersion(osRelease, bootID string) (state.VersionSpec, error) {
	v := state.VersionSpec{GoVersion: runtime.Version(), Arch: runtime.GOARCH}

	f, err := os.Open(osRelease)
	if err != nil {
		return v, err
	}
	defer f.Close()

	values, err := parseOSRelease(f)
	if err != nil {
		return v, fmt.Errorf("reading %s: %w", osRelease, err)
	}

	v.Version, v.BuildID = values["VERSION_ID"], values["BUILD_ID"]

	id, err := os.ReadFile(bootID)
	if err != nil {
		return v, err
	}

	v.BootID = strings.TrimSpace(string(id))

	return v, nil
}

func parseOSRelease(r io.Reader) (map[string]string, error) {
	values := map[string]string{}

	s := bufio.NewScanner(r)
	for s.Scan() {
		if key, value, ok := strings.Cut(strings.TrimSpace(s.Text()), "="); ok && !strings.HasPrefix(key, "#") {
			values[key] = strings.Trim(value, `"'`)
		}
	}

	return values, s.Err()
}

func (m *Machine) makeMaintenanceCertificate(ctx context.Context) error {
	spec, fingerprint, err := certs.Maintenance(time.Now())
	if err != nil {
		return err
	}

	m.mu.Lock()
	m.fingerprint = fingerprint
	m.mu.Unlock()

	return state.Put(ctx, m.store, state.NewAPICertificates(spec))
}

// serve opens the three sockets. They stay until the machine is off, so that a stop can be followed.
func (m *Machine) serve(context.Context) error {
	api := server.New(server.Parts{
		Machine: m, Supervisor: m.supervisor, Store: m.store, Containers: m.containers, Version: m.version, Log: m.log,
	})

	if err := m.listen(api, machineSocket, 0, apidUID, 0o660); err != nil {
		return err
	}

	if err := m.listen(m.resourcesFor(state.APICertificatesType), apidSocket, apidUID, apidUID, 0o600); err != nil {
		return err
	}

	return m.listen(m.resourcesFor(state.TrustdCertificatesType), trustdSocket, trustdUID, trustdUID, 0o600)
}

func (m *Machine) resourcesFor(t resource.Type) *grpc.Server {
	g := grpc.NewServer()
	v1alpha1.RegisterStateServer(g, cosiserver.NewState(state.Only(m.store, t)))

	return g
}

func (m *Machine) listen(g *grpc.Server, path string, uid, gid int, mode os.FileMode) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { // every daemon passes through it
		return err
	}

	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}

	if err := os.Chown(dir, uid, gid); err != nil {
		return err
	}

	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}

	if err := os.Chown(path, uid, gid); err != nil {
		return err
	}

	if err := os.Chmod(path, mode); err != nil {
		return err
	}

	go func() {
		if err := g.Serve(l); err != nil {
			m.log.Error("serving a socket", "path", path, "error", err)
		}
	}()

	return nil
}

// serviceChanged mirrors a service's status into its resource. The supervisor calls it for one change after another.
func (m *Machine) serviceChanged(st supervisor.Status) {
	if m.store == nil {
		return
	}

	spec := state.ServiceSpec{
		Running: st.State == supervisor.Running, Healthy: st.Healthy, Unknown: st.HealthUnknown,
		State: string(st.State), PID: st.PID, Restarts: st.Restarts, LastExit: st.LastExit,
	}

	if err := state.Put(context.Background(), m.store, state.NewService(st.ID, spec)); err != nil {
		m.log.Error("writing a service's resource", "service", st.ID, "error", err)
	}

	go m.publishStatus() // it asks the supervisor, which waits for this call to return
}
