package splice

import (
	"bytes"
	"crypto/sha256"
	"io"
	"sync"

	"github.com/talos-factory/talos-factory/format/extent"
)

// Cache remembers what transforms made.
type Cache interface {
	// Recall returns what make wrote and the note it returned, for the same transform of the same input, now or earlier.
	// The blob is whole and can be read when it returns: what was lost or damaged is made again.
	Recall(transform string, in extent.Digest, make func(w io.Writer) (note []byte, err error)) (extent.Blob, []byte, error)
}

// Memory is a Cache that keeps pieces in memory, and a Source of them.
type Memory struct {
	mu      sync.Mutex // guards what follows
	blobs   extent.Memory
	entries map[memoryKey]memoryEntry
}

type memoryKey struct {
	transform string
	in        extent.Digest
}

type memoryEntry struct {
	blob extent.Blob
	note []byte
}

// NewMemory returns an empty cache.
func NewMemory() *Memory {
	return &Memory{blobs: extent.Memory{}, entries: map[memoryKey]memoryEntry{}}
}

// Recall implements Cache.
func (m *Memory) Recall(transform string, in extent.Digest, make func(io.Writer) ([]byte, error)) (extent.Blob, []byte, error) {
	key := memoryKey{transform, in}
	m.mu.Lock()
	entry, ok := m.entries[key]
	content := m.blobs[entry.blob.SHA256]
	m.mu.Unlock()
	if ok && sha256.Sum256(content) == entry.blob.SHA256 {
		return entry.blob, entry.note, nil
	}
	var b bytes.Buffer
	note, err := make(&b)
	if err != nil {
		return extent.Blob{}, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	entry = memoryEntry{m.blobs.Add(b.Bytes()), note}
	m.entries[key] = entry
	return entry.blob, entry.note, nil
}

// OpenBlob implements extent.Source.
func (m *Memory) OpenBlob(d extent.Digest) (extent.ReaderAtCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.blobs.OpenBlob(d)
}
