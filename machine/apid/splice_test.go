package apid

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/talos-factory/talos-factory/api/common"
	"github.com/talos-factory/talos-factory/api/machine"
)

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Two nodes' replies and a third one's error, spliced as bytes, are one reply.
func TestMergeUnary(t *testing.T) {
	var merged []byte
	for _, node := range []string{"one", "two"} {
		reply := encode(t, &machine.HostnameResponse{Messages: []*machine.Hostname{{Hostname: "host of " + node}}})
		marked, err := mark(false, reply, node)
		if err != nil {
			t.Fatal(err)
		}
		merged = append(merged, marked...)
	}
	refused := status.Error(codes.Unavailable, "no route")
	failed, err := errorReply(false, "three", refused)
	if err != nil {
		t.Fatal(err)
	}
	got := &machine.HostnameResponse{}
	if err := proto.Unmarshal(append(merged, failed...), got); err != nil {
		t.Fatal(err)
	}
	want := &machine.HostnameResponse{Messages: []*machine.Hostname{
		{Metadata: &common.Metadata{Hostname: "one"}, Hostname: "host of one"},
		{Metadata: &common.Metadata{Hostname: "two"}, Hostname: "host of two"},
		{Metadata: &common.Metadata{Hostname: "three", Error: refused.Error(), Status: status.Convert(refused).Proto()}},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestMarkStream(t *testing.T) {
	marked, err := mark(true, encode(t, &common.Data{Bytes: []byte("line")}), "one")
	if err != nil {
		t.Fatal(err)
	}
	got := &common.Data{}
	if err := proto.Unmarshal(marked, got); err != nil {
		t.Fatal(err)
	}
	want := &common.Data{Metadata: &common.Metadata{Hostname: "one"}, Bytes: []byte("line")}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestMarkEmptyReply(t *testing.T) {
	marked, err := mark(false, nil, "one")
	if err != nil {
		t.Fatal(err)
	}
	got := &machine.HostnameResponse{}
	if err := proto.Unmarshal(marked, got); err != nil {
		t.Fatal(err)
	}
	if len(got.Messages) != 1 || got.Messages[0].Metadata.GetHostname() != "one" {
		t.Errorf("got %v", got)
	}
}

// Another node's bytes are not to be trusted.
func FuzzMark(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(encode(f, &machine.HostnameResponse{Messages: []*machine.Hostname{{Hostname: "a"}, {}}}), false)
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, false)
	f.Add([]byte{0x0b, 0x0c}, true)
	f.Fuzz(func(t *testing.T, reply []byte, streaming bool) {
		before := &machine.HostnameResponse{}
		valid := proto.Unmarshal(reply, before) == nil
		marked, err := mark(streaming, append([]byte{}, reply...), "node")
		if err != nil || !valid || streaming {
			return
		}
		after := &machine.HostnameResponse{}
		if err := proto.Unmarshal(marked, after); err != nil {
			t.Fatalf("a valid reply became invalid: %v", err)
		}
		if len(before.Messages) > 0 && len(before.Messages) != len(after.Messages) {
			t.Errorf("%d messages became %d", len(before.Messages), len(after.Messages))
		}
	})
}
