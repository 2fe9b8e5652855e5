package sbom

import (
	"bytes"
	"crypto/sha1" // SPDX 2.3, 8.4: a file has one, whatever else it has
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/squashfs"
)

// Packed is a regular file of the root, as it was packed.
type Packed struct {
	SHA1, SHA256 string
	Main         Module   `json:",omitzero"` // of a Go program
	Modules      []Module `json:",omitempty"`
	Go           string   `json:",omitempty"` // the version of Go that compiled it
}

// Module is a Go module.
type Module struct{ Path, Version string }

// maxFile is far more than any file of the root, which are read one at a time.
const maxFile = 512 << 20

// ReadRoot reads every regular file of a squashfs.
func ReadRoot(f *os.File) (map[string]Packed, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	root, err := squashfs.Read(file.New(f, true), info.Size(), 0, 0)
	if err != nil {
		return nil, fmt.Errorf("reading squashfs: %w", err)
	}
	all := map[string]Packed{}
	return all, walk(root, ".", all)
}

func walk(root *squashfs.FileSystem, dir string, into map[string]Packed) error {
	entries, err := root.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading folder %s of the squashfs: %w", dir, err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			err = walk(root, name, into)
		case info.Mode().Type() == 0:
			into["/"+name], err = pack(root, name, info)
		}
		if err != nil {
			return fmt.Errorf("reading %s of the squashfs: %w", name, err)
		}
	}
	return nil
}

func pack(root *squashfs.FileSystem, name string, info fs.FileInfo) (Packed, error) {
	var text []byte
	if info.Size() > maxFile {
		return Packed{}, fmt.Errorf("cannot read a file of %d bytes: the limit is %d", info.Size(), maxFile)
	}
	if info.Size() > 0 {
		f, err := root.OpenFile(name, os.O_RDONLY)
		if err != nil {
			return Packed{}, err
		}
		defer f.Close()
		if text, err = io.ReadAll(io.LimitReader(f, maxFile)); err != nil {
			return Packed{}, err
		}
		if int64(len(text)) != info.Size() {
			return Packed{}, errors.New("it has not the size that its folder says")
		}
	}
	one, two := sha1.Sum(text), sha256.Sum256(text)
	p := Packed{SHA1: hex.EncodeToString(one[:]), SHA256: hex.EncodeToString(two[:])}
	program, err := buildinfo.Read(bytes.NewReader(text))
	if err != nil {
		return p, nil // no Go program
	}
	p.Go, p.Main = program.GoVersion, Module{program.Main.Path, program.Main.Version}
	for _, m := range program.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		p.Modules = append(p.Modules, Module{m.Path, m.Version})
	}
	return p, nil
}
