package debian

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// alternatives are the links that maintainer scripts would make through update-alternatives; the first
// target that exists wins, which is the one with Debian's higher priority.
var alternatives = []struct {
	link    string
	targets []string
}{
	{"usr/bin/awk", []string{"gawk", "mawk", "original-awk"}},
	{"usr/bin/nawk", []string{"gawk", "mawk", "original-awk"}},
	{"usr/bin/cc", []string{"gcc", "clang"}},
	{"usr/bin/c++", []string{"g++", "clang++"}},
	{"usr/bin/c89", []string{"c89-gcc"}},
	{"usr/bin/c99", []string{"c99-gcc"}},
	{"usr/bin/yacc", []string{"bison.yacc"}},
	{"usr/bin/lex", []string{"flex"}},
	{"usr/bin/pager", []string{"less", "/bin/more"}},
	{"usr/bin/which", []string{"which.debianutils"}},
	{"usr/bin/sh", []string{"dash", "bash"}},
}

// Finish does for an unpacked tree what maintainer scripts would have done and tools rely on: the alternatives and
// the bundle of CA certificates. There is no ld.so.cache: libraries are in the
// loader's built-in multiarch folders.
func Finish(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, a := range alternatives {
		if err := link(root, a.link, a.targets); err != nil {
			return fmt.Errorf("making %s: %w", a.link, err)
		}
	}
	if err := caBundle(root); err != nil {
		return fmt.Errorf("making the CA bundle: %w", err)
	}
	return nil
}

func link(root *os.Root, name string, targets []string) error {
	if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, t := range targets {
		at := path.Join(path.Dir(name), t)
		if path.IsAbs(t) {
			at = t[1:]
		}
		if _, err := root.Lstat(at); err == nil {
			return root.Symlink(t, name)
		}
	}
	return nil
}

// caBundle joins Mozilla's certificates as update-ca-certificates does, in the order of their names.
func caBundle(root *os.Root) error {
	names, err := fs.Glob(root.FS(), "usr/share/ca-certificates/mozilla/*.crt")
	if err != nil || len(names) == 0 {
		return err
	}
	var bundle bytes.Buffer
	for _, name := range names {
		pem, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		bundle.Write(bytes.TrimSpace(pem))
		bundle.WriteByte('\n')
	}
	if err := root.MkdirAll("etc/ssl/certs", 0o755); err != nil {
		return err
	}
	return root.WriteFile("etc/ssl/certs/ca-certificates.crt", bundle.Bytes(), 0o644)
}
