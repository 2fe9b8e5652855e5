//go:build judge

package factory

import (
	"context"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/format/splice"
	"github.com/talos-factory/talos-factory/pkgs"
)

// The tools that people have decompress what is spliced for a sparse disk of several GiB.
func TestCompressedDisk(t *testing.T) {
	store, err := build.OpenStore("") // the packages are there
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	lock, err := pkgs.Load("../pkgs")
	if err != nil {
		t.Fatal(err)
	}
	tools, err := lock.DebTree("xz", runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	engine := &build.Engine{Store: store, Executor: &build.LocalExecutor{Store: store}}
	s := splice.Splicer{Source: blobSource{store}, Cache: pieces{store}}
	for _, c := range []struct {
		tool   string
		suffix string
		size   int64
		encode func(context.Context, *extent.Plan) (*extent.Plan, error)
	}{
		{"zstd", "zst", 2 << 30, s.Zstd},
		{"gzip", "gz", 4<<30 + 1<<20, s.Gzip}, // ISIZE is modulo 4 GiB,
		{"xz", "xz", 2 << 30, func(ctx context.Context, p *extent.Plan) (*extent.Plan, error) {
			return splice.XZ(ctx, p, xzTool{engine, tools, runtime.GOARCH})
		}},
	} {
		t.Run(c.tool, func(t *testing.T) {
			plan := sparseDisk(t, store, c.size, "start")
			for _, when := range []string{"first", "again"} {
				start := time.Now()
				out, err := c.encode(t.Context(), plan)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: %s, %d bytes in %d extents, %d literal", when, time.Since(start), out.Size(), len(out.Extents()), out.Literals())
				if out.Literals() > 1<<20 {
					t.Errorf("%d literals", out.Literals())
				}
				path := filepath.Join(t.TempDir(), "disk.raw."+c.suffix)
				if err := writeWhole(t.Context(), path, out, blobSource{store}); err != nil {
					t.Fatal(err)
				}
				if when == "again" {
					continue
				}
				judge.Run(t, []string{c.tool, "-t", filepath.Base(path)}, path)
				judge.Run(t, []string{c.tool, "-d", "-k", filepath.Base(path)}, path)
				f, err := os.Open(path[:len(path)-len(c.suffix)-1])
				if err != nil {
					t.Fatal(err)
				}
				got, n := readHash(t, f)
				f.Close()
				if err := os.Remove(f.Name()); err != nil {
					t.Fatal(err)
				}
				if want := planHash(t, plan, blobSource{store}); got != want {
					t.Errorf("%d decompressed bytes are not the plan's %d", n, plan.Size())
				}
			}
		})
	}
}

func planHash(t *testing.T, plan *extent.Plan, source extent.Source) build.Digest {
	t.Helper()
	h := sha256.New()
	if _, err := io.CopyBuffer(h, struct{ io.Reader }{plan.NewReader(source)}, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	return build.Digest(h.Sum(nil))
}
