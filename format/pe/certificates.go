package pe

// Uncovered is what a signature of an image does not cover: two fields of its headers, and the attribute certificate table
// at the end of the file, where signatures lie (specification, "Attribute Certificate Table").
type Uncovered struct {
	Checksum  int64 // offset of the 4 bytes of the checksum
	Directory int64 // offset of the 8 bytes that say where the table lies
	Table     int64 // offset of the table; 0 without one
	Size      int64 // of the table
}

// checksum is where CheckSum lies in the optional header.
const checksum = 64

// Uncovered says where those are. An image whose headers have no room for the table's place has none.
func (i *Image) Uncovered() (u Uncovered, ok bool) {
	return Uncovered{
		Checksum:  i.optional() + checksum,
		Directory: i.optional() + optionalHeaderSize + certificate*directorySize,
		Table:     int64(i.certificates[0]),
		Size:      int64(i.certificates[1]),
	}, i.opt.NumberOfRvaAndSizes > certificate
}

// HeadersSize is how many bytes at the file's start are headers, with padding.
func (i *Image) HeadersSize() int64 { return int64(i.opt.SizeOfHeaders) }
