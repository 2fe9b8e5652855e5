package state

import (
	"context"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestPutAndSync(t *testing.T) {
	ctx := t.Context()
	store, err := New(ctx)
	if err != nil {
		t.Fatal(err)
	}

	for _, restarts := range []int{0, 1, 1} {
		if err := Put(ctx, store, NewService("apid", ServiceSpec{Running: true, Restarts: restarts})); err != nil {
			t.Fatal(err)
		}
	}

	got, err := store.Get(ctx, NewService("apid", ServiceSpec{}).Metadata())
	if err != nil {
		t.Fatal(err)
	}
	if got := got.(*Service).TypedSpec().Restarts; got != 1 {
		t.Errorf("got %d restarts, want 1", got)
	}

	links := []*LinkStatus{NewLinkStatus("lo", LinkStatusSpec{MTU: 65536}), NewLinkStatus("eth0", LinkStatusSpec{MTU: 1500})}
	for _, want := range [][]*LinkStatus{links, links[:1], nil} {
		kind := NewLinkStatus("", LinkStatusSpec{}).Metadata()
		if err := Sync(ctx, store, kind, want); err != nil {
			t.Fatal(err)
		}
		list, err := store.List(ctx, kind)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != len(want) {
			t.Errorf("got %d links, want %d", len(list.Items), len(want))
		}
	}
}

func TestEveryTypeMarshals(t *testing.T) {
	for _, r := range own() {
		if _, err := protobuf.FromResource(r); err != nil {
			t.Errorf("%T: %v", r, err)
		}
	}

	p, err := protobuf.FromResource(NewMachineConfig("machine:\n  type: worker\n"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.GetSpec().GetYamlSpec(), "machine:\n    type: worker\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReadOnly(t *testing.T) {
	ctx := t.Context()
	store, err := New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := Put(ctx, store, NewMachineConfig("a: b")); err != nil {
		t.Fatal(err)
	}

	config, service := NewMachineConfig("").Metadata(), NewService("x", ServiceSpec{}).Metadata()
	unknown := resource.NewMetadata(Runtime, "Nothings.runtime.talos.dev", "x", resource.VersionUndefined)

	for name, tt := range map[string]struct {
		admin bool
		p     *resource.Metadata
		want  codes.Code
	}{
		"config by admin":  {true, config, codes.OK},
		"config by reader": {false, config, codes.PermissionDenied},
		"absent service":   {false, service, codes.Unknown}, // the store's own not-found, no status
		"unknown type":     {true, &unknown, codes.PermissionDenied},
	} {
		view := ReadOnly(store, func(context.Context) bool { return tt.admin })
		_, err := view.Get(ctx, tt.p)
		if got := status.Code(err); got != tt.want {
			t.Errorf("%s: got %v (%v), want %v", name, got, err, tt.want)
		}
	}

	view := ReadOnly(store, func(context.Context) bool { return true })
	if err := view.Create(ctx, NewService("x", ServiceSpec{})); status.Code(err) != codes.PermissionDenied {
		t.Errorf("create: got %v", err)
	}

	only := Only(store, APICertificatesType)
	if _, err := only.Get(ctx, config); status.Code(err) != codes.PermissionDenied {
		t.Errorf("only: got %v", err)
	}
}
