package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// storeSchema is the version of the store's layout; a store of another version is refused.
const storeSchema = "talos-factory store 1\n"

// Epoch is the modification time of every blob and of every file of a tree (1980, the first year that
// both zip and FAT can express): an action must not see when its inputs came to this machine.
var Epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// ErrMissing is returned by Open for a blob that the store does not have, or had in a
// damaged form that has now been thrown away.
var ErrMissing = errors.New("not in the store")

// ErrBusy is returned by GC when a build is using the store.
var ErrBusy = errors.New("a build is using the store")

// Store is the directory of everything the engine remembers:
//
//	actions/  ActionID -> the digests of its outputs
//	blobs/    sha256 -> bytes
//	trees/    Tree.ID -> a directory; disposable
//	memo/     what Remember remembers
//	logs/     the last log of each step
//	caches/   mutable directories of steps
//	locks/    one file per running action or tree being made
//	tmp/      what is being written; emptied when nobody else uses the store
//
// Several processes may use one store. Whoever has it open holds a shared flock, and GC needs the
// exclusive one, so nothing vanishes under a build. Every file appears by rename, so a process may
// be killed at any time. It is NOT safe on a network file system, where flock and rename mean less.
type Store struct {
	dir  string
	lock *os.File

	bytesRead atomic.Int64
	running   sync.RWMutex // read-locked by builds of this process, which share our flock

	mu       sync.Mutex
	verified map[Digest]stamp // blobs whose content this process may trust
}

// OpenStore opens the store in dir, which it makes; "" is talos-factory in the user's cache folder.
func OpenStore(dir string) (*Store, error) {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("finding the cache folder: %w", err)
		}
		dir = filepath.Join(cache, "talos-factory")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, verified: map[Digest]stamp{}}
	for _, sub := range []string{"actions", "blobs", "trees", "memo", "logs", "caches", "locks", "tmp"} {
		if err := os.MkdirAll(s.path(sub), 0o755); err != nil {
			return nil, fmt.Errorf("opening the store: %w", err)
		}
	}
	if s.lock, err = os.OpenFile(s.path("lock"), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	if err := s.begin(); err != nil {
		s.lock.Close()
		return nil, fmt.Errorf("opening the store %s: %w", dir, err)
	}
	return s, nil
}

// begin takes the shared lock. Whoever finds the store unused sweeps up what killed processes left.
func (s *Store) begin() error {
	alone, err := tryFlock(s.lock, exclusive)
	if err != nil {
		return err
	}
	if alone {
		if err := s.emptyTmp(); err != nil {
			return err
		}
	}
	if err := waitFlock(context.Background(), s.lock, shared); err != nil {
		return err
	}
	got, err := os.ReadFile(s.path("version"))
	if errors.Is(err, os.ErrNotExist) {
		return s.writeFile(s.path("version"), []byte(storeSchema))
	}
	if err != nil {
		return err
	}
	if string(got) != storeSchema {
		return fmt.Errorf("cannot use it: its version is %q, this program knows %q", got, storeSchema)
	}
	return nil
}

// Close ends the use of the store; GC may then take what it likes.
func (s *Store) Close() error { return s.lock.Close() }

// Dir is where the store lies.
func (s *Store) Dir() string { return s.dir }

// BytesRead is the sum of the sizes of the blobs that Open opened: an upper bound of what was read.
// Tests hold planning to it.
func (s *Store) BytesRead() int64 { return s.bytesRead.Load() }

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// entry is the path of a thing in one of the tables, spread over 256 folders.
func (s *Store) entry(table string, d Digest) string {
	hex := d.String()
	return s.path(table, hex[:2], hex)
}

func (s *Store) emptyTmp() error {
	entries, err := os.ReadDir(s.path("tmp"))
	for _, e := range entries {
		err = errors.Join(err, removeTree(s.path("tmp", e.Name())))
	}
	return err
}
