package iso9660

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
)

// Types of volume descriptors (ECMA-119 8.1.1).
const (
	typeBoot       = 0
	typePrimary    = 1
	typeTerminator = 255
)

// descriptorHeader is what every volume descriptor begins with (ECMA-119 8.1).
type descriptorHeader struct {
	Type    uint8
	ID      [5]byte
	Version uint8
}

func header(kind uint8) descriptorHeader {
	return descriptorHeader{Type: kind, ID: [5]byte([]byte("CD001")), Version: 1}
}

// primary is the primary volume descriptor (ECMA-119 8.4).
type primary struct {
	descriptorHeader
	_             uint8
	SystemID      [32]byte
	VolumeID      [32]byte
	_             [8]byte
	SpaceSize     [8]byte // sectors
	_             [32]byte
	SetSize       [4]byte
	Sequence      [4]byte
	BlockSize     [4]byte
	PathTableSize [8]byte
	PathL         [4]byte // sector of the little-endian path table, and of a spare one
	PathLOther    [4]byte
	PathM         [4]byte
	PathMOther    [4]byte
	Root          [34]byte
	SetID         [128]byte
	Publisher     [128]byte
	Preparer      [128]byte
	Application   [128]byte
	Copyright     [37]byte
	Abstract      [37]byte
	Bibliography  [37]byte
	Created       [17]byte
	Modified      [17]byte
	Expires       [17]byte
	Effective     [17]byte
	Structure     uint8
	_             uint8
	_             [512]byte
	_             [653]byte
}

// bootRecord is El Torito's (specification 1.0, figure 7).
type bootRecord struct {
	descriptorHeader
	System  [32]byte
	_       [32]byte
	Catalog uint32 // sector
}

func (v Volume) putDescriptors(l *Layout, p *extent.Plan) error {
	if err := checkText("a volume identifier", v.ID, 32, isD); err != nil {
		return err
	}
	if err := checkText("an application identifier", v.Application, 128, func(r rune) bool { return r >= ' ' && r < 0x7f }); err != nil {
		return err
	}
	s := l.sectors
	p.PutBytes(s.primary*Sector, encode(v.primary(l)))
	if s.boot != 0 {
		r := bootRecord{descriptorHeader: header(typeBoot), Catalog: uint32(s.catalog)}
		copy(r.System[:], "EL TORITO SPECIFICATION")
		p.PutBytes(s.boot*Sector, encode(r))
	}
	return p.PutBytes(s.terminator*Sector, encode(header(typeTerminator)))
}

func (v Volume) primary(l *Layout) primary {
	d := primary{descriptorHeader: header(typePrimary), Structure: 1}
	blank := func(fields ...[]byte) {
		for _, f := range fields {
			copy(f, padded("", len(f)))
		}
	}
	blank(d.SystemID[:], d.SetID[:], d.Publisher[:], d.Preparer[:], d.Copyright[:], d.Abstract[:], d.Bibliography[:])
	copy(d.VolumeID[:], padded(v.ID, len(d.VolumeID)))
	copy(d.Application[:], padded(v.Application, len(d.Application)))
	both32(d.SpaceSize[:], l.Size/Sector)
	both16(d.SetSize[:], 1)
	both16(d.Sequence[:], 1)
	both16(d.BlockSize[:], Sector)
	both32(d.PathTableSize[:], int64(len(l.pathTable(false))))
	binary.LittleEndian.PutUint32(d.PathL[:], uint32(l.sectors.pathL))
	binary.BigEndian.PutUint32(d.PathM[:], uint32(l.sectors.pathM))
	copy(d.Root[:], record(selfID, flagDir, l.root.off, l.root.size, recordTime(v.Time), nil))
	d.Created, d.Modified = digits(v.Time), digits(v.Time)
	d.Expires, d.Effective = never(), never()
	return d
}

// digits is a descriptor's date (ECMA-119 8.4.26.1), in UTC.
func digits(t time.Time) [17]byte {
	t = clamp(t)
	return [17]byte([]byte(fmt.Sprintf("%s%02d\x00", t.Format("20060102150405"), t.Nanosecond()/1e7)))
}

// never is the date that is not specified.
func never() [17]byte { return [17]byte([]byte("0000000000000000\x00")) }

// encode writes a record of fixed size.
func encode(record any) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, record)
	if err != nil {
		panic("internal error: " + err.Error()) // only if the type has no fixed size
	}
	return b
}
