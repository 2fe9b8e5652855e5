package fat

import (
	"bytes"
	"encoding/binary"

	"github.com/talos-factory/talos-factory/format/extent"
)

// bootSector is the boot sector of FAT32 (specification 1.03, "Boot Sector and BPB").
type bootSector struct {
	Jump          [3]byte
	OEMName       [8]byte
	BytesPerSec   uint16
	SecPerClus    uint8
	Reserved      uint16
	NumFATs       uint8
	RootEntries   uint16 // 0 in FAT32
	TotalSec16    uint16 // 0 in FAT32
	Media         uint8
	FATSize16     uint16 // 0 in FAT32
	SecPerTrack   uint16
	Heads         uint16
	Hidden        uint32
	TotalSec32    uint32
	FATSize32     uint32
	ExtFlags      uint16 // 0: both tables are kept equal
	Version       uint16
	RootCluster   uint32
	FSInfo        uint16
	BackupBoot    uint16
	_             [12]byte
	DriveNumber   uint8
	_             uint8
	BootSignature uint8 // 0x29: the next three fields exist
	VolumeID      uint32
	Label         [11]byte
	Type          [8]byte
	Code          [420]byte
	Signature     [2]byte
}

// fsInfo is the FSInfo sector (specification 1.03, "FAT32 FSInfo Sector Structure").
type fsInfo struct {
	Lead     uint32
	_        [480]byte
	Struct   uint32
	Free     uint32 // clusters
	NextFree uint32 // where to begin looking
	_        [12]byte
	Trail    uint32
}

const (
	fixedDisk  = 0xF8 // BPB_Media, and the low byte of the table's first entry
	fsInfoAt   = 1    // sector
	infoLead   = 0x41615252
	infoStruct = 0x61417272
	infoTrail  = 0xAA550000
)

// putReserved places the boot sector and FSInfo, and the copies of both.
func (v Volume) putReserved(p *extent.Plan, g geometry, label [11]byte, a *allocator) {
	boot := bootSector{
		Jump:          [3]byte{0xEB, 0x58, 0x90}, // to Code
		OEMName:       [8]byte([]byte("TALOSFAC")),
		BytesPerSec:   uint16(g.sector),
		SecPerClus:    uint8(g.perCluster),
		Reserved:      uint16(g.reserved),
		NumFATs:       2,
		Media:         fixedDisk,
		SecPerTrack:   63,
		Heads:         255,
		Hidden:        v.Hidden,
		TotalSec32:    uint32(g.total),
		FATSize32:     uint32(g.fat),
		RootCluster:   rootCluster,
		FSInfo:        fsInfoAt,
		BackupBoot:    backupSector,
		DriveNumber:   0x80,
		BootSignature: 0x29,
		VolumeID:      v.ID,
		Label:         label,
		Type:          [8]byte([]byte("FAT32   ")),
		Code:          [420]byte{0xF4, 0xEB, 0xFD}, // hlt, and again: a BIOS that starts this volume stops
		Signature:     [2]byte{0x55, 0xAA},
	}
	info := fsInfo{Lead: infoLead, Struct: infoStruct, Trail: infoTrail,
		Free: uint32(g.clusters - a.used()), NextFree: a.hint()}
	for _, sector := range []int64{0, backupSector} {
		p.PutBytes(sector*g.sector, encode(boot))
		p.PutBytes((sector+fsInfoAt)*g.sector, encode(info))
	}
}

// encode writes a record of fixed size.
func encode(record any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, record); err != nil {
		panic("internal error: " + err.Error()) // only if the type has no fixed size
	}
	return b.Bytes()
}
