//go:build release

// Package e2e holds the tests that look at whole artifacts.
package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
)

// nobody is the other user, where the test may become one.
const nobody = 65534

// buildRun is one complete build from a clone in a folder of its own, into a store of its own.
type buildRun struct {
	dir   string
	umask string
	env   []string
	uid   uint32 // 0: whoever runs the test
	as    *syscall.Credential
}

// TestBuiltTwice builds the image from two clones in different paths, into two empty stores, with another umask, time
// zone, language and number of processors, and compares every byte. It takes two kernel builds.
func TestBuiltTwice(t *testing.T) {
	base := t.TempDir()
	t.Cleanup(func() { // trees of a store are read-only
		if out, err := exec.Command("chmod", "-R", "u+w", base).CombinedOutput(); err != nil {
			t.Logf("making %s removable: %v: %s", base, err, out)
		}
	})
	first := buildRun{dir: filepath.Join(base, "one"), umask: "022", env: []string{"TZ=UTC", "LANG=C"}}
	second := buildRun{dir: filepath.Join(base, "a", "longer path", "two"), umask: "077", env: []string{"TZ=Pacific/Auckland", "LANG=C.UTF-8", "GOMAXPROCS=1"}}
	if os.Getuid() == 0 {
		second.uid = nobody
	}
	a, b := first.run(t), second.run(t)
	if a.SHA256 != b.SHA256 || a.BuildID != b.BuildID {
		t.Errorf("two builds of one commit differ: %+v and %+v", a, b)
	}
	compareFiles(t, a.Path, b.Path)
	t.Logf("identical: %s, build %s", a.SHA256, a.BuildID)
}

type result struct {
	Path, SHA256, BuildID string
}

var actionsRan = regexp.MustCompile(`(\d+) actions? ran`)

func (r buildRun) run(t *testing.T) (res result) {
	t.Helper()
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(r.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	r.command(t, ".", "git", "clone", "--quiet", "--no-hardlinks", checkout, r.dir)
	if r.uid != 0 {
		// The way in, and everything in the clone, is the other user's; the go command keeps its caches there.
		r.command(t, ".", "chown", "-R", strconv.Itoa(nobody), r.dir)
		for dir := filepath.Dir(r.dir); dir != filepath.Clean(os.TempDir()); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		r.env = append(r.env, "HOME="+r.dir, "GOCACHE="+filepath.Join(r.dir, ".gocache"), "GOMODCACHE="+filepath.Join(r.dir, ".gomodcache"), "GOFLAGS=-modcacherw")
		r.as = &syscall.Credential{Uid: r.uid, Gid: r.uid}
	}
	r.command(t, r.dir, "go", "build", "-trimpath", "-buildvcs=false", "-o", "bin/factory", "./cmd/factory")
	stdout, stderr := r.command(t, r.dir, "sh", "-c",
		"umask "+r.umask+" && exec bin/factory build metal --store store --output out --json --no-caches --progress plain")
	var files []result
	if err := json.Unmarshal(stdout, &files); err != nil || len(files) != 1 {
		t.Fatalf("reading the result %q: %v", stdout, err)
	}
	res = files[0]
	res.Path = filepath.Join(r.dir, res.Path)
	match := actionsRan.FindSubmatch(stderr)
	if match == nil {
		t.Fatalf("the build does not say how many actions ran:\n%s", stderr)
	}
	if n, err := strconv.Atoi(string(match[1])); err != nil || n == 0 {
		t.Fatalf("no action ran in an empty store:\n%s", stderr)
	}
	t.Logf("%s: %s in an empty store", r.dir, match[0])
	return res
}

func (r buildRun) command(t *testing.T, dir, name string, args ...string) (stdout, stderr []byte) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if r.as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: r.as}
	}
	cmd.Env = append(os.Environ(), r.env...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, log.Bytes())
	}
	return out.Bytes(), log.Bytes()
}

func compareFiles(t *testing.T, a, b string) {
	t.Helper()
	var sums [2][sha256.Size]byte
	for i, name := range []string{a, b} {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		hash := sha256.New()
		if _, err := io.Copy(hash, file); err != nil {
			t.Fatal(err)
		}
		sums[i] = [sha256.Size]byte(hash.Sum(nil))
	}
	if sums[0] != sums[1] {
		t.Errorf("%s hashes to %x, %s to %x", a, sums[0], b, sums[1])
	}
}
