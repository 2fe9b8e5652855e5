package p11kit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Calls, by the numbers of p11-kit's rpc-message.h, with the signatures of question and answer: u is a CK_ULONG, y a byte, s a
// padded string, ay and au arrays, fu, fy and fA buffers that the answer may fill, aA attributes, M a mechanism.
type call struct {
	number       uint32
	ask, answer  string
	name         string
	maxAnswerLen uint32
}

const maxAnswer = 1 << 20

var (
	callInitialize        = call{1, "ayyay", "", "C_Initialize", 1 << 10}
	callFinalize          = call{2, "", "", "C_Finalize", 1 << 10}
	callGetSlotList       = call{4, "yfu", "au", "C_GetSlotList", maxAnswer}
	callGetTokenInfo      = call{6, "u", "ssssuuuuuuuuuuuvvs", "C_GetTokenInfo", 1 << 12}
	callOpenSession       = call{10, "uu", "u", "C_OpenSession", 1 << 10}
	callLogin             = call{18, "uuay", "", "C_Login", 1 << 10}
	callGetAttributeValue = call{24, "uufA", "aAu", "C_GetAttributeValue", maxAnswer}
	callFindObjectsInit   = call{26, "uaA", "", "C_FindObjectsInit", 1 << 10}
	callFindObjects       = call{27, "ufu", "au", "C_FindObjects", maxAnswer}
	callFindObjectsFinal  = call{28, "u", "", "C_FindObjectsFinal", 1 << 10}
	callSignInit          = call{42, "uMu", "", "C_SignInit", 1 << 10}
	callSign              = call{43, "uayfy", "ay", "C_Sign", 1 << 16}
)

// A moduleError is a CKR_ value of PKCS #11 2.40, 3.6.
type moduleError struct {
	call string
	code uint64
}

const (
	noSuchAttribute = 0x12
	pinIncorrect    = 0xa0
	pinLocked       = 0xa4
	alreadyLoggedIn = 0x100
	notLoggedIn     = 0x101
)

func (e moduleError) Error() string {
	switch e.code {
	case pinIncorrect:
		return "cannot log in: the PIN is wrong"
	case pinLocked:
		return "cannot log in: the PIN is locked after too many wrong ones"
	case notLoggedIn:
		return "cannot use the key without the token's PIN"
	}
	return fmt.Sprintf("%s answered with error %#x", e.call, e.code)
}

// body builds a question's arguments.
type body []byte

func (b body) u32(n uint32) body      { return binary.BigEndian.AppendUint32(b, n) }
func (b body) ulong(n uint64) body    { return binary.BigEndian.AppendUint64(b, n) }
func (b body) byte(c byte) body       { return append(b, c) }
func (b body) bytes(v []byte) body    { return append(b.byte(1).u32(uint32(len(v))), v...) }
func (b body) noBytes() body          { return b.byte(0).u32(0) }
func (b body) noParameters() body     { return b.u32(0xffffffff) }
func (b body) rawBytes(v []byte) body { return append(b.u32(uint32(len(v))), v...) }

// exchange sends a question and returns the answer's values. id counts the questions of a connection.
func exchange(rw io.ReadWriter, id uint32, c call, args body) (*values, error) {
	message := body(nil).u32(id).u32(0).u32(uint32(4 + 4 + len(c.ask) + len(args)))
	message = append(message.u32(c.number).rawBytes([]byte(c.ask)), args...)
	if _, err := rw.Write(message); err != nil {
		return nil, err
	}
	var header [12]byte
	if _, err := io.ReadFull(rw, header[:]); err != nil {
		return nil, fmt.Errorf("waiting for %s: %w", c.name, err)
	}
	options, size := binary.BigEndian.Uint32(header[4:]), binary.BigEndian.Uint32(header[8:])
	if binary.BigEndian.Uint32(header[:]) != id || options > 1<<12 || size > c.maxAnswerLen {
		return nil, fmt.Errorf("cannot read the answer to %s: it is of %d bytes with %d of options", c.name, size, options)
	}
	answer := make([]byte, options+size)
	if _, err := io.ReadFull(rw, answer); err != nil {
		return nil, fmt.Errorf("reading the answer to %s: %w", c.name, err)
	}
	return parseAnswer(c, answer[options:])
}

func parseAnswer(c call, answer []byte) (*values, error) {
	v := &values{rest: answer}
	number, signature := v.u32(), string(v.rawBytes())
	switch {
	case v.err != nil:
	case number == 0 && signature == "u":
		if code := v.ulong(); v.err == nil {
			return nil, moduleError{c.name, code}
		}
	case number != c.number || signature != c.answer:
		v.err = fmt.Errorf("cannot read an answer to call %d of kind %q", number, signature)
	}
	if v.err != nil {
		return nil, fmt.Errorf("reading the answer to %s: %w", c.name, v.err)
	}
	return v, nil
}

// values takes an answer apart; the first mistake stays in err.
type values struct {
	rest []byte
	err  error
}

var errShort = errors.New("cannot read beyond its end")

func (v *values) take(n uint32) []byte {
	if v.err != nil || uint64(n) > uint64(len(v.rest)) {
		v.err = errors.Join(v.err, errShort)
		return nil
	}
	taken := v.rest[:n]
	v.rest = v.rest[n:]
	return taken
}

func (v *values) byte() byte {
	if b := v.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (v *values) u32() uint32 {
	if b := v.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (v *values) ulong() uint64 {
	if b := v.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// rawBytes is nil for the length that stands for none.
func (v *values) rawBytes() []byte {
	n := v.u32()
	if n == 0xffffffff {
		return nil
	}
	return v.take(n)
}

// bytes is nil if only a length came.
func (v *values) bytes() []byte {
	if v.byte() == 0 {
		v.u32()
		return nil
	}
	return v.rawBytes()
}

func (v *values) ulongs() []uint64 {
	if v.byte() == 0 {
		v.u32()
		return nil
	}
	n := v.u32()
	if uint64(n)*8 > uint64(len(v.rest)) {
		v.err = errors.Join(v.err, errShort)
		return nil
	}
	all := make([]uint64, n)
	for i := range all {
		all[i] = v.ulong()
	}
	return all
}
