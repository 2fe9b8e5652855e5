// Package verity makes dm-verity hash trees: what a block device is verified by, block for block, as it is read. The root hash at the
// top of the tree vouches for every byte below (Linux Documentation/admin-guide/device-mapper/verity.rst; cryptsetup
// docs/on-disk-format-verity).
//
// Trees are of format version 1, SHA-256, blocks of 4096 bytes. It signs no root hash, sets no device up (the machine's /init does)
// and does no forward error correction.
package verity

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/verity/superblock"
)

// perBlock is how many hashes a block of the tree holds.
const perBlock = superblock.BlockSize / superblock.HashSize

// Hash is a root hash.
type Hash = [superblock.HashSize]byte

// Write reads all of data and writes its superblock and tree, which are whole blocks, and returns the root hash. The last block of
// data may be short: zeros make it whole. The UUID follows from the root hash, so that the same data and salt make the same bytes.
//
// It keeps the hashes of a tree in memory: a 128th of the data.
func Write(w io.Writer, data io.Reader, salt []byte) (Hash, error) {
	h := newHasher(salt)
	leaves, blocks, err := h.leaves(data)
	if err != nil {
		return Hash{}, err
	}
	levels, root := h.levels(leaves)
	head, err := superblock.Superblock{UUID: uuid(root), DataBlocks: blocks, Salt: salt}.Encode()
	if err != nil {
		return Hash{}, err
	}
	out := bufio.NewWriterSize(w, 64<<10)
	if err := writeBlocks(out, head); err != nil {
		return Hash{}, err
	}
	for i := len(levels) - 1; i >= 0; i-- { // the top of the tree comes first
		if err := writeBlocks(out, levels[i]); err != nil {
			return Hash{}, err
		}
	}
	return root, out.Flush()
}

// hasher hashes blocks, each behind the salt.
type hasher struct {
	buffer []byte // salt and block
	block  []byte // the part for the block
}

func newHasher(salt []byte) *hasher {
	h := &hasher{buffer: make([]byte, len(salt)+superblock.BlockSize)}
	h.block = h.buffer[copy(h.buffer, salt):]
	return h
}

// leaves hashes the blocks of data.
func (h *hasher) leaves(data io.Reader) (hashes []byte, blocks uint64, err error) {
	in := bufio.NewReaderSize(data, 1<<20)
	for {
		n, err := io.ReadFull(in, h.block)
		if err == io.EOF && blocks > 0 {
			return hashes, blocks, nil
		}
		if err == io.EOF {
			return nil, 0, errors.New("cannot make a hash tree over no data")
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, 0, fmt.Errorf("hashing block %d: %w", blocks, err)
		}
		clear(h.block[n:])
		sum := sha256.Sum256(h.buffer)
		hashes = append(hashes, sum[:]...)
		blocks++
	}
}

// levels hashes the blocks of hashes until one hash is left. There is no level over one block: its hash is the root.
func (h *hasher) levels(leaves []byte) (levels [][]byte, root Hash) {
	level := leaves
	for len(level) > superblock.HashSize {
		levels = append(levels, level)
		var above []byte
		for rest := level; len(rest) > 0; {
			n := copy(h.block, rest)
			clear(h.block[n:])
			rest = rest[n:]
			sum := sha256.Sum256(h.buffer)
			above = append(above, sum[:]...)
		}
		level = above
	}
	return levels, Hash(level)
}

// writeBlocks writes b and the zeros that make it whole blocks.
func writeBlocks(w io.Writer, b []byte) error {
	if _, err := w.Write(b); err != nil {
		return err
	}
	size := int64(len(b))
	_, err := w.Write(make([]byte, superblock.Offset(size)-size))
	return err
}

// uuid makes a UUID of vendor-defined content (RFC 9562, 5.8) of a root hash.
func uuid(root Hash) (id [16]byte) {
	copy(id[:], root[:])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}

// TreeSize is how many bytes Write writes for so many bytes of data.
func TreeSize(data int64) int64 {
	size := int64(superblock.BlockSize) // the superblock's
	for blocks := superblock.Offset(data) / superblock.BlockSize; blocks > 1; {
		blocks = (blocks + perBlock - 1) / perBlock
		size += blocks * superblock.BlockSize
	}
	return size
}

// Plan is one file of data and behind it, at a whole block, its superblock and tree, which Write wrote.
func Plan(data, tree extent.Blob) (*extent.Plan, error) {
	if want := TreeSize(data.Size); tree.Size != want {
		return nil, fmt.Errorf("cannot use a tree of %d bytes for data of %d: it would have %d", tree.Size, data.Size, want)
	}
	at := superblock.Offset(data.Size)
	plan := extent.New(at + tree.Size)
	return plan, errors.Join(plan.PutBlob(0, data), plan.PutBlob(at, tree))
}
