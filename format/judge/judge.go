// Package judge runs a foreign reader (sgdisk, fsck.vfat, mdir ...) on files that a test wrote. It is support for
// tests with the build tag judge and is imported by nothing else.
//
// The readers are pinned packages: FACTORY_JUDGES names the root of their tree, which `make test` sets. A reader is
// run through the tree's own dynamic loader, so it needs nothing of the host; it is not confined. Without the
// tree a test fails: judges are never skipped.
package judge

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Run runs argv in a fresh empty folder, fails the test if it cannot or if its exit status is not 0, and returns
// what it printed (both streams). Files are host paths of what the reader is to look at; each occurrence of its
// base name in argv as a word of its own is replaced by the path, and files not named so are appended to argv.
func Run(t testing.TB, argv []string, files ...string) string {
	t.Helper()
	out, err := Try(t, argv, files...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

// Try is Run for readers that are expected to complain: it returns their exit status as an error.
func Try(t testing.TB, argv []string, files ...string) (string, error) {
	t.Helper()
	root := os.Getenv("FACTORY_JUDGES")
	if root == "" {
		t.Fatal("cannot run a foreign reader: FACTORY_JUDGES is not set\nhint: run `make test`, which makes the tree of pinned readers and sets it")
	}
	cmd, err := command(root, argv[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args = append(cmd.Args, place(argv[1:], files)...)
	cmd.Dir = t.TempDir()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

// place puts the files' paths into args.
func place(args, files []string) []string {
	args = append([]string(nil), args...)
	for _, file := range files {
		found := false
		for i, a := range args {
			if a == filepath.Base(file) {
				args[i], found = file, true
			}
		}
		if !found {
			args = append(args, file)
		}
	}
	return args
}

// command is how a program of the tree is started: its loader with the tree's libraries, and for Python scripts
// the tree's interpreter with its own home.
func command(root, name string) (*exec.Cmd, error) {
	path, err := find(root, name)
	if err != nil {
		return nil, err
	}
	loader, libs := filepath.Join(root, "lib64/ld-linux-x86-64.so.2"), filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	if runtime.GOARCH == "arm64" {
		loader, libs = filepath.Join(root, "lib/ld-linux-aarch64.so.1"), filepath.Join(root, "usr/lib/aarch64-linux-gnu")
	}
	env := []string{"LC_ALL=C", "TZ=UTC", "SYSTEMD_COLORS=0"}
	args := []string{"--library-path", libs}
	if isPython(path) {
		python, err := find(root, "python3")
		if err != nil {
			return nil, err
		}
		env = append(env, "PYTHONHOME="+filepath.Join(root, "usr"), "PYTHONDONTWRITEBYTECODE=1",
			"PYTHONPATH="+filepath.Join(root, "usr/lib/python3/dist-packages"))
		args = append(args, python)
	}
	cmd := exec.Command(loader, append(args, path)...)
	cmd.Env = env
	return cmd, nil
}

func find(root, name string) (string, error) {
	for _, dir := range []string{"usr/sbin", "usr/bin", "sbin", "bin", "usr/lib/systemd"} {
		path := filepath.Join(root, dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", errors.New("cannot find " + name + " in " + root + "\nhint: is its package in the judges' recipe?")
}

func isPython(path string) bool {
	b, err := os.ReadFile(path)
	line, _, _ := bytes.Cut(b[:min(len(b), 128)], []byte("\n"))
	return err == nil && bytes.HasPrefix(line, []byte("#!")) && bytes.Contains(line, []byte("python"))
}
