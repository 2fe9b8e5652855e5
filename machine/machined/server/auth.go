//go:build linux

package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// RoleHeader is the request metadata in which apid says what the caller may do.
const RoleHeader = "talos-role"

// Role is what a caller may be. A method names the least that is needed: each role may do what those before it may.
type Role int

// The roles, and what they are called in certificates.
const (
	nobody   Role = iota
	Reader        // os:reader
	Operator      // os:operator
	Admin         // os:admin
)

var roleNames = map[string]Role{"os:reader": Reader, "os:operator": Operator, "os:admin": Admin}

func (r Role) String() string {
	for name, role := range roleNames {
		if role == r {
			return name
		}
	}

	return "none"
}

// required is every method that is answered and the least role it needs. A method that is not here is refused to all.
func required() map[string]Role {
	return map[string]Role{
		"/machine.MachineService/ApplyConfiguration": Admin,
		"/machine.MachineService/Containers":         Reader,
		"/machine.MachineService/Dmesg":              Reader,
		"/machine.MachineService/Hostname":           Reader,
		"/machine.MachineService/List":               Reader,
		"/machine.MachineService/LoadAvg":            Reader,
		"/machine.MachineService/Logs":               Reader,
		"/machine.MachineService/LogsContainers":     Reader,
		"/machine.MachineService/Memory":             Reader,
		"/machine.MachineService/Mounts":             Reader,
		"/machine.MachineService/Processes":          Reader,
		"/machine.MachineService/Read":               Admin,
		"/machine.MachineService/Reboot":             Operator,
		"/machine.MachineService/ServiceList":        Reader,
		"/machine.MachineService/ServiceRestart":     Operator,
		"/machine.MachineService/ServiceStart":       Operator,
		"/machine.MachineService/ServiceStop":        Operator,
		"/machine.MachineService/Shutdown":           Operator,
		"/machine.MachineService/Version":            Reader,

		"/machine.ImageService/Import": Admin,
		"/machine.ImageService/List":   Reader,
		"/machine.ImageService/Pull":   Admin,

		"/machine.DebugService/ContainerRun": Admin,

		"/time.TimeService/Time": Reader,

		// What may be read is decided by type, see state.ReadOnly. Writes are let through to be refused there in plain words.
		"/cosi.resource.State/Get":     Reader,
		"/cosi.resource.State/List":    Reader,
		"/cosi.resource.State/Watch":   Reader,
		"/cosi.resource.State/Create":  Reader,
		"/cosi.resource.State/Update":  Reader,
		"/cosi.resource.State/Destroy": Reader,
	}
}

// maintenance are the methods answered to anybody while the machine has no configuration.
var maintenance = []string{"/machine.MachineService/Version", "/machine.MachineService/ApplyConfiguration"}

// roleOf is the highest role that apid vouches for.
func roleOf(ctx context.Context) Role {
	role := nobody

	md, _ := metadata.FromIncomingContext(ctx)
	for _, name := range md.Get(RoleHeader) { // one value a role: an organization "a,os:admin" is not an administrator
		role = max(role, roleNames[name])
	}

	return role
}

// authorize decides about a call.
func authorize(table map[string]Role, inMaintenance bool, method string, role Role) error {
	need, known := table[method]

	switch {
	case !known:
		return status.Errorf(codes.Unimplemented, "method %s is not supported", method)
	case inMaintenance && slices.Contains(maintenance, method):
		return nil
	case inMaintenance:
		return status.Errorf(codes.PermissionDenied, "cannot answer %s: the machine is in maintenance mode, apply a configuration first", method)
	case role < need:
		return status.Errorf(codes.PermissionDenied, "cannot answer %s: it needs the role %s, the caller has %s", method, need, role)
	}

	return nil
}

func unaryAuth(check func(ctx context.Context, method string) error) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if err := check(ctx, info.FullMethod); err != nil {
			return nil, err
		}

		return handle(ctx, req)
	}
}

func streamAuth(check func(ctx context.Context, method string) error) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if err := check(stream.Context(), info.FullMethod); err != nil {
			return err
		}

		return handle(srv, stream)
	}
}
