//go:build release || long

package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// nobody is the other user, where the test may become one.
const nobody = 65534

// buildRun is a factory in a folder of its own, with an empty store of its own.
type buildRun struct {
	dir   string
	umask string
	env   []string
	uid   uint32 // 0: whoever runs the test
	as    *syscall.Credential
}

// twoRuns are as different as two users' builds may be: path, user, umask, time zone, language, number of processors.
func twoRuns(t *testing.T) (first, second buildRun) {
	base := t.TempDir()
	t.Cleanup(func() { // trees of a store are read-only
		if out, err := exec.Command("chmod", "-R", "u+w", base).CombinedOutput(); err != nil {
			t.Logf("making %s removable: %v: %s", base, err, out)
		}
	})
	first = buildRun{dir: filepath.Join(base, "one"), umask: "022", env: []string{"TZ=UTC", "LANG=C"}}
	second = buildRun{dir: filepath.Join(base, "a", "longer path", "two"), umask: "077", env: []string{"TZ=Pacific/Auckland", "LANG=C.UTF-8", "GOMAXPROCS=1"}}
	if os.Getuid() == 0 {
		second.uid = nobody
	}
	return first, second
}

// result is one line of what `factory build --json` prints.
type result struct {
	Path, SHA256, BuildID string
}

var actionsRan = regexp.MustCompile(`(\d+) actions? ran`)

// build runs `factory build` and says how many actions ran.
func (r buildRun) build(t *testing.T, args ...string) (files []result, actions int) {
	t.Helper()
	for i, arg := range args {
		args[i] = "'" + arg + "'"
	}
	stdout, stderr := r.command(t, r.dir, "sh", "-c", "umask "+r.umask+" && exec bin/factory build --store store --output out --json --no-caches --progress plain "+strings.Join(args, " "))
	if err := json.Unmarshal(stdout, &files); err != nil || len(files) == 0 {
		t.Fatalf("reading the result %q: %v", stdout, err)
	}
	match := actionsRan.FindSubmatch(stderr)
	if match == nil {
		t.Fatalf("the build does not say how many actions ran:\n%s", stderr)
	}
	actions, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i].Path = filepath.Join(r.dir, files[i].Path)
	}
	return files, actions
}

// become makes dir the other user's, if there is one; the go command keeps its caches there.
func (r *buildRun) become(t *testing.T) {
	t.Helper()
	if r.uid == 0 {
		return
	}
	r.command(t, ".", "chown", "-R", strconv.Itoa(nobody), r.dir)
	for dir := filepath.Dir(r.dir); dir != filepath.Clean(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.env = append(r.env, "HOME="+r.dir, "GOCACHE="+filepath.Join(r.dir, ".gocache"), "GOMODCACHE="+filepath.Join(r.dir, ".gomodcache"), "GOFLAGS=-modcacherw")
	r.as = &syscall.Credential{Uid: r.uid, Gid: r.uid}
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

// everyKind names arguments of `factory build` that together make every kind, format and compression, and a customization with
// all there is. The paths in them are relative to the run's folder.
var everyKind = [][]string{
	{"metal"}, {"metal-4k"}, {"secureboot-metal"},
	{"metal", "--disk-format", "qcow2"}, {"metal", "--disk-format", "vhd"}, {"azure"}, {"vmware"}, {"metal", "--disk-format", "vmdk"},
	{"aws"}, {"digital-ocean"}, {"gcp"}, {"exoscale"}, {"hcloud", "--compression", "xz"},
	{"iso"}, {"secureboot-iso"}, {"metal-uki"}, {"pxe"}, {"installer"},
	{"nocloud", "--output-kind", "initramfs"}, {"metal", "--output-kind", "kernel"}, {"metal", "--output-kind", "cmdline"},
	{"openstack", "--extra-kernel-arg", "quiet", "--meta", "0x0c=one", "--meta", "0x0d=two", "--meta", "0x0a=three", "--system-extension-image", extensionFile},
	{"iso", "--platform", "opennebula", "--meta", "0x0c=one", "--meta", "0x0d=two", "--system-extension-image", extensionFile},
}

// compareKinds builds everything in both runs and compares it. Actions must have run in both.
func compareKinds(t *testing.T, first, second buildRun, common ...string) {
	t.Helper()
	var total [2]int
	for _, args := range everyKind {
		var sums [2]string
		for i, run := range []buildRun{first, second} {
			files, actions := run.build(t, append(append([]string{}, args...), common...)...)
			total[i] += actions
			for _, file := range files {
				sums[i] += filepath.Base(file.Path) + " " + hashFile(t, file) + "\n"
			}
		}
		if sums[0] != sums[1] {
			t.Errorf("factory build %q, twice:\n%s%s", args, sums[0], sums[1])
			continue
		}
		t.Logf("identical: %s", strings.TrimSpace(sums[0]))
	}
	if total[0] == 0 || total[1] == 0 {
		t.Errorf("%d actions ran in the first store, %d in the second: the comparison shows nothing", total[0], total[1])
	}
	t.Logf("%d actions ran in the first store, %d in the second", total[0], total[1])
}

// hashFile hashes a file, compares that with what the factory and the file beside it say, and takes it away.
func hashFile(t *testing.T, file result) string {
	t.Helper()
	f, err := os.Open(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		t.Fatal(err)
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	beside, err := os.ReadFile(file.Path + ".sha256")
	if err != nil {
		t.Fatal(err)
	}
	if want := sum + "  " + filepath.Base(file.Path) + "\n"; file.SHA256 != sum || string(beside) != want {
		t.Errorf("%s hashes to %s; the factory says %s, the file beside it %q", file.Path, sum, file.SHA256, beside)
	}
	if err := os.Remove(file.Path); err != nil {
		t.Fatal(err)
	}
	return sum
}

// extensionFile is where writeExtension leaves an extension, in a run's folder.
const extensionFile = "extension.tar"

// writeExtension makes a system extension as a tarball.
func writeExtension(t *testing.T, dir string) {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, file := range []struct{ name, text string }{
		{"manifest.yaml", "version: v1alpha1\nmetadata:\n  name: hello\n  version: v1.0.0\n  author: e2e\n  description: says hello\n  compatibility:\n    talos:\n      version: '>= v1.0.0'\n"},
		{"rootfs/usr/local/share/hello/hello.txt", "hello from an extension\n"},
	} {
		if err := w.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, file.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", "amd64", v1.Time{}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("extension:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(dir, extensionFile), tag, img); err != nil {
		t.Fatal(err)
	}
}
