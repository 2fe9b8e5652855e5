//go:build judge

package pack

import (
	"archive/tar"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/judge"
	"github.com/talos-factory/talos-factory/pkgs"
)

func TestMain(m *testing.M) {
	if build.IsStub() {
		build.StubMain()
	}
	os.Exit(m.Run())
}

// packIn loads the source and packs it with an engine of its own, that has nothing but the tools' packages.
func packIn(t *testing.T, src Source) (string, build.Blob) {
	t.Helper()
	lock, err := pkgs.Load("../../pkgs")
	if err != nil {
		t.Fatal(err)
	}
	tools, err := lock.DebTree("squashfs", runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	borrow(t, tools)
	opts := options(t)
	ext, err := Load(context.Background(), src, opts)
	if err != nil {
		t.Fatal(err)
	}
	engine := &build.Engine{Store: opts.Store, Executor: &build.LocalExecutor{Store: opts.Store}}
	step := ext.Step(tools, runtime.GOARCH)
	results, err := engine.Build(context.Background(), step)
	if err != nil {
		t.Fatal(err)
	}
	if results[step].Cached || engine.Stats().Ran != 1 {
		t.Errorf("nothing ran: %+v", engine.Stats())
	}
	t.Logf("packed in an empty store: %+v", engine.Stats())
	blob := results[step].Outputs[Squashfs]
	from, err := opts.Store.Open(blob.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	file := filepath.Join(t.TempDir(), Squashfs)
	to, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	return file, blob
}

// borrow lets the tree's packages come out of the user's store, which the judges have filled.
func borrow(t *testing.T, tree *build.Tree) {
	t.Helper()
	store, err := build.OpenStore("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	for i, f := range tree.Fetches {
		tree.Fetches[i].Open = func(ctx context.Context) (io.ReadCloser, error) {
			if err := pkgs.FetchInto(ctx, store, f); err != nil {
				return nil, err
			}
			return store.Open(f.Blob.Digest)
		}
	}
}

var listLine = regexp.MustCompile(`(?m)^(\S+) +(\S+) +(\d+) (\S+ \S+) squashfs-root(/.*?)?(?: -> (\S+))?$`)

// TestUnsquashfsReadsIt has squashfs-tools' own reader list what was packed, twice: from one image as a layout, and from another with
// the same files as a tarball.
func TestUnsquashfsReadsIt(t *testing.T) {
	files := []file{
		{name: "rootfs/lib/firmware/x.bin", text: strings.Repeat("x", 3<<20)},
		{name: "rootfs/usr/local/bin/tool", text: "program", mode: 0o755},
		{name: "rootfs/usr/local/bin/again", text: "rootfs/usr/local/bin/tool", kind: tar.TypeLink},
		{name: "rootfs/usr/local/bin/link", text: "tool", kind: tar.TypeSymlink},
		{name: "rootfs/usr/local/empty"},
		{name: "rootfs/usr/local/a name with spaces", text: "x"},
	}
	image, first := packIn(t, inLayout(t, newImage(t, "amd64", hello(files...))))
	_, second := packIn(t, Source{Tarball: saved(t, "example.org/x:v1", hello(append([]file{dir("rootfs/usr/local")}, files...)...))})
	if first != second {
		t.Errorf("packed twice: %v and %v", first, second)
	}
	var got strings.Builder
	for _, m := range listLine.FindAllStringSubmatch(judge.Run(t, []string{"unsquashfs", "-llnumeric", Squashfs}, image), -1) {
		got.WriteString(strings.TrimSpace(strings.Join(m[1:], " ")) + "\n")
	}
	want := `drwxr-xr-x 0/0 26 1970-01-01 00:00
drwxr-xr-x 0/0 39 1970-01-01 00:00 /usr
drwxr-xr-x 0/0 31 1970-01-01 00:00 /usr/lib
drwxr-xr-x 0/0 28 1970-01-01 00:00 /usr/lib/firmware
-rw-r--r-- 0/0 3145728 1970-01-01 00:00 /usr/lib/firmware/x.bin
drwxr-xr-x 0/0 65 1970-01-01 00:00 /usr/local
-rw-r--r-- 0/0 1 1970-01-01 00:00 /usr/local/a name with spaces
drwxr-xr-x 0/0 52 1970-01-01 00:00 /usr/local/bin
-rwxr-xr-x 0/0 7 1970-01-01 00:00 /usr/local/bin/again
lrwxrwxrwx 0/0 4 1970-01-01 00:00 /usr/local/bin/link tool
-rwxr-xr-x 0/0 7 1970-01-01 00:00 /usr/local/bin/tool
-rw-r--r-- 0/0 0 1970-01-01 00:00 /usr/local/empty
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("unsquashfs (-want +got):\n%s", diff)
	}
	if out := judge.Run(t, []string{"unsquashfs", "-stat", Squashfs}, image); !strings.Contains(out, "Compression zstd") || !strings.Contains(out, "Block size 1048576") {
		t.Errorf("unsquashfs -stat:\n%s", out)
	}
}
