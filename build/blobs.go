package build

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stamp is what a file looked like when its content was last hashed. ctime cannot be set
// back by a program, so a blob with the same stamp was not written to since.
// What a stamp cannot see is a disk that returns other bytes than were written.
type stamp struct {
	inode               uint64
	mtime, ctime, bytes int64
}

func stampOf(f *os.File) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return stamp{}, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return stamp{st.Ino, st.Mtim.Nano(), st.Ctim.Nano(), st.Size}, nil
}

func (st stamp) text() []byte {
	return fmt.Appendf(nil, "%d %d %d %d\n", st.inode, st.mtime, st.ctime, st.bytes)
}

// Open opens a blob for reading, after making sure that it is what its name says: by
// its stamp if it was hashed before, else by hashing. The error is ErrMissing if there is none.
func (s *Store) Open(d Digest) (*os.File, error) {
	f, st, err := s.open(d)
	if err != nil {
		return nil, err
	}
	s.bytesRead.Add(st.bytes)
	return f, nil
}

// Has reports whether the store has the blob, whole.
func (s *Store) Has(b Blob) bool {
	f, st, err := s.open(b.Digest)
	if err != nil {
		return false
	}
	f.Close()
	return st.bytes == b.Size
}

func (s *Store) open(d Digest) (*os.File, stamp, error) {
	f, err := os.Open(s.entry("blobs", d))
	if errors.Is(err, os.ErrNotExist) {
		return nil, stamp{}, fmt.Errorf("opening blob %s: %w", d, ErrMissing)
	}
	if err != nil {
		return nil, stamp{}, err
	}
	st, err := s.verify(f, d)
	if err != nil {
		f.Close()
		return nil, stamp{}, err
	}
	return f, st, nil
}

// verify makes sure that f is blob d and leaves its offset at the start.
func (s *Store) verify(f *os.File, d Digest) (stamp, error) {
	st, err := stampOf(f)
	if err != nil {
		return st, err
	}
	s.mu.Lock()
	known := s.verified[d] == st
	s.mu.Unlock()
	if known {
		return st, nil
	}
	seal := s.sealPath(d)
	if text, err := os.ReadFile(seal); err == nil && bytes.Equal(text, st.text()) {
		s.trust(d, st)
		touch(seal)
		return st, nil
	}
	if err := s.rehash(f, d); err != nil {
		return st, err
	}
	s.trust(d, st)
	return st, s.writeFile(seal, st.text())
}

// rehash throws the blob away if it is damaged.
func (s *Store) rehash(f *os.File, d Digest) error {
	h := sha256.New()
	n, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<62))
	if err != nil {
		return fmt.Errorf("reading blob %s: %w", d, err)
	}
	if got := Digest(h.Sum(nil)); got != d {
		err := fmt.Errorf("opening blob %s: its %d bytes now hash to %s: %w", d, n, got, ErrMissing)
		return errors.Join(err, s.dropBlob(d))
	}
	return nil
}

func (s *Store) dropBlob(d Digest) error {
	s.mu.Lock()
	delete(s.verified, d)
	s.mu.Unlock()
	return errors.Join(ignoreMissing(os.Remove(s.sealPath(d))), ignoreMissing(os.Remove(s.entry("blobs", d))))
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (s *Store) trust(d Digest, st stamp) {
	s.mu.Lock()
	s.verified[d] = st
	s.mu.Unlock()
}

// sealPath is the file beside a blob that holds its stamp. Its own modification
// time is the blob's last use, since the blob's own is always Epoch.
func (s *Store) sealPath(d Digest) string { return s.entry("blobs", d) + ".seal" }

// Put stores what r yields.
func (s *Store) Put(r io.Reader) (Blob, error) {
	w, err := s.create()
	if err != nil {
		return Blob{}, err
	}
	defer w.discard()
	if _, err := io.Copy(w, r); err != nil {
		return Blob{}, fmt.Errorf("storing a blob: %w", err)
	}
	return w.commit()
}

// PutExact stores what r yields if it is the blob, and nothing otherwise.
func (s *Store) PutExact(r io.Reader, want Blob) error {
	w, err := s.create()
	if err != nil {
		return err
	}
	defer w.discard()
	// One byte more than wanted is enough to know that it is not the thing.
	if _, err := io.Copy(w, io.LimitReader(r, want.Size+1)); err != nil {
		return err
	}
	if got := w.blob(); got.Size > want.Size {
		return &MismatchError{Want: want, Got: Blob{Size: got.Size}}
	} else if got != want {
		return &MismatchError{Want: want, Got: got}
	}
	_, err = w.commit()
	return err
}

// MismatchError says that bytes are not the pinned ones. Got has no digest if there were too many bytes.
type MismatchError struct{ Want, Got Blob }

func (e *MismatchError) Error() string {
	if e.Got.Digest.IsZero() {
		return fmt.Sprintf("cannot accept it: more than the expected %d bytes came (sha256 %s)", e.Want.Size, e.Want.Digest)
	}
	return fmt.Sprintf("cannot accept it: expected sha256 %s (%d bytes), got %s (%d bytes)",
		e.Want.Digest, e.Want.Size, e.Got.Digest, e.Got.Size)
}

// blobWriter is a blob on its way into the store.
type blobWriter struct {
	s    *Store
	f    *os.File
	h    hash.Hash
	size int64
}

func (s *Store) create() (*blobWriter, error) {
	f, err := os.CreateTemp(s.path("tmp"), "blob-")
	if err != nil {
		return nil, err
	}
	return &blobWriter{s: s, f: f, h: sha256.New()}, nil
}

func (w *blobWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	w.h.Write(p[:n])
	w.size += int64(n)
	return n, err
}

func (w *blobWriter) blob() Blob { return Blob{Digest(w.h.Sum(nil)), w.size} }

func (w *blobWriter) commit() (Blob, error) {
	b := w.blob()
	return b, w.s.adopt(w.f, b)
}

// discard does nothing after a commit but close.
func (w *blobWriter) discard() {
	w.f.Close()
	os.Remove(w.f.Name())
}

// adopt renames an open file of the store's file system, whose content is b, into the table of blobs.
func (s *Store) adopt(f *os.File, b Blob) error {
	if s.Has(b) {
		return nil
	}
	if err := f.Chmod(0o444); err != nil {
		return err
	}
	if err := os.Chtimes(f.Name(), Epoch, Epoch); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("storing blob %s: %w", b.Digest, err)
	}
	path := s.entry("blobs", b.Digest)
	if err := renameInto(f.Name(), path); err != nil {
		return err
	}
	if err := syncDir(s.path("blobs", b.Digest.String()[:2])); err != nil {
		return err
	}
	st, err := stampOf(f) // after the rename, which moves ctime
	if err != nil {
		return err
	}
	s.trust(b.Digest, st)
	return s.writeFile(s.sealPath(b.Digest), st.text())
}
