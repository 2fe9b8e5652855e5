package tar_test

import (
	stdtar "archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/tar"
)

var when = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func Example() {
	plan, err := tar.Plan([]tar.File{
		{Path: "etc", Mode: fs.ModeDir | 0o755},
		{Path: "etc/hostname", Mode: 0o644, Content: extent.FromBytes([]byte("machine\n"))},
	}, tar.Options{Format: stdtar.FormatUSTAR, Time: when})
	if err != nil {
		panic(err)
	}
	r := stdtar.NewReader(plan.NewReader(nil))
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		fmt.Println(h.FileInfo().Mode(), h.Name, h.Size)
	}
	// Output:
	// drwxr-xr-x etc/ 0
	// -rw-r--r-- etc/hostname 8
}

func layer(m extent.Memory) []tar.File {
	sparse := extent.New(1 << 20)
	sparse.PutBytes(1<<20-3, []byte("end"))
	return []tar.File{
		{Path: "bin", Mode: fs.ModeDir | 0o755},
		{Path: "bin/tool", Mode: fs.ModeSetuid | 0o755, Content: extent.FromBlob(m.Add(bytes.Repeat([]byte("code"), 100001)))},
		{Path: "bin/sh", Mode: fs.ModeSymlink | 0o777, Link: "tool"},
		{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{Path: "empty", Mode: 0o400, UID: 50, GID: 51, Content: extent.New(0)},
		{Path: "sparse", Mode: 0o600, Content: sparse},
	}
}

func list(t *testing.T, r io.Reader) []string {
	t.Helper()
	var got []string
	tr := stdtar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, tr)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %d:%d %d %s %s%s", h.FileInfo().Mode(), h.Uid, h.Gid, n, h.ModTime.UTC().Format(time.DateOnly), h.Name, h.Linkname))
	}
}

func TestRoundTrip(t *testing.T) {
	want := []string{
		"drwxr-xr-x 0:0 0 2025-01-01 bin/",
		"urwxr-xr-x 0:0 400004 2025-01-01 bin/tool",
		"Lrwxrwxrwx 0:0 0 2025-01-01 bin/shtool",
		"dtrwxrwxrwx 0:0 0 2025-01-01 tmp/",
		"-r-------- 50:51 0 2025-01-01 empty",
		"-rw------- 0:0 1048576 2025-01-01 sparse",
	}
	for _, format := range []stdtar.Format{stdtar.FormatUnknown, stdtar.FormatUSTAR, stdtar.FormatPAX, stdtar.FormatGNU} {
		m := extent.Memory{}
		plan, err := tar.Plan(layer(m), tar.Options{Format: format, Time: when})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, list(t, plan.NewReader(m))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", format, diff)
		}
	}
}

// The same files written by archive/tar, bodies and all, are the same bytes.
func TestEqualsStandardWriter(t *testing.T) {
	m := extent.Memory{}
	plan, err := tar.Plan(layer(m), tar.Options{Format: stdtar.FormatGNU, Time: when})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(plan.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	r, w := stdtar.NewReader(bytes.NewReader(got)), stdtar.NewWriter(&want)
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want.Bytes(), got) {
		t.Error("the plan differs from what archive/tar writes")
	}
}

// GNU tar's form of a size that eleven octal digits cannot hold.
func TestLargeFile(t *testing.T) {
	files := []tar.File{{Path: "disk.raw", Mode: 0o644, Content: extent.New(10 << 30)}}
	plan, err := tar.Plan(files, tar.Options{Format: stdtar.FormatGNU})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := plan.Size(), int64(10<<30+3*512); got != want {
		t.Errorf("size: got %d, want %d", got, want)
	}
	head := make([]byte, 512)
	if _, err := plan.NewReader(nil).ReadAt(head, 0); err != nil {
		t.Fatal(err)
	}
	if got, want := head[124:136], []byte{0x80, 0, 0, 0, 0, 0, 0, 2, 0x80, 0, 0, 0}; !bytes.Equal(got, want) {
		t.Errorf("size field: got % x, want % x", got, want)
	}
	if got, want := string(head[257:265]), "ustar  \x00"; got != want {
		t.Errorf("magic: got %q, want %q", got, want)
	}
	if _, err := tar.Plan(files, tar.Options{Format: stdtar.FormatUSTAR}); err == nil {
		t.Error("ustar took a file of 10 GiB")
	}
}

func TestLongNames(t *testing.T) {
	name := strings.Repeat("long/", 50) + "name"
	plan, err := tar.Plan([]tar.File{{Path: name, Mode: 0o644, Content: extent.FromBytes([]byte("x"))}}, tar.Options{Format: stdtar.FormatGNU, Time: when})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"-rw-r--r-- 0:0 1 2025-01-01 " + name}, list(t, plan.NewReader(nil))); diff != "" {
		t.Error(diff)
	}
}

func TestTwice(t *testing.T) {
	planned := func(at time.Time) string {
		plan, err := tar.Plan(layer(extent.Memory{}), tar.Options{Time: at})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(plan.NewReader(func() extent.Memory { m := extent.Memory{}; layer(m); return m }()))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if planned(when) != planned(when.Add(time.Millisecond).In(time.FixedZone("", 3600))) {
		t.Error("two archives differ")
	}
}

func TestRefusals(t *testing.T) {
	empty := extent.New(0)
	for name, f := range map[string]tar.File{
		"absolute":     {Path: "/etc", Mode: fs.ModeDir},
		"escape":       {Path: "../etc", Mode: fs.ModeDir},
		"dot":          {Path: ".", Mode: fs.ModeDir},
		"no content":   {Path: "a"},
		"dir content":  {Path: "a", Mode: fs.ModeDir, Content: empty},
		"no target":    {Path: "a", Mode: fs.ModeSymlink},
		"target":       {Path: "a", Link: "b", Content: empty},
		"device":       {Path: "a", Mode: fs.ModeDevice},
		"negative uid": {Path: "a", Content: empty, UID: -1},
	} {
		if _, err := tar.Plan([]tar.File{f}, tar.Options{Format: stdtar.FormatUSTAR}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	twice := tar.File{Path: "a", Content: empty}
	if _, err := tar.Plan([]tar.File{twice, twice}, tar.Options{}); err == nil {
		t.Error("twice: no error")
	}
}
