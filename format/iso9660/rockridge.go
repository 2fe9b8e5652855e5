package iso9660

// Sizes of the system use fields that every record has.
const (
	sizePX = 36 // RRIP 1.10, 4.1.1
	sizeTF = 12 // with one time
	sizeCE = 28 // SUSP 1.10, 5.1
)

// File types and modes as POSIX has them. Everything is read-only and belongs to root.
const (
	modeFile = 0o100444
	modeDir  = 0o040555
)

// field is a system use field (SUSP 1.10, 4.1) of version 1.
func field(signature string, data []byte) []byte {
	return append([]byte{signature[0], signature[1], byte(4 + len(data)), 1}, data...)
}

// systemUse are an entry's Rock Ridge fields: mode, time, and its name unless that is empty.
func (n *node) systemUse(a attributes, name string) []byte {
	mode, links := int64(modeFile), int64(1)
	if n.dir {
		mode, links = modeDir, 2
		for _, e := range n.entries {
			if e.dir {
				links++
			}
		}
	}
	px := make([]byte, sizePX-4)
	both32(px, mode)
	both32(px[8:], links)
	use := field("PX", px)
	const modified = 1 << 1 // RRIP 1.10, 4.1.6: the one time that follows
	use = append(use, field("TF", append([]byte{modified}, a.stamp[:]...))...)
	if name != "" {
		use = append(use, field("NM", append([]byte{0}, name...))...)
	}
	return use
}

// sharingProtocol says that the system use fields follow SUSP (SUSP 1.10, 5.3); it is the root's first.
func sharingProtocol() []byte { return field("SP", []byte{0xbe, 0xef, 0}) }

// continuation points to where the root's further fields are (SUSP 1.10, 5.1).
func continuation(sector int64) []byte {
	ce := make([]byte, sizeCE-4)
	both32(ce, sector)
	both32(ce[16:], int64(len(extensionsReference())))
	return field("CE", ce)
}

// extensionsReference says that the fields are Rock Ridge's, with the texts that RRIP 1.10, 4.3, prescribes.
func extensionsReference() []byte {
	const (
		id         = "RRIP_1991A"
		descriptor = "THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS"
		source     = "PLEASE CONTACT DISC PUBLISHER FOR SPECIFICATION SOURCE.  SEE PUBLISHER IDENTIFIER IN PRIMARY VOLUME DESCRIPTOR FOR CONTACT INFORMATION."
	)
	return field("ER", append([]byte{byte(len(id)), byte(len(descriptor)), byte(len(source)), 1}, id+descriptor+source...))
}
