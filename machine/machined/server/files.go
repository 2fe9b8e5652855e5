//go:build linux

package server

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-factory/talos-factory/api/common"
	"github.com/talos-factory/talos-factory/api/machine"
)

// Read streams a regular file. Others are refused: a read of a device or pipe may never end, or do something.
func (s *server) Read(req *machine.ReadRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	name := req.GetPath()
	if !filepath.IsAbs(name) {
		return status.Errorf(codes.InvalidArgument, "cannot read %q: the path is not absolute", name)
	}

	info, err := os.Stat(name)

	switch {
	case err != nil:
		return fileError(err)
	case !info.Mode().IsRegular():
		return status.Errorf(codes.InvalidArgument, "cannot read %s: it is not a regular file", name)
	}

	f, err := os.Open(name)
	if err != nil {
		return fileError(err)
	}
	defer f.Close()

	_, err = io.CopyBuffer(chunks{stream}, struct{ io.Reader }{f}, make([]byte, chunk))

	return err
}

func fileError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, fs.ErrPermission):
		return status.Error(codes.PermissionDenied, err.Error())
	default:
		return status.Error(codes.Unknown, err.Error())
	}
}

// List streams the entries of a directory, or the file itself if it is none.
func (s *server) List(req *machine.ListRequest, stream grpc.ServerStreamingServer[machine.FileInfo]) error {
	root := req.GetRoot()
	if root == "" {
		root = "/"
	}

	if !filepath.IsAbs(root) {
		return status.Errorf(codes.InvalidArgument, "cannot list %q: the path is not absolute", root)
	}

	root = filepath.Clean(root)
	if _, err := os.Lstat(root); err != nil {
		return fileError(err)
	}

	if target, err := filepath.EvalSymlinks(root); err == nil {
		root = target
	}

	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, walkErr error) error {
		if err := stream.Context().Err(); err != nil {
			return err
		}

		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}

		if walkErr != nil { // said of a directory after its own line: it cannot be read
			return stream.Send(&machine.FileInfo{Name: name, RelativeName: relative, Error: walkErr.Error()})
		}

		if wanted(req.GetTypes(), entry.Type()) {
			if err := stream.Send(fileInfo(name, relative, entry)); err != nil {
				return err
			}
		}

		if entry.IsDir() && atLimit(req, relative) {
			return fs.SkipDir
		}

		return nil
	})
}

// atLimit says whether a directory's entries are no more to be listed.
func atLimit(req *machine.ListRequest, relative string) bool {
	if relative == "." {
		return false
	}

	depth := strings.Count(relative, "/") + 1

	return !req.GetRecurse() || req.GetRecursionDepth() > 0 && depth >= int(req.GetRecursionDepth())
}

func wanted(types []machine.ListRequest_Type, mode fs.FileMode) bool {
	if len(types) == 0 {
		return true
	}

	switch {
	case mode.IsRegular():
		return slices.Contains(types, machine.ListRequest_REGULAR)
	case mode.IsDir():
		return slices.Contains(types, machine.ListRequest_DIRECTORY)
	case mode&fs.ModeSymlink != 0:
		return slices.Contains(types, machine.ListRequest_SYMLINK)
	default:
		return false
	}
}

func fileInfo(name, relative string, entry fs.DirEntry) *machine.FileInfo {
	out := &machine.FileInfo{Name: name, RelativeName: relative, IsDir: entry.IsDir()}

	info, err := entry.Info()
	if err != nil {
		out.Error = err.Error()

		return out
	}

	out.Size, out.Mode, out.Modified = info.Size(), uint32(info.Mode()), info.ModTime().Unix()

	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		out.Uid, out.Gid = st.Uid, st.Gid
	}

	if info.Mode()&fs.ModeSymlink != 0 {
		if out.Link, err = os.Readlink(name); err != nil {
			out.Error = err.Error()
		}
	}

	return out
}
