package apid

import (
	"context"
	"net/netip"
	"strings"

	"github.com/siderolabs/grpc-proxy/proxy"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// The metadata by which a client says about which nodes it asks.
const (
	nodeKey  = "node"      // one; the reply is that node's, untouched
	nodesKey = "nodes"     // several; their replies are merged, each marked with its node
	fromKey  = "proxyfrom" // the call has been forwarded once and goes no further
)

// mergeable are the services whose replies all have the form that can be merged.
var mergeable = map[string]bool{
	"machine.MachineService": true,
	"cluster.ClusterService": true,
	"inspect.InspectService": true,
	"storage.StorageService": true,
	"time.TimeService":       true,
}

// streamed are the mergeable methods that reply with a stream; without the schema nothing
// else says so. Methods that only other nodes have are among them.
var streamed = map[string]bool{
	"/machine.MachineService/Copy":          true,
	"/machine.MachineService/DiskUsage":     true,
	"/machine.MachineService/Dmesg":         true,
	"/machine.MachineService/EtcdSnapshot":  true,
	"/machine.MachineService/Events":        true,
	"/machine.MachineService/ImageList":     true,
	"/machine.MachineService/Kubeconfig":    true,
	"/machine.MachineService/List":          true,
	"/machine.MachineService/Logs":          true,
	"/machine.MachineService/PacketCapture": true,
	"/machine.MachineService/Read":          true,
	"/cluster.ClusterService/HealthCheck":   true,
}

func streams(method string) bool { return streamed[method] || strings.HasSuffix(method, "Stream") }

// A router decides where a call goes.
type router struct {
	local     *backends
	addresses func() ([]netip.Addr, error)
}

// direct is the proxy's director.
func (r *router) direct(ctx context.Context, method string) (proxy.Mode, []proxy.Backend, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	one, many := incoming.Get(nodeKey), incoming.Get(nodesKey)
	switch {
	case len(incoming.Get(fromKey)) > 0 || len(one)+len(many) == 0:
		return proxy.One2One, []proxy.Backend{r.local.machined("")}, nil
	case len(one) > 1 || len(one) == 1 && len(many) > 0:
		return 0, nil, status.Error(codes.InvalidArgument, `cannot ask more than one "node"; send "nodes"`)
	case len(one) == 1:
		targets, err := r.targets(one)
		return proxy.One2One, targets, err
	case !mergeable[service(method)]:
		return 0, nil, status.Errorf(codes.InvalidArgument, "cannot ask several nodes at once for %s", method)
	}
	targets, err := r.targets(many)
	return proxy.One2Many, targets, err
}

func (r *router) targets(nodes []string) ([]proxy.Backend, error) {
	own, err := r.addresses()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	targets := make([]proxy.Backend, 0, len(nodes))
	for _, node := range nodes {
		if isOwn(node, own) {
			targets = append(targets, r.local.machined(node))
			continue
		}
		backend, err := r.local.remote(node)
		if err != nil {
			return nil, err
		}
		targets = append(targets, backend)
	}
	return targets, nil
}

func isOwn(node string, own []netip.Addr) bool {
	address, err := netip.ParseAddr(node)
	if err != nil {
		return false
	}
	for _, candidate := range own {
		if candidate.WithZone("") == address.Unmap().WithZone("") {
			return true
		}
	}
	return false
}

// service is "machine.MachineService" of "/machine.MachineService/Version".
func service(method string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return name
}
