package factory

import (
	"context"
	"fmt"
	"io"
	"maps"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/initramfs"
	"github.com/talos-factory/talos-factory/profiles/assembly"
	"github.com/talos-factory/talos-factory/rootfs"
)

// requiredParts are the outputs that a release has to have.
func requiredParts() []string {
	return []string{
		vmlinuz, initProgram, rootfs.Squashfs, installProg,
		systemdBoot, systemdStub, grubBoot, grubCore, grubHybrid, grubTorito,
	}
}

// blobs makes the outputs of some steps, unless they are ready, and returns them by name.
func (r *Release) blobs(ctx context.Context, engine *build.Engine, steps ...*build.Step) (map[string]build.Blob, error) {
	if r.ready != nil {
		return r.ready, nil
	}
	results, err := engine.Build(ctx, steps...)
	if err != nil {
		return nil, err
	}
	blobs := map[string]build.Blob{}
	for _, step := range steps {
		maps.Copy(blobs, results[step].Outputs)
	}
	return blobs, nil
}

// Parts makes what images of the release are assembled from. Boot loaders are read, the rest stays in the store.
func (r *Release) Parts(ctx context.Context, engine *build.Engine) (assembly.Parts, error) {
	blobs, err := r.blobs(ctx, engine, r.Steps()...)
	if err != nil {
		return assembly.Parts{}, err
	}
	parts := assembly.Parts{
		Arch: r.Arch, Version: r.Version, OSRelease: rootfs.OSRelease(r.Version, r.BuildID),
		Kernel: extent.FromBlob(stored(blobs[vmlinuz])),
	}
	root, hash, err := verifiable(engine.Store, stored(blobs[rootfs.Squashfs]))
	if err != nil {
		return parts, err
	}
	parts.Verity = verityArgument(hash)
	parts.Initramfs, err = initramfs.Plan(stored(blobs[initProgram]), root)
	if err != nil {
		return parts, fmt.Errorf("planning initramfs: %w", err)
	}
	for name, into := range map[string]*[]byte{
		systemdBoot: &parts.SystemdBoot, systemdStub: &parts.SystemdStub, grubBoot: &parts.GRUBBoot, grubCore: &parts.GRUBCore,
		grubHybrid: &parts.GRUBHybrid, grubTorito: &parts.GRUBElTorito,
	} {
		if *into, err = readSmall(engine.Store, blobs[name]); err != nil {
			return parts, fmt.Errorf("reading %s: %w", name, err)
		}
	}
	return parts, nil
}

// stored is a blob of the store as plans know it.
func stored(b build.Blob) extent.Blob { return extent.Blob{SHA256: b.Digest, Size: b.Size} }

// readSmall reads a blob of at most 1 MiB: a boot loader that has to be patched or appended to.
func readSmall(store *build.Store, blob build.Blob) ([]byte, error) {
	if blob.Size > 1<<20 {
		return nil, fmt.Errorf("cannot read it into a plan: it has %d bytes, more than 1 MiB", blob.Size)
	}
	file, err := store.Open(blob.Digest)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}
