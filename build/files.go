package build

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// writeFile makes the file whole or not at all. It does not sync: it is for small files
// whose readers notice damage by themselves.
func (s *Store) writeFile(path string, content []byte) (err error) {
	f, err := os.CreateTemp(s.path("tmp"), "file-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(content); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return renameInto(f.Name(), path)
}

// renameInto renames, making the directory of the target if need be.
func renameInto(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		err = os.Rename(from, to)
	}
	return err
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// touch marks a file as used now. Once an hour is enough for trimming by last use,
// and keeps a warm build from writing.
func touch(path string) {
	info, err := os.Stat(path)
	if err != nil || time.Since(info.ModTime()) < time.Hour {
		return
	}
	now := time.Now()
	// Not being able to is no reason to stop: the entry only looks older than it is.
	_ = os.Chtimes(path, now, now)
}

// removeTree removes a directory whose folders may lack write permission, as a
// step may leave them; os.RemoveAll gives up there unless it is root.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d == nil || !d.IsDir() {
			return nil
		}
		if err != nil {
			return fs.SkipDir // unreadable even after chmod; RemoveAll below says so
		}
		return os.Chmod(path, 0o700)
	})
	return os.RemoveAll(dir)
}

type lockKind int

const (
	shared    lockKind = unix.LOCK_SH
	exclusive lockKind = unix.LOCK_EX
)

func tryFlock(f *os.File, kind lockKind) (bool, error) {
	err := unix.Flock(int(f.Fd()), int(kind)|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// waitFlock waits for the lock. When ctx ends first, the waiting thread is left
// behind with f and closes it when its turn comes.
func waitFlock(ctx context.Context, f *os.File, kind lockKind) error {
	if ok, err := tryFlock(f, kind); ok || err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		for {
			err := unix.Flock(int(f.Fd()), int(kind))
			if !errors.Is(err, unix.EINTR) {
				done <- err
				break
			}
		}
		if ctx.Err() != nil {
			f.Close()
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lockEntry excludes every other process and goroutine from the action or tree of that digest.
// waiting is called when somebody else has it.
func (s *Store) lockEntry(ctx context.Context, d Digest, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(s.path("locks", d.String()), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	ok, err := tryFlock(f, exclusive)
	if err == nil && !ok {
		waiting()
		err = waitFlock(ctx, f, exclusive)
		if err != nil && ctx.Err() != nil {
			return nil, err // the waiter owns f now
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
