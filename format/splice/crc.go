package splice

// CRC-32 of RFC 1952 8 is the remainder of a polynomial over GF(2), bit-reversed: the coefficient of x^0 is the top bit.
const (
	crcPoly = 0xedb88320 // x^32 + x^26 + x^23 + ... + 1, without x^32
	crcOne  = 1 << 31    // the polynomial 1
)

// multiply is a*b modulo the polynomial.
func multiply(a, b uint32) uint32 {
	var product uint32
	for ; a != 0; a <<= 1 {
		if a&crcOne != 0 {
			product ^= b
		}
		b = b>>1 ^ crcPoly&-(b&1) // times x
	}
	return product
}

// shift is x^(8*n) modulo the polynomial: what n more bytes multiply a remainder by.
func shift(n int64) uint32 {
	result, square := uint32(crcOne), uint32(crcOne>>8) // x^8
	for e := uint64(n); e != 0; e >>= 1 {
		if e&1 != 0 {
			result = multiply(result, square)
		}
		square = multiply(square, square)
	}
	return result
}

// joinCRC is the CRC of two strings behind one another, of which the second has n bytes. The inversions before and
// after a CRC cancel out.
func joinCRC(first, second uint32, n int64) uint32 { return multiply(shift(n), first) ^ second }

// zerosCRC is the CRC of n zeros, which only move the initial value, all ones, along.
func zerosCRC(n int64) uint32 { return ^multiply(shift(n), ^uint32(0)) }
