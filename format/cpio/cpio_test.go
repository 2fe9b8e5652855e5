package cpio_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/cpio"
	"github.com/talos-factory/talos-factory/format/extent"
	ucpio "github.com/u-root/u-root/pkg/cpio"
)

func Example() {
	store := extent.Memory{}
	root := store.Add([]byte("a squashfs"))
	archive, err := cpio.Plan([]cpio.Entry{
		{Path: "dev", Mode: fs.ModeDir | 0o755},
		{Path: "dev/console", Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600, Major: 5, Minor: 1},
		{Path: "root.sqsh", Mode: 0o444, Content: extent.FromBlob(root)},
	}, time.Unix(0, 0))
	if err != nil {
		panic(err)
	}
	fmt.Print(archive)
	// Output:
	//            0        360 literal
	//          360         10 f8ba91d6+0
	//          370        126 literal
	//          496 end
}

// initramfs is like the product's, with everything the format can say.
func initramfs(m extent.Memory) []cpio.Entry {
	return []cpio.Entry{
		{Path: "init", Mode: 0o755, Content: extent.FromBlob(m.Add(bytes.Repeat([]byte("init"), 100_001)))},
		{Path: "dev", Mode: fs.ModeDir | 0o755},
		{Path: "dev/console", Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600, Major: 5, Minor: 1},
		{Path: "dev/loop0", Mode: fs.ModeDevice | 0o660, GID: 6, Major: 7},
		{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{Path: "etc", Mode: fs.ModeDir | 0o755},
		{Path: "etc/empty", Mode: 0o600, UID: 50, GID: 51, Content: extent.New(0)},
		{Path: "etc/zeros", Mode: 0o600, Content: extent.New(9)},
		{Path: "etc/link", Mode: fs.ModeSymlink | 0o777, Link: "../init"},
		{Path: "etc/fifo", Mode: fs.ModeNamedPipe | 0o600},
		{Path: "rootfs.sqsh", Mode: 0o444, Content: extent.FromBlob(m.Add(bytes.Repeat([]byte("hsqs"), 500_000)))},
	}
}

const listing = `init 0755 0:0 400004 0,0
dev 040755 0:0 0 0,0
dev/console 020600 0:0 0 5,1
dev/loop0 060660 0:6 0 7,0
tmp 041777 0:0 0 0,0
etc 040755 0:0 0 0,0
etc/empty 0600 50:51 0 0,0
etc/zeros 0600 0:0 9 0,0
etc/link 0120777 0:0 7 0,0
etc/fifo 010600 0:0 0 0,0
rootfs.sqsh 0444 0:0 2000000 0,0
TRAILER!!! 00 0:0 0 0,0
`

func TestLibraryReads(t *testing.T) {
	m := extent.Memory{}
	entries := initramfs(m)
	plan, err := cpio.Plan(entries, time.Unix(1735689600, 0))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := io.ReadAll(plan.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	contents := map[string][]byte{}
	// Not through ForEachRecord: it hides the trailer.
	for pos := int64(0); pos < int64(len(whole)); {
		rec, err := ucpio.Newc.Reader(bytes.NewReader(whole[pos:])).ReadRecord()
		if rec.Name == "" && err == io.EOF {
			rec.Name = "TRAILER!!!" // the reader's way to say so
		} else if err != nil {
			t.Fatal(err)
		} else if rec.MTime != 1735689600 {
			t.Errorf("%s: mtime %d", rec.Name, rec.MTime)
		}
		kind := rec.Mode
		if kind&ucpio.S_IFMT == ucpio.S_IFREG {
			kind &^= ucpio.S_IFMT
		}
		fmt.Fprintf(&got, "%s 0%o %d:%d %d %d,%d\n", rec.Name, kind, rec.UID, rec.GID, rec.FileSize, rec.Rmajor, rec.Rminor)
		if rec.Name == "TRAILER!!!" {
			break
		}
		contents[rec.Name] = make([]byte, rec.FileSize)
		if _, err := rec.ReadAt(contents[rec.Name], 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		pos += (rec.FilePos + int64(rec.FileSize) + 3) &^ 3
	}
	if diff := cmp.Diff(listing, got.String()); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
	for _, e := range entries {
		if e.Content == nil {
			continue
		}
		want, _ := io.ReadAll(e.Content.NewReader(m))
		if !bytes.Equal(contents[e.Path], want) {
			t.Errorf("%s: other bytes", e.Path)
		}
	}
}

func TestTwiceTheSame(t *testing.T) {
	var plans []*extent.Plan
	for range 2 {
		p, err := cpio.Plan(initramfs(extent.Memory{}), time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	if diff := cmp.Diff(plans[0].Extents(), plans[1].Extents()); diff != "" {
		t.Error(diff)
	}
	if n := plans[0].Literals(); n > 4096 {
		t.Errorf("%d literal bytes", n)
	}
}

func TestRefusals(t *testing.T) {
	file := extent.FromBytes([]byte("x"))
	for want, entries := range map[string][]cpio.Entry{
		"clean relative":   {{Path: "/init", Content: file}},
		"twice":            {{Path: "init", Content: file}, {Path: "init", Content: file}},
		`directory "a"`:    {{Path: "a/b", Content: file}},
		"without content":  {{Path: "a"}},
		"cannot give":      {{Path: "a", Mode: fs.ModeDir, Content: file}},
		"format allows":    {{Path: "a", Content: extent.New(4 << 30)}},
		"without a target": {{Path: "a", Mode: fs.ModeSymlink}},
		"of type S":        {{Path: "a", Mode: fs.ModeSocket}},
		"add it twice":     {{Path: "TRAILER!!!", Content: file}},
	} {
		if _, err := cpio.Plan(entries, time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
