package splice

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/klauspost/compress/flate"

	"github.com/talos-factory/talos-factory/format/extent"
)

var (
	// RFC 1952 2.3: magic, deflate, no flags, no time, slowest algorithm, unknown system.
	gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255}
	// RFC 1951 3.2.4: the last block, stored, of no bytes.
	lastBlock = []byte{1, 0, 0, 0xff, 0xff}
)

// Gzip returns the plan compressed as one gzip member: deflate blocks that refer to nothing before their piece
// and end at whole bytes.
func (s Splicer) Gzip(ctx context.Context, plan *extent.Plan) (*extent.Plan, error) {
	var out output
	var crc uint32
	out.bytes(gzipHeader)
	err := s.assemble(ctx, plan, deflate(), func(p Piece) error {
		out.piece(p)
		crc = joinCRC(crc, p.CRC, p.Raw)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.bytes(lastBlock)
	out.bytes(binary.LittleEndian.AppendUint32(nil, crc))
	out.bytes(binary.LittleEndian.AppendUint32(nil, uint32(plan.Size()))) // ISIZE, modulo 2^32
	return out.plan()
}

func deflate() Transform {
	return Transform{
		Name: "deflate blocks 1",
		Grid: 1 << 20,
		New: func() (Encoder, error) {
			w, err := flate.NewWriter(nil, flate.BestCompression)
			return func(b []byte) ([]byte, error) {
				var out bytes.Buffer
				w.Reset(&out) // forgets the bytes before
				if _, err := w.Write(b); err != nil {
					return nil, err
				}
				err := w.Flush()
				return out.Bytes(), err
			}, err
		},
		Zeros: deflateZeros,
	}
}

func deflateZeros(n int64) ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, MinZeros)
	for ; n > 0; n -= int64(len(zeros)) {
		if _, err := w.Write(zeros[:min(n, int64(len(zeros)))]); err != nil {
			return nil, err
		}
	}
	err = w.Flush()
	return out.Bytes(), err
}
