package build

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// GCOptions say what may go. The zero value removes nothing but left-overs.
type GCOptions struct {
	MaxAge  time.Duration // remove what was not used for so long; 0 is any age
	MaxSize int64         // then remove the least recently used until no more bytes are left; 0 is any size
}

// GCReport says what went.
type GCReport struct {
	Removed, Kept           int // entries
	RemovedBytes, KeptBytes int64
}

// item is one removable thing of the store: the paths go together.
type item struct {
	used  time.Time
	paths []string
	bytes int64
}

// GC trims the store by last use. It returns ErrBusy, and removes nothing, while any other process or
// Store has the store open; so a running build never loses what it holds.
func (s *Store) GC(ctx context.Context, opts GCOptions) (GCReport, error) {
	var report GCReport
	if !s.running.TryLock() {
		return report, ErrBusy
	}
	defer s.running.Unlock()
	alone, err := tryFlock(s.lock, exclusive)
	if err != nil {
		return report, err
	}
	if !alone {
		// A failed conversion may have dropped the shared lock.
		return report, errors.Join(ErrBusy, waitFlock(ctx, s.lock, shared))
	}
	report, err = s.trim(ctx, opts)
	return report, errors.Join(err, waitFlock(ctx, s.lock, shared))
}

func (s *Store) trim(ctx context.Context, opts GCOptions) (GCReport, error) {
	var report GCReport
	if err := s.emptyTmp(); err != nil {
		return report, err
	}
	if err := s.emptyLocks(); err != nil {
		return report, err
	}
	items, err := s.items()
	if err != nil {
		return report, err
	}
	sort.SliceStable(items, func(i, j int) bool { return items[i].used.Before(items[j].used) })
	for _, it := range items {
		report.KeptBytes += it.bytes
	}
	report.Kept = len(items)
	s.mu.Lock()
	clear(s.verified)
	s.mu.Unlock()
	for _, it := range items {
		old := opts.MaxAge > 0 && time.Since(it.used) > opts.MaxAge
		big := opts.MaxSize > 0 && report.KeptBytes > opts.MaxSize
		if !old && !big {
			break
		}
		if err := ctx.Err(); err != nil {
			return report, err
		}
		for _, path := range it.paths {
			if err := removeTree(path); err != nil {
				return report, err
			}
		}
		report.Kept, report.Removed = report.Kept-1, report.Removed+1
		report.KeptBytes, report.RemovedBytes = report.KeptBytes-it.bytes, report.RemovedBytes+it.bytes
	}
	return report, nil
}

// keep marks as used what a cached step consists of. Its fetches are among that, though they were not
// needed: once gone, they may no longer be had anywhere. Trees can always be made again.
func (s *Store) keep(step *Step, outputs map[string]Blob) {
	for _, b := range outputs {
		touch(s.sealPath(b.Digest))
	}
	for _, in := range step.Inputs {
		if in.Fetch != nil {
			touch(s.sealPath(in.Fetch.Blob.Digest))
		}
	}
	for _, m := range step.Mounts {
		for _, f := range m.Tree.Fetches {
			touch(s.sealPath(f.Blob.Digest))
		}
	}
}

func (s *Store) emptyLocks() error {
	entries, err := os.ReadDir(s.path("locks"))
	for _, e := range entries {
		err = errors.Join(err, os.Remove(s.path("locks", e.Name())))
	}
	return err
}

// items lists the store: what it is, how large, and when it was last used.
func (s *Store) items() ([]item, error) {
	var items []item
	for _, table := range []string{"actions", "memo", "blobs"} {
		paths, err := filepath.Glob(s.path(table, "??", "*"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if strings.HasSuffix(path, ".seal") {
				continue
			}
			items = append(items, fileItem(path, path+".seal"))
		}
	}
	for _, table := range []string{"trees", "caches", "logs"} {
		entries, err := os.ReadDir(s.path(table))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			path := s.path(table, e.Name())
			if strings.HasSuffix(path, ".used") {
				continue
			}
			it := fileItem(path, path+".used")
			if e.IsDir() {
				it.bytes = treeBytes(path)
			}
			items = append(items, it)
		}
	}
	return items, nil
}

// fileItem is an entry with the file beside it that tells its last use; without that, its own time does.
func fileItem(path, beside string) item {
	it := item{paths: []string{path}}
	if info, err := os.Lstat(path); err == nil {
		it.used, it.bytes = info.ModTime(), info.Size()
	}
	if info, err := os.Lstat(beside); err == nil {
		it.used = info.ModTime()
		it.paths = append(it.paths, beside)
	}
	return it
}

func treeBytes(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // sizes only steer the trimming
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}
