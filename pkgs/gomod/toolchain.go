// Package gomod turns Go modules into trees a sandbox can build from: the toolchain, vendored
// dependencies, and the list of source files a command of ours is made of.
//
// Whatever needs the network is left to the host's own go command, with the host's proxy settings. The
// package compiles nothing and resolves no versions: go.mod and go.sum say everything.
package gomod

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
)

// Download is what the host's go command says of a module in its cache.
type Download struct {
	Zip, Sum string
	Error    string
}

// Fetch has the host's go command download a module's zip and returns where it is.
func Fetch(ctx context.Context, module, version string) (*Download, error) {
	dir, err := os.MkdirTemp("", "gomod-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out, err := goCommand(ctx, dir, nil, "mod", "download", "-json", module+"@"+version)
	var d Download
	if jsonErr := json.Unmarshal(out, &d); jsonErr != nil && err == nil {
		err = jsonErr
	}
	if d.Error != "" {
		err = errors.New(d.Error)
	}
	if err != nil {
		return nil, fmt.Errorf("downloading %s@%s with the host's go command: %w", module, version, err)
	}
	return &d, nil
}

// goCommand runs the host's go command outside of any workspace, with additions to its environment.
func goCommand(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// The host's own flags stay out, from the environment or "go env -w": -overlay would change what a pinned tree holds.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	cmd.Env = append(cmd.Env, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && stderr.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, err
}

// UnpackToolchain puts the toolchain's zip under usr/local/go of the directory.
func UnpackToolchain(zipFile *os.File, dir string) error {
	st, err := zipFile.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(zipFile, st.Size())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path.Join(dir, "usr/local/go"), 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(path.Join(dir, "usr/local/go"))
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range z.File {
		// "golang.org/toolchain@version/bin/go": the module's prefix has one slash.
		parts := strings.SplitN(f.Name, "/", 3)
		if len(parts) != 3 || parts[2] == "" || strings.HasSuffix(f.Name, "/") {
			continue
		}
		if err := unzip(root, f, parts[2]); err != nil {
			return fmt.Errorf("unpacking %s: %w", f.Name, err)
		}
	}
	return nil
}

// unzip writes one file. A module's zip cannot say what is executable nor hold a nested go.mod, so
// the toolchain's has _go.mod, and the go command restores both when it uses one.
func unzip(root *os.Root, f *zip.File, name string) error {
	mode := os.FileMode(0o644)
	if strings.HasPrefix(name, "bin/") || strings.HasPrefix(name, "pkg/tool/") {
		mode = 0o755
	}
	if path.Base(name) == "_go.mod" {
		name = path.Join(path.Dir(name), "go.mod")
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
