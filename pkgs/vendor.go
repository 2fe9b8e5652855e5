package pkgs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/pkgs/gomod"
)

// Fetches lists everything the lock names, each blob once.
func (l *Lock) Fetches() []build.Fetch {
	var all []build.Fetch
	seen := map[build.Digest]bool{}
	add := func(f *build.Fetch) {
		if !seen[f.Blob.Digest] {
			seen[f.Blob.Digest] = true
			all = append(all, *f)
		}
	}
	for _, arch := range slices.Sorted(maps.Keys(l.Packages)) {
		for _, p := range l.Packages[arch] {
			add(l.Fetcher.Fetch(p))
		}
	}
	for _, t := range l.Go {
		add(l.Fetcher.FetchToolchain(t))
	}
	return all
}

// PackModules writes, for a bundle, the Go modules that the steps need which were described with this lock. They are
// not in the lock: go.sum pins them.
func (l *Lock) PackModules(ctx context.Context, w io.Writer) error {
	return gomod.Pack(ctx, w, l.modules)
}

// FetchInto gets one blob into the store, unless it is there.
func FetchInto(ctx context.Context, store *build.Store, f build.Fetch) error {
	if store.Has(f.Blob) {
		return nil
	}
	body, err := f.Open(ctx)
	if err != nil {
		return fmt.Errorf("fetching %s: %w", f.Name, err)
	}
	if err = errors.Join(store.PutExact(body, f.Blob), body.Close()); err != nil {
		return fmt.Errorf("fetching %s: %w", f.Name, err)
	}
	return nil
}
