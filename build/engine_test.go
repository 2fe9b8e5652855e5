package build

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func inode(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// testFetch brings text and counts how often it was asked to.
func testFetch(text string, opened *int) *Fetch {
	return &Fetch{
		Name: "text " + strings.TrimSpace(text), Blob: Blob{Sum([]byte(text)), int64(len(text))},
		Open: func(context.Context) (io.ReadCloser, error) {
			if opened != nil {
				*opened++
			}
			return io.NopCloser(strings.NewReader(text)), nil
		},
	}
}

// chain is fetch -> first -> second.
func chain(tree *Tree, opened *int) (first, second *Step) {
	first = toolStep(tree, "first", "cat", "/out/o", "/in")
	first.Inputs = []Input{{Path: "/in", Fetch: testFetch("fetched", opened)}}
	second = toolStep(tree, "second", "cat", "/out/o", "/in", "/in")
	second.Inputs = []Input{{Path: "/in", Output: &OutputRef{first, "o"}}}
	return first, second
}

func TestCachedActionNeedsNoInputs(t *testing.T) {
	dir := t.TempDir()
	e := newEngine(t, dir)
	opened := 0
	first, second := chain(toolTree(t), &opened)
	if got := output(t, e, second); got != "fetchedfetched" {
		t.Fatalf("output is %q", got)
	}
	if got, want := e.Stats(), (Stats{Ran: 2}); got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
	// Everything that a result does not consist of may go.
	res, err := e.Build(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []Digest{first.Inputs[0].Fetch.Blob.Digest, res[first].Outputs["o"].Digest} {
		if err := e.Store.dropBlob(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeTree(e.Store.treeDir(toolTree(t).ID())); err != nil {
		t.Fatal(err)
	}
	e2, events := newEngine(t, dir), &recorder{}
	e2.Progress = events
	if got := output(t, e2, second); got != "fetchedfetched" {
		t.Fatalf("output is %q", got)
	}
	if got, want := e2.Stats(), (Stats{Cached: 2}); got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
	if opened != 1 || len(events.ran(KindFetch)) != 0 || len(events.ran(KindTree)) != 0 {
		t.Errorf("a cached action fetched %d times, made trees %v", opened-1, events.ran(KindTree))
	}
}

func TestDamagedOutputIsMadeAgain(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"flipped byte": func(path string) error {
			content, err := os.ReadFile(path)
			content[0] ^= 1
			return errors.Join(err, os.Chmod(path, 0o644), os.WriteFile(path, content, 0o644))
		},
		"flipped byte, same time": func(path string) error {
			content, err := os.ReadFile(path)
			content[0] ^= 1
			return errors.Join(err, os.Chmod(path, 0o644), os.WriteFile(path, content, 0o644), os.Chmod(path, 0o444), os.Chtimes(path, Epoch, Epoch))
		},
		"truncated": func(path string) error { return os.Truncate(path, 3) },
		"gone":      os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e := newEngine(t, dir)
			first, second := chain(toolTree(t), nil)
			res, err := e.Build(t.Context(), second)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []*Step{first, second} {
				path := e.Store.entry("blobs", res[s].Outputs["o"].Digest)
				os.Chmod(path, 0o644)
				if err := damage(path); err != nil {
					t.Fatal(err)
				}
			}
			for _, again := range []*Engine{e, newEngine(t, dir)} { // in the same process, and as another would
				if got := output(t, again, second); got != "fetchedfetched" {
					t.Errorf("output is %q", got)
				}
			}
			if got := e.Stats(); got.Ran != 2 {
				t.Errorf("%d actions ran, want both again", got.Ran)
			}
		})
	}
}

func TestDamagedInputIsFetchedAgain(t *testing.T) {
	dir, opened := t.TempDir(), 0
	e := newEngine(t, dir)
	f := testFetch("pinned", &opened)
	if err := e.Fetch(t.Context(), "test", f); err != nil {
		t.Fatal(err)
	}
	path := e.Store.entry("blobs", f.Blob.Digest)
	os.Chmod(path, 0o644)
	if err := os.WriteFile(path, []byte("pinneD"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := toolStep(toolTree(t), "reader", "cat", "/out/o", "/in")
	s.Inputs = []Input{{Path: "/in", Fetch: f}}
	if got := output(t, newEngine(t, dir), s); got != "pinned" || opened != 2 {
		t.Errorf("step saw %q after %d fetches, want \"pinned\" after 2", got, opened)
	}
}

func TestFetchOfOtherBytesIsRefused(t *testing.T) {
	e := newEngine(t, t.TempDir())
	for _, text := range []string{"pinneD", "pin", "pinned and more"} {
		f := testFetch("pinned", nil)
		f.Open = testFetch(text, nil).Open
		err := e.Fetch(t.Context(), "test", f)
		if err == nil || !strings.Contains(err.Error(), "fetching text pinned: cannot accept it") || !strings.Contains(err.Error(), f.Blob.Digest.String()) {
			t.Errorf("%q: got %v", text, err)
		}
		if e.Store.Has(f.Blob) {
			t.Errorf("%q was stored as something else", text)
		}
	}
}

func TestTreeIsFrozenAndMadeOnce(t *testing.T) {
	e := newEngine(t, t.TempDir())
	made := 0
	f := testFetch("content", nil)
	tree := &Tree{Name: "t", Spec: []byte("t"), Fetches: []Fetch{*f}, Make: func(_ context.Context, dir string, open func(Digest) (*os.File, error)) error {
		made++
		in, err := open(f.Blob.Digest)
		if err != nil {
			return err
		}
		defer in.Close()
		content, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		return errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o700), os.WriteFile(filepath.Join(dir, "a/b/c"), content, 0o700|os.ModeSetuid))
	}}
	for range 2 {
		dir, release, err := e.MakeTree(t.Context(), tree)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{".": "drwxr-xr-x", "a": "drwxr-xr-x", "a/b": "drwxr-xr-x", "a/b/c": "-r-xr-xr-x"} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().String(); got != want || !info.ModTime().Equal(Epoch) {
				t.Errorf("%s is %s of %s, want %s of %s", name, got, info.ModTime(), want, Epoch)
			}
		}
		release()
	}
	if made != 1 {
		t.Errorf("the tree was made %d times", made)
	}
}

func TestFailureIsToldOnce(t *testing.T) {
	e := newEngine(t, t.TempDir())
	tree := toolTree(t)
	bad := toolStep(tree, "bad", "exit")
	slow := toolStep(tree, "slow", "sleep", "1h")
	var tops []*Step
	for _, name := range []string{"top a", "top b"} {
		top := toolStep(tree, name, "cat", "/out/o", "/a", "/b")
		top.Inputs = []Input{{Path: "/a", Output: &OutputRef{bad, "o"}}, {Path: "/b", Output: &OutputRef{slow, "o"}}}
		tops = append(tops, top)
	}
	e.Jobs = 4
	_, err := e.Build(t.Context(), tops...)
	if err == nil || strings.Count(err.Error(), "exit status 7") != 1 || !strings.HasPrefix(err.Error(), `running step "bad": exit status 7`) {
		t.Errorf("got %v", err)
	}
}

func TestStepsThatCannotBe(t *testing.T) {
	tree := &Tree{Name: "t", Spec: []byte("t")}
	for want, change := range map[string]func(*Step){
		"nothing is mounted at /":         func(s *Step) { s.Mounts = nil },
		"has 0 sources":                   func(s *Step) { s.Inputs = []Input{{Path: "/x"}} },
		"has 2 sources":                   func(s *Step) { s.Inputs = []Input{{Path: "/x", Bytes: []byte{}, HostFile: "y"}} },
		"path \"x\" is not absolute":      func(s *Step) { s.Inputs = []Input{{Path: "x", Bytes: []byte{}}} },
		"path /out is taken":              func(s *Step) { s.Inputs = []Input{{Path: "/out", Bytes: []byte{}}} },
		"directory \"x\" is not absolute": func(s *Step) { s.Dir = "x" },
		"no name for an output":           func(s *Step) { s.Outputs = []string{"../x"} },
		"needs its own output":            func(s *Step) { s.Inputs = []Input{{Path: "/x", Output: &OutputRef{s, "o"}}} },
		"which has no such output":        func(s *Step) { s.Inputs = []Input{{Path: "/x", Output: &OutputRef{toolStep(tree, "n"), "p"}}} },
		"cannot build two steps named":    func(s *Step) { s.Inputs = []Input{{Path: "/x", Output: &OutputRef{toolStep(tree, "s"), "o"}}} },
		"is not valid UTF-8":              func(s *Step) { s.Argv = []string{"\xff"} },
		"at least one output":             func(s *Step) { s.Outputs = nil },
		"no name for a cache":             func(s *Step) { s.Caches = []Cache{{"a/b", "/c"}} },
		"is a fetch without a digest":     func(s *Step) { s.Inputs = []Input{{Path: "/x", Fetch: &Fetch{}}} },
		"has no tree or one without a ":   func(s *Step) { s.Mounts = []Mount{{"/", &Tree{}}} },
	} {
		s := toolStep(tree, "s", "x")
		change(s)
		_, err := (&Engine{}).Build(t.Context(), s)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestGraphAndExplain(t *testing.T) {
	e := newEngine(t, t.TempDir())
	tree := toolTree(t)
	_, second := chain(tree, nil)
	var b strings.Builder
	if err := WriteText(&b, second); err != nil {
		t.Fatal(err)
	}
	want := `first -> o
    tree tool at / (0 fetches)
    fetch text fetched at /in
second -> o
    tree tool at / (0 fetches)
    step first: o at /in
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	b.Reset()
	if err := WriteDot(&b, second); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `"first" -> "second" [label="o"];`) {
		t.Errorf("dot is\n%s", b.String())
	}
	b.Reset()
	if err := e.Explain(t.Context(), &b, second); err != nil || !strings.Contains(b.String(), "action not known before these have run: first") {
		t.Errorf("before the build: %v\n%s", err, b.String())
	}
	res, err := e.Build(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := e.Explain(t.Context(), &b, second); err != nil || !strings.Contains(b.String(), "action "+res[second].ID.String()) {
		t.Errorf("after the build: %v\n%s", err, b.String())
	}
}
