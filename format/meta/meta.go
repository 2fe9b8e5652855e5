// Package meta is the format of the META partition: a few small values that survive reinstallation, kept in two checksummed
// copies so that a write cut short loses nothing. The public Talos tools use the same format.
//
// The partition is 1 MiB. From its start lie two blocks of 256 KiB, big-endian: a magic, then tag, length and bytes of
// each value, an end tag, zeros, a sha256 of the block with the checksum itself as zeros, and a second magic. Its last KiB is an
// older format, the syslinux ADV, which is written empty and never read. What the values mean is not known here.
package meta

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/talos-factory/talos-factory/format/extent"
)

const (
	// Size is the partition's.
	Size = 1 << 20
	// BlockSize is one copy's.
	BlockSize = 256 << 10
	// MaxValues is how many bytes all values together may take, with 8 for each one's tag and length.
	MaxValues = BlockSize - 4 - sumSize - 4

	magicHead = 0x5a4b3c2d
	magicTail = 0xa5b4c3d2
	sumSize   = sha256.Size
	sumAt     = BlockSize - 4 - sumSize
)

// Tag says what a value is.
type Tag uint32

// Tags that the public Talos tools know.
const (
	end Tag = 0

	Upgrade                     Tag = 0x06 // what to fall back to: the slot that was left
	StagedUpgradeImageRef       Tag = 0x07
	StagedUpgradeInstallOptions Tag = 0x08
	StateEncryptionConfig       Tag = 0x09
	MetalNetworkPlatformConfig  Tag = 0x0a
	DownloadURLCode             Tag = 0x0b
	UserReserved1               Tag = 0x0c
	UserReserved2               Tag = 0x0d
	UserReserved3               Tag = 0x0e
	UUIDOverride                Tag = 0x0f
	UniqueMachineToken          Tag = 0x10
	DiskImageBootloader         Tag = 0x11 // which boot loaders the disk's image came with
)

// Values is what META holds.
type Values map[Tag][]byte

// ErrDamaged is wrapped by Parse's error when neither copy is good, as on a disk that never had META.
var ErrDamaged = errors.New("no valid copy of META")

// Block encodes one copy. A machine that changes META writes the first copy, syncs, then writes the second at BlockSize.
func (v Values) Block() ([]byte, error) {
	b := make([]byte, BlockSize)
	if _, err := v.encode(b); err != nil {
		return nil, err
	}
	return b, nil
}

// encode fills a block and says where its values end.
func (v Values) encode(b []byte) (int, error) {
	binary.BigEndian.PutUint32(b, magicHead)
	at := 4
	for _, tag := range slices.Sorted(maps.Keys(v)) {
		value := v[tag]
		if tag == end {
			return 0, errors.New("cannot store a value under tag 0, which marks the end")
		}
		if at+8+len(value) > sumAt {
			return 0, fmt.Errorf("cannot store %d bytes under tag %#x: only %d of %d are left", len(value), uint32(tag), max(0, sumAt-at-8), MaxValues)
		}
		binary.BigEndian.PutUint32(b[at:], uint32(tag))
		binary.BigEndian.PutUint32(b[at+4:], uint32(len(value)))
		copy(b[at+8:], value)
		at += 8 + len(value)
	}
	binary.BigEndian.PutUint32(b[BlockSize-4:], magicTail)
	sum := sha256.Sum256(b)
	copy(b[sumAt:], sum[:])
	return at, nil
}

// Plan is a whole partition with these values.
func (v Values) Plan() (*extent.Plan, error) {
	b := make([]byte, BlockSize)
	n, err := v.encode(b)
	if err != nil {
		return nil, err
	}
	p := extent.New(Size)
	for _, off := range []int64{0, BlockSize} {
		p.PutBytes(off, b[:n])
		p.PutBytes(off+sumAt, b[sumAt:])
	}
	for _, off := range []int64{Size - 2*legacySize, Size - legacySize} {
		p.PutBytes(off, legacyBlock())
	}
	return p, p.Err()
}

// Parse reads the values of a META partition: from the first copy, or if that is damaged from the second.
func Parse(r io.ReaderAt) (Values, error) {
	var errs [2]error
	for i := range errs {
		b := make([]byte, BlockSize)
		if n, err := r.ReadAt(b, int64(i)*BlockSize); n < len(b) {
			errs[i] = fmt.Errorf("reading it: %w", err)
			continue
		}
		v, err := parseBlock(b)
		if err == nil {
			return v, nil
		}
		errs[i] = err
	}
	return nil, fmt.Errorf("%w: first: %w; second: %w", ErrDamaged, errs[0], errs[1])
}

func parseBlock(b []byte) (Values, error) {
	if binary.BigEndian.Uint32(b) != magicHead || binary.BigEndian.Uint32(b[BlockSize-4:]) != magicTail {
		return nil, errors.New("no magic")
	}
	sum := bytes.Clone(b[sumAt : sumAt+sumSize])
	clear(b[sumAt : sumAt+sumSize])
	if got := sha256.Sum256(b); !bytes.Equal(got[:], sum) {
		return nil, errors.New("wrong checksum")
	}
	v := Values{}
	for b := b[4:sumAt]; len(b) >= 8; {
		tag, n := Tag(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[4:])
		if tag == end {
			break
		}
		if int64(n) > int64(len(b)-8) {
			return nil, fmt.Errorf("value of tag %#x has %d bytes, more than are left", uint32(tag), n)
		}
		v[tag] = bytes.Clone(b[8 : 8+n])
		b = b[8+n:]
	}
	return v, nil
}

// The syslinux ADV, little-endian (syslinux, core/adv.inc): a magic, the base of the checksum less the sum of all data
// words, the data, and another magic.
const (
	legacySize     = 512
	legacyHead     = 0x5a2d2fa5
	legacyChecksum = 0xa3041767
	legacyTail     = 0xdd28bf64
)

// legacyBlock is an empty one: its data are zeros, so the checksum is the base.
func legacyBlock() []byte {
	b := make([]byte, legacySize)
	binary.LittleEndian.PutUint32(b, legacyHead)
	binary.LittleEndian.PutUint32(b[4:], legacyChecksum)
	binary.LittleEndian.PutUint32(b[legacySize-4:], legacyTail)
	return b
}
