//go:build linux

package containers

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const program = `package main

import ("bufio"; "fmt"; "os")

func main() {
	if len(os.Args) > 1 && os.Args[1] == "echo" {
		s := bufio.NewScanner(os.Stdin)
		for s.Scan() { fmt.Println("got", s.Text()) }
		return
	}
	fmt.Println("hello", os.Getenv("WHO"), len(os.Args))
	fmt.Fprintln(os.Stderr, "pid", os.Getpid())
	os.Exit(7)
}
`

// archive makes an image archive with one static program in it.
func archive(t *testing.T) []byte {
	t.Helper()

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "hello"), filepath.Join(dir, "main.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	binary, err := os.ReadFile(filepath.Join(dir, "hello"))
	if err != nil {
		t.Fatal(err)
	}

	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: "hello", Mode: 0o755, Size: int64(len(binary))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(binary); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: "amd64", OS: "linux", Config: v1.Config{Entrypoint: []string{"/hello"}}, RootFS: must(img.ConfigFile()).RootFS,
	})
	if err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer
	if err := tarball.Write(name.MustParseReference("example.org/hello:v1"), img, &out); err != nil {
		t.Fatal(err)
	}

	return out.Bytes()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}

	return v
}

// start runs a containerd of its own.
func start(t *testing.T) *Client {
	t.Helper()

	if _, err := exec.LookPath("containerd"); err != nil || os.Getuid() != 0 {
		t.Skip("there is no containerd here, or we are not root; the smoke boots run one")
	}

	dir := must(os.MkdirTemp("", "containerd"))
	t.Cleanup(func() { os.RemoveAll(dir) })

	config := `version = 2
root = "` + dir + `/root"
state = "` + dir + `/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "` + dir + `/sock"
[ttrpc]
  address = "` + dir + `/sock.ttrpc"
`
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command("containerd", "--config", filepath.Join(dir, "config.toml"))
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})

	c := New(filepath.Join(dir, "sock"))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := c.Healthy(t.Context())
		if err == nil {
			return c
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestImportAndRun(t *testing.T) {
	c := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	imported, err := c.Import(ctx, System, bytes.NewReader(archive(t)))
	if err != nil {
		t.Fatal(err)
	}
	if want := "example.org/hello:v1"; imported != want {
		t.Errorf("got %s, want %s", imported, want)
	}

	images, err := c.Images(ctx, System)
	if err != nil || len(images) != 1 || images[0].Name != imported || images[0].Size == 0 {
		t.Errorf("images: got %+v, %v", images, err)
	}

	var out, errOut bytes.Buffer
	code, err := c.Run(ctx, Job{
		Namespace: System, Image: imported, Env: map[string]string{"WHO": "world"}, Privileged: true, Stdout: &out, Stderr: &errOut,
	})
	if err != nil || code != 7 || out.String() != "hello world 1\n" {
		t.Errorf("run: got %d, %v, %q, %q", code, err, out.String(), errOut.String())
	}
	if strings.TrimSpace(errOut.String()) == "pid 1" {
		t.Error("a privileged container has a process namespace of its own")
	}

	out.Reset()
	if code, err = c.Run(ctx, Job{
		Namespace: System, Image: imported, Args: []string{"/hello", "echo"}, Privileged: true, Stdin: strings.NewReader("a\nb\n"), Stdout: &out, Stderr: &errOut,
	}); err != nil || code != 0 || out.String() != "got a\ngot b\n" {
		t.Errorf("echo: got %d, %v, %q", code, err, out.String())
	}

	list, err := c.List(ctx, System)
	if err != nil || len(list) != 0 {
		t.Errorf("containers left: %+v, %v", list, err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	c := start(t)
	imported, err := c.Import(t.Context(), System, bytes.NewReader(archive(t)))
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	stdin, write := io.Pipe()
	defer write.Close()

	done := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, Job{Namespace: System, Image: imported, Args: []string{"/hello", "echo"}, Stdin: stdin, Stdout: io.Discard, Stderr: io.Discard})
		done <- err
	}()

	for {
		list, err := c.List(t.Context(), System)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 && list[0].Status == "RUNNING" && list[0].PID != 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	cancel()

	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the container outlived its caller")
	}
	if list, err := c.List(t.Context(), System); err != nil || len(list) != 0 {
		t.Errorf("containers left: %+v, %v", list, err)
	}
}
