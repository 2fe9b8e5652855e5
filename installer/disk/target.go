//go:build linux

package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// target is the disk: a block device, a file in its place, or a file that is in the making.
type target struct {
	file   *os.File
	device bool
	size   int64
	sector int
	path   string // where a file in the making goes; "" otherwise
}

// openTarget opens a disk for itself alone. A file that does not exist is made, of size bytes, under a hidden name until
// finish.
func openTarget(path string, size int64) (*target, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && size > 0:
		return newFile(path, size)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cannot install on %s: there is no such disk\nhint: --size makes a disk in a plain file", path)
	case err != nil:
		return nil, err
	case info.Mode().IsRegular():
		return existingFile(path, info.Size(), size)
	case info.Mode().Type() == fs.ModeDevice:
		return blockDevice(path, info)
	}
	return nil, fmt.Errorf("cannot install on %s: it is neither a disk nor a plain file", path)
}

func newFile(path string, size int64) (*target, error) {
	hidden := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d", filepath.Base(path), os.Getpid()))
	file, err := os.OpenFile(hidden, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("making %s: %w", path, err)
	}
	t := &target{file: file, size: size, sector: 512, path: path}
	if err := file.Truncate(size); err != nil {
		return nil, errors.Join(fmt.Errorf("making %s: %w", path, err), t.close())
	}
	return t, nil
}

func existingFile(path string, has, size int64) (*target, error) {
	if size != 0 && size != has {
		return nil, fmt.Errorf("cannot make %s of %d bytes: it is there already, with %d", path, size, has)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot install on %s: another program has it locked", path), file.Close())
	}
	return &target{file: file, size: has, sector: 512}, nil
}

// blockDevice opens a whole disk. O_EXCL is refused by the kernel as long as anything holds the disk or a partition of it: a
// mount in any namespace, swap, RAID, device mapper (open(2)).
func blockDevice(path string, info fs.FileInfo) (*target, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, errors.New("internal error: no stat of the device")
	}
	class := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	if _, err := os.Stat(filepath.Join(class, "partition")); err == nil {
		return nil, fmt.Errorf("cannot install on %s: it is a partition\nhint: name the whole disk", path)
	}
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_EXCL, 0)
	switch {
	case errors.Is(err, syscall.EBUSY):
		return nil, fmt.Errorf("cannot install on %s: it is in use (a partition is mounted, or it belongs to a RAID or a volume group)", path)
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("cannot install on %s: it cannot be written to: %w", path, err)
	case err != nil:
		return nil, err
	}
	t := &target{file: file, device: true}
	if err := t.measure(); err != nil {
		return nil, errors.Join(fmt.Errorf("measuring %s: %w", path, err), t.close())
	}
	return t, nil
}

func (t *target) measure() (err error) {
	if t.sector, err = unix.IoctlGetInt(int(t.file.Fd()), unix.BLKSSZGET); err != nil {
		return err
	}
	t.size, err = t.file.Seek(0, io.SeekEnd)
	return err
}

// zero makes n bytes zeros, without writing them where the device or the file system can do that.
func (t *target) zero(off, n int64) error {
	fd := int(t.file.Fd())
	if t.device && off%int64(t.sector) == 0 && n%int64(t.sector) == 0 {
		// BLKZEROOUT (linux/fs.h) takes offset and length; the kernel writes zeros if the device has no command for it.
		if err := ioctlRange(fd, unix.BLKZEROOUT, off, n); err == nil {
			return nil
		}
	}
	if !t.device && unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n) == nil {
		return nil
	}
	zeros := make([]byte, min(n, chunk))
	for n > 0 {
		m := min(n, chunk)
		if _, err := t.file.WriteAt(zeros[:m], off); err != nil {
			return err
		}
		off, n = off+m, n-m
	}
	return nil
}

// forget makes the kernel read from the disk what it is asked for next, not from memory.
func (t *target) forget() error {
	fd := int(t.file.Fd())
	if t.device {
		return unix.IoctlSetInt(fd, unix.BLKFLSBUF, 0)
	}
	return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
}

// reread makes partitions of the new table appear. Whoever looks at new devices (the kernel's own scan) may be in the way for a moment.
func (t *target) reread() (err error) {
	if !t.device {
		return nil
	}
	for range 20 {
		if err = unix.IoctlSetInt(int(t.file.Fd()), unix.BLKRRPART, 0); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// finish gives a file in the making its name, unless somebody made one of that name meanwhile.
func (t *target) finish() error {
	if t.path == "" {
		return nil
	}
	if err := os.Link(t.file.Name(), t.path); err != nil { // unlike a rename, it never replaces
		return err
	}
	dir, err := os.Open(filepath.Dir(t.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// close takes away the hidden name of a file in the making.
func (t *target) close() error {
	err := t.file.Close()
	if t.path != "" {
		err = errors.Join(err, os.Remove(t.file.Name()))
	}
	return err
}
