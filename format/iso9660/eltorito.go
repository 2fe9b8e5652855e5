package iso9660

import (
	"encoding/binary"
	"fmt"

	"github.com/talos-factory/talos-factory/format/extent"
)

// Platform is who starts a boot image.
type Platform uint8

// Platforms (El Torito 1.0, figure 2; UEFI 2.10, 13.3.2.1).
const (
	BIOS Platform = 0
	UEFI Platform = 0xef
)

// Boot is a boot image without emulation: a file of the volume.
type Boot struct {
	Platform Platform
	Path     string
	// Sectors of 512 bytes that are loaded. For UEFI it is the size of a file system; 0 and 1 mean "up to the volume's
	// end" (UEFI 2.10, 13.3.2.1), which is how images of 32 MiB and more are told.
	Sectors uint16
}

// Values of the boot catalog (El Torito 1.0, figures 2 to 5).
const (
	bootable      = 0x88
	noEmulation   = 0
	sectionMore   = 0x90
	sectionLast   = 0x91
	entrySize     = 32
	validationKey = 0xaa55
)

// validation is the catalog's first entry (figure 2).
type validation struct {
	Header   uint8
	Platform Platform
	_        uint16
	ID       [24]byte
	Checksum uint16 // the 16-bit words of the entry add up to 0
	Key      uint16
}

// bootEntry is a boot image (figures 3 and 5).
type bootEntry struct {
	Indicator uint8
	Media     uint8
	Segment   uint16 // 0: where the BIOS wants it, 0x7c0
	System    uint8
	_         uint8
	Sectors   uint16
	Location  uint32
	_         [20]byte
}

// sectionHeader is followed by the entries of one platform (figure 4).
type sectionHeader struct {
	Indicator uint8
	Platform  Platform
	Entries   uint16
	_         [28]byte
}

// putCatalog writes the boot catalog. Each entry but the default one is a section of its own.
func (v Volume) putCatalog(l *Layout, p *extent.Plan) error {
	if len(v.Boot) == 0 {
		return nil
	}
	first := validation{Header: 1, Platform: v.Boot[0].Platform, Key: validationKey}
	var sum uint16
	for b := encode(first); len(b) > 0; b = b[2:] {
		sum += binary.LittleEndian.Uint16(b)
	}
	first.Checksum = -sum
	catalog := encode(first)
	for i, b := range v.Boot {
		off, err := l.Offset(b.Path)
		if err != nil {
			return fmt.Errorf("adding a boot image: %w", err)
		}
		if i > 0 {
			h := sectionHeader{Indicator: sectionMore, Platform: b.Platform, Entries: 1}
			if i == len(v.Boot)-1 {
				h.Indicator = sectionLast
			}
			catalog = append(catalog, encode(h)...)
		}
		catalog = append(catalog, encode(bootEntry{Indicator: bootable, Media: noEmulation, Sectors: b.Sectors, Location: uint32(off / Sector)})...)
	}
	if len(catalog) > Sector-entrySize {
		return fmt.Errorf("cannot make %d boot images: the catalog is one sector", len(v.Boot))
	}
	return p.PutBytes(l.sectors.catalog*Sector, catalog)
}
