// Package state has the machine's typed resources: what the parts of the machine tell each other and the API's `get` shows.
//
// It does not fill them: each resource has exactly one writer, named in its comment. Type names agree with the public Talos
// API where it has such a resource, so that its client's aliases work. Specifications travel as YAML only: readers outside the
// process get no protobuf form of them, except of those in secrets.go.
package state

import (
	"context"
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	cosi "github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/registry"
)

// Namespaces.
const (
	Runtime = resource.Namespace("runtime")
	Network = resource.Namespace("network")
	Config  = resource.Namespace("config")
	Cluster = resource.Namespace("cluster")
)

// New returns an empty store that knows the definitions of all types given and of this package's own.
func New(ctx context.Context, more ...meta.ResourceWithRD) (cosi.State, error) {
	store := cosi.WrapCore(namespaced.NewState(inmem.Build))

	if err := registry.NewNamespaceRegistry(store).RegisterDefault(ctx); err != nil {
		return nil, fmt.Errorf("registering namespaces: %w", err)
	}

	types := registry.NewResourceRegistry(store)
	if err := types.RegisterDefault(ctx); err != nil {
		return nil, fmt.Errorf("registering resource types: %w", err)
	}

	for _, r := range append(own(), more...) {
		if err := types.Register(ctx, r); err != nil {
			return nil, fmt.Errorf("registering %T: %w", r, err)
		}
	}

	return store, nil
}

func own() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		&Service{}, &MachineStatus{}, &Identity{}, &Version{}, &AddressStatus{}, &LinkStatus{}, &HostnameStatus{}, &ResolverStatus{},
		&MountStatus{}, &MetaKey{}, &MachineConfig{}, &APICertificates{}, &TrustdCertificates{}, &ExtensionStatus{}, &SecurityState{},
	}
}

// Put makes the resource what it is given to be, whether it exists or not. Nothing happens if it is that already.
func Put[T typed.DeepCopyable[T], E typed.Extension](ctx context.Context, store cosi.State, r *typed.Resource[T, E]) error {
	want := *r.TypedSpec()

	current, err := store.Get(ctx, r.Metadata())
	if cosi.IsNotFoundError(err) {
		return store.Create(ctx, r)
	}

	if err != nil {
		return err
	}

	_, err = store.UpdateWithConflicts(ctx, current.Metadata(), func(res resource.Resource) error {
		spec, ok := res.Spec().(*T)
		if !ok {
			return fmt.Errorf("internal error: %s holds a %T", res.Metadata(), res.Spec())
		}

		*spec = want.DeepCopy()

		return nil
	}, cosi.WithExpectedPhaseAny())

	return err
}

// Delete removes a resource; it is no error if there is none.
func Delete(ctx context.Context, store cosi.State, p resource.Pointer) error {
	if err := store.Destroy(ctx, p); err != nil && !cosi.IsNotFoundError(err) {
		return err
	}

	return nil
}

// Sync makes the resources of one type exactly those given.
func Sync[T typed.DeepCopyable[T], E typed.Extension](ctx context.Context, store cosi.State, kind resource.Kind, want []*typed.Resource[T, E]) error {
	keep := map[resource.ID]bool{}

	for _, r := range want {
		keep[r.Metadata().ID()] = true
		if err := Put(ctx, store, r); err != nil {
			return err
		}
	}

	list, err := store.List(ctx, kind)
	if err != nil {
		return err
	}

	for _, r := range list.Items {
		if !keep[r.Metadata().ID()] {
			if err := Delete(ctx, store, r.Metadata()); err != nil {
				return err
			}
		}
	}

	return nil
}

func newResource[E typed.Extension, T typed.DeepCopyable[T]](ns resource.Namespace, t resource.Type, id resource.ID, spec T) *typed.Resource[T, E] {
	return typed.NewResource[T, E](resource.NewMetadata(ns, t, id, resource.VersionUndefined), spec)
}
