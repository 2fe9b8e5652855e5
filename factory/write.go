package factory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
)

// Artifact is a finished file.
type Artifact struct {
	Path    string       `json:"path"`
	Size    int64        `json:"size"`
	SHA256  build.Digest `json:"sha256"`
	Version string       `json:"version"`
	BuildID string       `json:"buildID"`
	Kind    string       `json:"kind"`

	Extensions []UsedExtension `json:"extensions,omitempty"`
	Unchanged  bool            `json:"unchanged"` // the file was there already, as this or an earlier run wrote it
}

// blobSource lets a plan read the store.
type blobSource struct{ store *build.Store }

func (s blobSource) OpenBlob(digest [32]byte) (extent.ReaderAtCloser, error) {
	return s.store.Open(build.Digest(digest))
}

// Blobs is the store as plans read it.
func Blobs(store *build.Store) extent.Source { return blobSource{store} }

// writer writes plans as files and remembers, in the store, what it wrote where.
type writer struct{ store *build.Store }

// write makes path hold the plan's bytes, whole or not at all. A file that this store knows to
// be the same already, and that nobody has touched since, is left alone.
func (w writer) write(ctx context.Context, path string, plan *extent.Plan) (Artifact, error) {
	id, err := planID(plan)
	if err != nil {
		return Artifact{}, err
	}
	artifact := Artifact{Path: path, Size: plan.Size()}
	if artifact.SHA256, err = w.checksum(ctx, id, plan); err != nil {
		return Artifact{}, fmt.Errorf("hashing image: %w", err)
	}
	artifact.Unchanged, err = w.update(ctx, path, id, plan)
	if err != nil {
		return Artifact{}, err
	}
	sum := extent.FromBytes(fmt.Appendf(nil, "%s  %s\n", artifact.SHA256, filepath.Base(path)))
	sumID, err := planID(sum)
	if err != nil {
		return Artifact{}, err
	}
	_, err = w.update(ctx, path+".sha256", sumID, sum)
	return artifact, err
}

// update writes the file, unless it is there already as this store wrote it.
func (w writer) update(ctx context.Context, path string, id build.Digest, plan *extent.Plan) (unchanged bool, err error) {
	if w.wrote(path, id) {
		return true, nil
	}
	if err := writeWhole(ctx, path, plan, blobSource(w)); err != nil {
		return false, fmt.Errorf("writing %s: %w", path, err)
	}
	if err := w.note(path, id); err != nil {
		return false, fmt.Errorf("remembering %s: %w", path, err)
	}
	return false, nil
}

// planID hashes a plan's extents, so that two plans of one ID have the same bytes.
func planID(plan *extent.Plan) (build.Digest, error) {
	text, err := json.Marshal(struct {
		Size    int64
		Extents []extent.Extent
	}{plan.Size(), plan.Extents()})
	return build.Sum(text), err
}

// checksum is the SHA-256 of the whole file; it reads every byte once and is remembered.
func (w writer) checksum(ctx context.Context, id build.Digest, plan *extent.Plan) (build.Digest, error) {
	sum, err := w.store.Remember("sha256 of a plan 1", id, func() ([]byte, error) {
		reader := plan.NewReader(blobSource(w))
		defer reader.Close()
		hash := sha256.New()
		if _, err := io.CopyBuffer(hash, interruptible{ctx, reader}, make([]byte, 1<<20)); err != nil {
			return nil, err
		}
		return hash.Sum(nil), nil
	})
	if err != nil {
		return build.Digest{}, err
	}
	if len(sum) != sha256.Size {
		return build.Digest{}, fmt.Errorf("internal error: remembered checksum has %d bytes", len(sum))
	}
	return build.Digest(sum), nil
}

type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i interruptible) Read(b []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(b)
}

// writeWhole writes to a file without a name (O_TMPFILE), so that not even a killed process leaves a part of an image
// behind. A file system that knows no such files (overlayfs, NFS) gets a hidden one instead.
func writeWhole(ctx context.Context, path string, plan *extent.Plan, source extent.Source) (err error) {
	hidden := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d", filepath.Base(path), os.Getpid()))
	if err := os.Remove(hidden); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a dead process of our number
		return err
	}
	file, err := os.OpenFile(filepath.Dir(path), os.O_RDWR|unix.O_TMPFILE, 0o644)
	named := err != nil
	if named {
		file, err = os.OpenFile(hidden, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	}
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			_ = os.Remove(hidden) // it may have no name yet
		}
	}()
	if err := errors.Join(plan.WriteSparse(ctx, file, source), file.Chmod(0o644), file.Sync()); err != nil {
		return err
	}
	if !named {
		unnamed := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
		if err := unix.Linkat(unix.AT_FDCWD, unnamed, unix.AT_FDCWD, hidden, unix.AT_SYMLINK_FOLLOW); err != nil {
			return fmt.Errorf("naming the file: %w", err)
		}
	}
	return os.Rename(hidden, path)
}

// written identifies a file's content as long as nobody writes to it.
type written struct {
	Plan   build.Digest
	Inode  uint64
	Change int64 // ctime, nanoseconds
	Size   int64
}

func stamp(path string, id build.Digest) (written, error) {
	info, err := os.Stat(path)
	if err != nil {
		return written{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return written{}, errors.New("internal error: no stat of the file")
	}
	return written{Plan: id, Inode: stat.Ino, Change: stat.Ctim.Nano(), Size: stat.Size}, nil
}

// notePath is where the store keeps what was written to a path.
func (w writer) notePath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.Join(w.store.Dir(), "written", build.Sum([]byte(abs)).String()), nil
}

func (w writer) wrote(path string, id build.Digest) bool {
	note, err := w.notePath(path)
	if err != nil {
		return false
	}
	text, err := os.ReadFile(note)
	if err != nil {
		return false
	}
	var then written
	if json.Unmarshal(text, &then) != nil {
		return false
	}
	now, err := stamp(path, id)
	return err == nil && now == then
}

func (w writer) note(path string, id build.Digest) error {
	now, err := stamp(path, id)
	if err != nil {
		return err
	}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	note, err := w.notePath(path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(note), 0o700); err != nil {
		return err
	}
	return os.WriteFile(note, text, 0o600) // a torn note reads as no note
}
