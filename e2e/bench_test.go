//go:build bench

package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/format/qcow2"
	"github.com/talos-factory/talos-factory/format/vhd"
	"github.com/talos-factory/talos-factory/profiles"
)

// The claims of docs/performance.md, each as a ratio against a peer in the same run. A benchmark fails if its claim does not hold.

// customized is a profile that differs from every other in this process by a kernel argument.
func customized(b *testing.B, name string, n int) profiles.Profile {
	b.Helper()
	p, err := profiles.Load(name)
	if err != nil {
		b.Fatal(err)
	}
	p.Customization.ExtraKernelArgs = []string{fmt.Sprintf("bench=%d.%d", os.Getpid(), n)}
	return p
}

func plan(b *testing.B, p profiles.Profile) *extent.Plan {
	b.Helper()
	files, err := release.Plan(context.Background(), engine, p)
	if err != nil {
		b.Fatal(err)
	}
	return files[len(files)-1].Plan
}

// warm makes sure that everything constant is in the store, pieces included.
func warm(b *testing.B, name string) {
	b.Helper()
	plan(b, customized(b, name, -1))
}

// timedWrite writes a plan and takes the file away again, or the next one would be measured with a full page cache.
func timedWrite(b *testing.B, runs int, next func(n int) *extent.Plan) time.Duration {
	b.Helper()
	file, n := filepath.Join(b.TempDir(), "out"), 0
	best := time.Duration(1<<63 - 1)
	for range runs {
		n++
		best = min(best, timed(1, func() { write(b, file, next(n)) }))
		if err := os.Remove(file); err != nil {
			b.Fatal(err)
		}
	}
	return best
}

// write puts a plan on the disk as the factory does, but for syncing and the checksum.
func write(b *testing.B, file string, p *extent.Plan) {
	b.Helper()
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := p.WriteSparse(context.Background(), f, factory.Blobs(engine.Store)); err != nil {
		b.Fatal(err)
	}
}

// timed returns the shortest of a few runs: what else the machine does only ever adds.
func timed(runs int, do func()) time.Duration {
	best := time.Duration(1<<63 - 1)
	for range runs {
		began := time.Now()
		do()
		best = min(best, time.Since(began))
	}
	return best
}

// claim reports a ratio and fails if it is above the limit.
func claim(b *testing.B, ratio, limit float64, what string) {
	b.Helper()
	b.ReportMetric(ratio, "x-"+what)
	b.ReportMetric(0, "ns/op")
	if ratio > limit {
		b.Errorf("%.2f times %s: the claim is at most %.2f", ratio, what, limit)
	}
}

const runs = 9

// BenchmarkPlanOnly: the first byte of a customization that nobody asked for before is ready to be served. OVAs and installers begin with
// digests of what follows, so those bytes have to be read first.
func BenchmarkPlanOnly(b *testing.B) {
	limits := map[string]time.Duration{"vmware": 200 * time.Millisecond, "installer": 200 * time.Millisecond}
	for _, name := range []string{"metal", "metal-4k", "aws", "gcp", "azure", "exoscale", "iso", "metal-uki", "pxe", "vmware", "installer"} {
		b.Run(name, func(b *testing.B) {
			limit := limits[name]
			if limit == 0 {
				limit = 50 * time.Millisecond
			}
			warm(b, name)
			n := 0
			took := timed(runs, func() { n++; plan(b, customized(b, name, n)) })
			claim(b, float64(took)/float64(time.Millisecond), float64(limit/time.Millisecond), "ms")
		})
	}
}

// BenchmarkCustomization: another kernel argument costs about as much as to hash the data once.
func BenchmarkCustomization(b *testing.B) {
	warm(b, "metal")
	ours := timedWrite(b, runs, func(n int) *extent.Plan { return plan(b, customized(b, "metal", n)) })
	p := plan(b, customized(b, "metal", 0))
	peer := timed(runs, func() { hashExtents(b, p) })
	b.ReportMetric(ours.Seconds(), "s")
	claim(b, float64(ours)/float64(peer), 1.5, "sha256-of-data")
}

// hashExtents hashes what a disk holds beside zeros.
func hashExtents(b *testing.B, p *extent.Plan) {
	b.Helper()
	r := p.NewReader(factory.Blobs(engine.Store))
	defer r.Close()
	hash := sha256.New()
	buf := make([]byte, 1<<20)
	for _, e := range p.Extents() {
		if _, err := io.CopyBuffer(struct{ io.Writer }{hash}, io.NewSectionReader(r, e.Off, e.Len), buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChecksum: the checksum of the whole file, against sha256sum of it.
func BenchmarkChecksum(b *testing.B) {
	p := plan(b, customized(b, "metal", 0))
	file := filepath.Join(b.TempDir(), "disk")
	write(b, file, p)
	ours := timed(3, func() {
		r := p.NewReader(factory.Blobs(engine.Store))
		defer r.Close()
		if _, err := io.CopyBuffer(struct{ io.Writer }{sha256.New()}, struct{ io.Reader }{r}, make([]byte, 1<<20)); err != nil {
			b.Fatal(err)
		}
	})
	peer := timed(3, func() { judge.Run(b, []string{"sha256sum", "disk"}, file) })
	b.ReportMetric(ours.Seconds(), "s")
	claim(b, float64(ours)/float64(peer), 1.1, "sha256sum")
}

// BenchmarkFormats: a raw disk's plan turned into another format and written, against qemu-img convert of the raw file.
func BenchmarkFormats(b *testing.B) {
	disk := plan(b, customized(b, "metal", 0))
	raw := filepath.Join(b.TempDir(), "disk.raw")
	write(b, raw, disk)
	for _, test := range []struct {
		name, format, options string
		convert               func() (*extent.Plan, error)
	}{
		{"qcow2", "qcow2", "cluster_size=64k", func() (*extent.Plan, error) { return qcow2.Plan(disk, qcow2.Options{}) }},
		{"vhd-dynamic", "vpc", "subformat=dynamic,force_size=on", func() (*extent.Plan, error) { return vhd.Plan(disk, vhd.Options{Kind: vhd.Dynamic}) }},
		{"vhd-fixed", "vpc", "subformat=fixed,force_size=on", func() (*extent.Plan, error) { return vhd.Plan(disk, vhd.Options{Kind: vhd.Fixed}) }},
	} {
		b.Run(test.name, func(b *testing.B) {
			ours := timedWrite(b, runs, func(int) *extent.Plan {
				p, err := test.convert()
				if err != nil {
					b.Fatal(err)
				}
				return p
			})
			out := filepath.Join(b.TempDir(), "peer")
			peer := timed(runs, func() {
				judge.Run(b, []string{"qemu-img", "convert", "-f", "raw", "-O", test.format, "-o", test.options, "disk.raw", out}, raw)
			})
			b.ReportMetric(ours.Seconds(), "s")
			claim(b, float64(ours)/float64(peer), 1, "qemu-img-convert")
		})
	}
}

// BenchmarkZstd: a compressed image of a new customization, against zstd of its raw form.
func BenchmarkZstd(b *testing.B) {
	warm(b, "hcloud")
	dir := b.TempDir()
	raw := filepath.Join(dir, "disk.raw")
	write(b, raw, plan(b, customized(b, "metal", 0)))
	ours := timedWrite(b, runs, func(n int) *extent.Plan { return plan(b, customized(b, "hcloud", n)) })
	peer := timed(3, func() {
		judge.Run(b, []string{"zstd", "-3", "-T0", "-q", "-f", "disk.raw", "-o", filepath.Join(dir, "peer")}, raw)
	})
	b.ReportMetric(ours.Seconds(), "s")
	claim(b, 10*float64(ours)/float64(peer), 1, "tenth-of-zstd")
}

// BenchmarkStoreGrowth: what a second customization leaves in the store.
func BenchmarkStoreGrowth(b *testing.B) {
	for _, name := range []string{"metal", "aws", "gcp", "vmware", "iso", "installer"} {
		b.Run(name, func(b *testing.B) {
			warm(b, name)
			before := storeBytes(b)
			plan(b, customized(b, name, 1))
			grown := float64(storeBytes(b) - before)
			b.ReportMetric(grown/(1<<10), "KiB")
			claim(b, grown/(1<<20), 1, "1MiB")
		})
	}
}

func storeBytes(b *testing.B) (n int64) {
	b.Helper()
	err := filepath.WalkDir(filepath.Join(engine.Store.Dir(), "blobs"), func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}
