// Package superblock is what lies in front of a dm-verity hash tree and says how the tree was made, as veritysetup writes it
// (cryptsetup lib/verity/verity.c, struct verity_sb), and the table line by which the kernel is given the device.
//
// It knows the one kind that we make: hash type 1, SHA-256, data and hash blocks of 4096 bytes. It hashes nothing (package verity
// does), and so is small enough for the machine's first program. Nothing signs a superblock: the root hash, which comes another way,
// is what a tree is believed by.
package superblock

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Argument is the kernel argument with the root hash of the machine's root, in hexadecimal: talos.verity=0123...
const Argument = "talos.verity"

// Sizes in bytes.
const (
	BlockSize = 4096 // of data and of hashes
	HashSize  = 32   // SHA-256
	Size      = 512  // of the superblock; the rest of its block is zeros
	MaxSalt   = 256

	sector = 512 // the unit of device-mapper tables
)

// Superblock says what a tree is over.
type Superblock struct {
	UUID       [16]byte
	DataBlocks uint64 // of BlockSize
	Salt       []byte // hashed before each block
}

// record is the superblock on disk, little-endian.
type record struct {
	Signature     [8]byte
	Version       uint32
	HashType      uint32 // 0 is Chrome OS's, 1 the normal one
	UUID          [16]byte
	Algorithm     [32]byte
	DataBlockSize uint32
	HashBlockSize uint32
	DataBlocks    uint64
	SaltSize      uint16
	_             [6]byte
	Salt          [MaxSalt]byte
	_             [168]byte
}

var (
	signature = [8]byte{'v', 'e', 'r', 'i', 't', 'y'}
	algorithm = [32]byte{'s', 'h', 'a', '2', '5', '6'}
)

// maxBlocks keeps sizes in bytes positive.
const maxBlocks = 1 << 50

// Offset is where the superblock lies behind so many bytes of data: at the next whole block.
func Offset(data int64) int64 { return (data + BlockSize - 1) &^ (BlockSize - 1) }

// Encode writes the superblock.
func (s Superblock) Encode() ([]byte, error) {
	if s.DataBlocks == 0 || s.DataBlocks > maxBlocks {
		return nil, fmt.Errorf("cannot have a hash tree over %d blocks", s.DataBlocks)
	}
	if len(s.Salt) > MaxSalt {
		return nil, fmt.Errorf("cannot use a salt of %d bytes: the format has room for %d", len(s.Salt), MaxSalt)
	}
	r := record{
		Signature: signature, Version: 1, HashType: 1, UUID: s.UUID, Algorithm: algorithm,
		DataBlockSize: BlockSize, HashBlockSize: BlockSize, DataBlocks: s.DataBlocks, SaltSize: uint16(len(s.Salt)),
	}
	copy(r.Salt[:], s.Salt)
	return binary.Append(nil, binary.LittleEndian, r)
}

// ErrNone is returned (wrapped) by Parse where there is no superblock at all.
var ErrNone = errors.New("no dm-verity superblock")

// Parse reads a superblock, and refuses whatever Encode would not write.
func Parse(b []byte) (Superblock, error) {
	var r record
	if len(b) < Size || !bytes.HasPrefix(b, signature[:]) {
		return Superblock{}, ErrNone
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &r); err != nil {
		return Superblock{}, err
	}
	if r.SaltSize > MaxSalt {
		return Superblock{}, fmt.Errorf("cannot read a dm-verity superblock with a salt of %d bytes", r.SaltSize)
	}
	s := Superblock{UUID: r.UUID, DataBlocks: r.DataBlocks, Salt: bytes.Clone(r.Salt[:r.SaltSize])}
	same, err := s.Encode()
	if err != nil {
		return Superblock{}, err
	}
	if !bytes.Equal(b[:Size], same) {
		return Superblock{}, errors.New("cannot use the dm-verity superblock: it is not of version 1, hash type 1, sha256, blocks of 4096 bytes")
	}
	return s, nil
}

// ParseHash reads a root hash: 64 hexadecimal digits.
func ParseHash(text string) (root [HashSize]byte, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != HashSize {
		return root, fmt.Errorf("cannot use root hash %q: want %d hexadecimal digits", text, 2*HashSize)
	}
	return [HashSize]byte(b), nil
}

// Target is a line of a device-mapper table: what the kernel is to make a device of.
type Target struct {
	Sectors uint64 // of 512 bytes
	Params  string
}

// Target is the verity target (Linux Documentation/admin-guide/device-mapper/verity.rst) of a device that holds the data, the
// superblock behind it and the tree behind that. A block that does not match panics the kernel, and so does one that cannot be read.
func (s Superblock) Target(device string, root [HashSize]byte) Target {
	salt := "-"
	if len(s.Salt) > 0 {
		salt = hex.EncodeToString(s.Salt)
	}
	return Target{
		Sectors: s.DataBlocks * (BlockSize / sector),
		Params: fmt.Sprintf("1 %s %s %d %d %d %d sha256 %x %s 2 panic_on_corruption panic_on_error",
			device, device, BlockSize, BlockSize, s.DataBlocks, s.DataBlocks+1, root, salt),
	}
}
