package apid_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-factory/talos-factory/api/machine"
	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/machine/state"
)

// ask calls Hostname with metadata given as key, value, ... and gives a line a reply.
func ask(t *testing.T, conn grpc.ClientConnInterface, pairs ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), pairs...), 10*time.Second)
	defer cancel()
	reply, err := machine.NewMachineServiceClient(conn).Hostname(ctx, &emptypb.Empty{})
	if err != nil {
		return status.Code(err).String()
	}
	var lines []string
	for _, m := range reply.Messages {
		line := m.Hostname
		if m.Metadata != nil {
			line = m.Metadata.Hostname + ": " + line
		}
		if m.Metadata.GetError() != "" {
			line += codes.Code(m.Metadata.Status.GetCode()).String()
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestMaintenanceThenConfigured(t *testing.T) {
	n := startNode(t, "m", "127.0.0.1", freePort(t))
	self := must(t)(pki.NewSelfSigned(time.Now(), "127.0.0.1"))
	n.configure(t, state.APICertificatesSpec{Maintenance: true, Server: keyPair(self)})

	ca := newCA(t)
	stranger := n.connect(t, ca, nil)
	expect(t, "maintenance", ask(t, stranger), "m ")
	expect(t, "spoofed role", ask(t, stranger, "talos-role", "os:admin"), "m ")
	expect(t, "about itself", ask(t, stranger, "nodes", "127.0.0.1"), "127.0.0.1: m ")
	expect(t, "about another", ask(t, stranger, "nodes", "127.0.0.2"), "PermissionDenied")

	events, err := machine.NewMachineServiceClient(stranger).Events(t.Context(), &machine.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Recv(); err != nil {
		t.Fatal(err)
	}

	n.configure(t, member(t, ca, "127.0.0.1", true))
	if got := ask(t, stranger); got != "Unauthenticated" && got != "Unavailable" {
		t.Errorf("a new call on a connection of maintenance: got %q", got)
	}
	if _, err := events.Recv(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a call of maintenance goes on: %v", err)
	}
	expect(t, "without a certificate", ask(t, stranger), "Unavailable")
	admin := must(t)(pki.NewClient(ca, time.Now(), time.Hour, "os:admin"))
	expect(t, "administrator", ask(t, n.connect(t, ca, &admin)), "m os:admin")
}

func newCA(t *testing.T) pki.Pair {
	t.Helper()
	return must(t)(pki.NewCA("cluster", time.Now()))
}

func TestRoles(t *testing.T) {
	n := startNode(t, "m", "127.0.0.1", freePort(t))
	ca := newCA(t)
	n.configure(t, member(t, ca, "127.0.0.1", true))
	client := func(roles ...string) *grpc.ClientConn {
		pair := must(t)(pki.NewClient(ca, time.Now(), time.Hour, roles...))
		return n.connect(t, ca, &pair)
	}
	reader := client("os:reader")
	expect(t, "reader", ask(t, reader), "m os:reader")
	expect(t, "reader who says he is more", ask(t, reader, "talos-role", "os:admin"), "m os:reader")
	expect(t, "the same over the merging way", ask(t, reader, "talos-role", "os:admin", "nodes", "127.0.0.1"), "127.0.0.1: m os:reader")
	expect(t, "and with proxyfrom", ask(t, reader, "talos-role", "os:admin", "proxyfrom", "x"), "m os:reader")
	expect(t, "two roles", ask(t, client("os:operator", "os:etcd:backup")), "m os:operator,os:etcd:backup")
	other := client("os:impersonator")
	expect(t, "another node", ask(t, other, "talos-role", "os:operator", "proxyfrom", "x"), "m os:operator")
	expect(t, "another node that says nothing", ask(t, other), "m ")
	expect(t, "another node that passes on its own role", ask(t, other, "talos-role", "os:impersonator"), "m ")
}

func TestStrangersAreRefused(t *testing.T) {
	n := startNode(t, "m", "127.0.0.1", freePort(t))
	ca := newCA(t)
	n.configure(t, member(t, ca, "127.0.0.1", true))

	foreign := must(t)(pki.NewClient(newCA(t), time.Now(), time.Hour, "os:admin"))
	expect(t, "another CA", ask(t, n.connect(t, ca, &foreign)), "Unavailable")
	expired := must(t)(pki.NewClient(ca, time.Now().Add(-2*time.Hour), time.Hour, "os:admin"))
	expect(t, "expired", ask(t, n.connect(t, ca, &expired)), "Unavailable")
	server := must(t)(pki.NewServer(ca, time.Now(), "node"))
	expect(t, "a server's certificate", ask(t, n.connect(t, ca, &server)), "Unavailable")
	// The CA itself may be used for both, so the handshake lets it in.
	expect(t, "the CA's certificate", ask(t, n.connect(t, ca, &ca)), "PermissionDenied")
}

func TestTwoNodes(t *testing.T) {
	port, ca := freePort(t), newCA(t)
	one, two := startNode(t, "m1", "127.0.0.1", port), startNode(t, "m2", "127.0.0.2", port)
	one.configure(t, member(t, ca, one.address, true))
	two.configure(t, member(t, ca, two.address, false))
	reader := must(t)(pki.NewClient(ca, time.Now(), time.Hour, "os:reader"))
	conn, worker := one.connect(t, ca, &reader), two.connect(t, ca, &reader)

	expect(t, "both", ask(t, conn, "nodes", "127.0.0.1", "nodes", "127.0.0.2"),
		"127.0.0.1: m1 os:reader\n127.0.0.2: m2 os:reader")
	expect(t, "one of them, untouched", ask(t, conn, "node", "127.0.0.2", "talos-role", "os:admin"), "m2 os:reader")
	expect(t, "a node that is not there", ask(t, conn, "nodes", "127.0.0.2", "nodes", "127.0.0.9"),
		"127.0.0.2: m2 os:reader\n127.0.0.9: Unavailable")
	expect(t, "no node's name", ask(t, conn, "node", "unix:/run/x.sock"), "InvalidArgument")
	expect(t, "two times node", ask(t, conn, "node", "a", "node", "b"), "InvalidArgument")
	expect(t, "a worker about itself", ask(t, worker, "node", "127.0.0.2"), "m2 os:reader")
	expect(t, "a worker about another", ask(t, worker, "nodes", "127.0.0.1"), "PermissionDenied")

	ctx := metadata.AppendToOutgoingContext(t.Context(), "nodes", "127.0.0.1", "nodes", "127.0.0.2")
	stream, err := machine.NewMachineServiceClient(conn).Dmesg(ctx, &machine.DmesgRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s=%s", data.Metadata.GetHostname(), data.Bytes))
	}
	slices.Sort(lines)
	expect(t, "both nodes' streams", strings.Join(lines, " "), "127.0.0.1=m1 127.0.0.1=m1 127.0.0.2=m2 127.0.0.2=m2")

	refused, err := machine.NewMachineServiceClient(conn).Reboot(ctx, &machine.RebootRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(refused.Messages) != 2 || codes.Code(refused.Messages[0].Metadata.Status.GetCode()) != codes.PermissionDenied {
		t.Errorf("errors of two nodes: %v", refused)
	}

	images, err := machine.NewImageServiceClient(conn).List(ctx, &machine.ImageServiceListRequest{})
	if err == nil {
		_, err = images.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("several nodes where replies cannot be merged: %v", err)
	}
}

// A renewed server certificate is no reason to drop anybody; another CA is.
func TestRenewalKeepsConnections(t *testing.T) {
	n := startNode(t, "m", "127.0.0.1", freePort(t))
	ca := newCA(t)
	n.configure(t, member(t, ca, "127.0.0.1", true))
	admin := must(t)(pki.NewClient(ca, time.Now(), time.Hour, "os:admin"))
	events, err := machine.NewMachineServiceClient(n.connect(t, ca, &admin)).Events(t.Context(), &machine.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Recv(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := events.Recv()
		ended <- err
	}()
	n.configure(t, member(t, ca, "127.0.0.1", true))
	select {
	case err := <-ended:
		t.Fatalf("renewal ended a call: %v", err)
	default:
	}
	n.configure(t, member(t, newCA(t), "127.0.0.1", true))
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("a call outlives the CA that let it in")
	}
}

func TestBrokenCertificatesLetNobodyIn(t *testing.T) {
	n := startNode(t, "m", "127.0.0.1", freePort(t))
	self := must(t)(pki.NewSelfSigned(time.Now(), "127.0.0.1"))
	n.configure(t, state.APICertificatesSpec{Maintenance: true, Server: keyPair(self)})
	spec := member(t, newCA(t), "127.0.0.1", false)
	spec.AcceptedCAs = nil
	if err := state.Put(t.Context(), n.store, state.NewAPICertificates(spec)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		conn, err := tls.Dial("tcp", n.target(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			return
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("still open")
		}
	}
}
