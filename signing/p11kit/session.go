package p11kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// handshake is what C_Initialize begins with: p11-kit's rpc-message.h, P11_RPC_HANDSHAKE.
const handshake = "PRIVATE-GNOME-KEYRING-PKCS11-PROTOCOL-V-1"

// Numbers of PKCS #11 2.40, header file pkcs11t.h.
const (
	serialSession = 4 // CKF_SERIAL_SESSION
	user          = 1 // CKU_USER

	class       = 0x000 // CKA_CLASS, a CK_ULONG
	label       = 0x003 // CKA_LABEL
	value       = 0x011 // CKA_VALUE
	identifier  = 0x102 // CKA_ID
	modulus     = 0x120 // CKA_MODULUS
	exponent    = 0x122 // CKA_PUBLIC_EXPONENT
	ecParams    = 0x180 // CKA_EC_PARAMS
	ecPoint     = 0x181 // CKA_EC_POINT
	certificate = 1     // CKO_CERTIFICATE
	publicKey   = 2     // CKO_PUBLIC_KEY
	privateKey  = 3     // CKO_PRIVATE_KEY

	attributeRoom = 16 << 10
)

// session is one connection with a session of one token.
type session struct {
	conn net.Conn
	last uint32
	id   uint64
}

// with opens a session, logs in if there is a PIN, and closes all behind do.
func (t Token) with(ctx context.Context, do func(*session) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", t.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	s := &session{conn: conn}
	err = s.open(t)
	if err == nil {
		err = do(s)
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		_, err = s.call(callFinalize, nil)
	}
	return err
}

func (s *session) call(c call, args body) (*values, error) {
	s.last++
	return exchange(s.conn, s.last, c, args)
}

func (s *session) open(t Token) error {
	version := []byte{0} // of the protocol; later ones answer in the older way
	if _, err := s.conn.Write(version); err != nil {
		return err
	}
	if _, err := io.ReadFull(s.conn, version); err != nil {
		return fmt.Errorf("greeting p11-kit: %w", err)
	}
	if version[0] != 0 {
		return fmt.Errorf("cannot speak version %d of p11-kit's protocol", version[0])
	}
	if _, err := s.call(callInitialize, body(nil).bytes([]byte(handshake)).byte(0).noBytes()); err != nil {
		return err
	}
	slot, err := s.slot(t.Label)
	if err != nil {
		return err
	}
	v, err := s.call(callOpenSession, body(nil).ulong(slot).ulong(serialSession))
	if err != nil {
		return err
	}
	if s.id = v.ulong(); v.err != nil || len(t.PIN) == 0 {
		return v.err
	}
	_, err = s.call(callLogin, body(nil).ulong(s.id).ulong(user).bytes(t.PIN))
	var refused moduleError
	if errors.As(err, &refused) && refused.code == alreadyLoggedIn {
		return nil
	}
	return err
}

// slot is that of the token with the label.
func (s *session) slot(label string) (uint64, error) {
	v, err := s.call(callGetSlotList, body(nil).byte(1).u32(256))
	if err != nil {
		return 0, err
	}
	slots := v.ulongs()
	if v.err != nil {
		return 0, v.err
	}
	var labels []string
	for _, slot := range slots {
		v, err := s.call(callGetTokenInfo, body(nil).ulong(slot))
		if err != nil {
			return 0, err
		}
		name := string(bytes.TrimRight(v.rawBytes(), " \x00"))
		if v.err != nil {
			return 0, v.err
		}
		if name == label {
			return slot, nil
		}
		labels = append(labels, name)
	}
	return 0, fmt.Errorf("cannot find token %q (there is: %q)", label, labels)
}

// find returns the one object of the kind that has the attribute, or 0 for none.
func (s *session) find(kind uint64, attribute uint32, want []byte) (uint64, error) {
	args := body(nil).ulong(s.id).u32(2)
	args = args.u32(class).byte(1).u32(8).ulong(kind)
	args = args.u32(attribute).byte(1).u32(uint32(len(want))).rawBytes(want)
	if _, err := s.call(callFindObjectsInit, args); err != nil {
		return 0, err
	}
	v, err := s.call(callFindObjects, body(nil).ulong(s.id).u32(2))
	if err != nil {
		return 0, err
	}
	found := v.ulongs()
	if v.err != nil {
		return 0, v.err
	}
	if _, err := s.call(callFindObjectsFinal, body(nil).ulong(s.id)); err != nil {
		return 0, err
	}
	switch len(found) {
	case 0:
		return 0, nil
	case 1:
		return found[0], nil
	}
	return 0, errors.New("cannot choose among several objects of that name")
}

// attributes are an object's, in the order asked for; each is of the kind bytes.
func (s *session) attributes(object uint64, names ...uint32) ([][]byte, error) {
	args := body(nil).ulong(s.id).ulong(object).u32(uint32(len(names)))
	for _, n := range names {
		args = args.u32(n).u32(attributeRoom)
	}
	v, err := s.call(callGetAttributeValue, args)
	if err != nil {
		return nil, err
	}
	if n := v.u32(); v.err == nil && n != uint32(len(names)) {
		return nil, fmt.Errorf("cannot read %d attributes: asked for %d", n, len(names))
	}
	var all [][]byte
	for _, n := range names {
		var b []byte
		if kind := v.u32(); v.err == nil && kind != n {
			return nil, fmt.Errorf("cannot read attribute %#x: asked for %#x", kind, n)
		}
		if v.byte() != 0 {
			v.u32()
			b = v.rawBytes()
		}
		all = append(all, b)
	}
	if code := v.ulong(); v.err == nil && code != 0 {
		return nil, moduleError{callGetAttributeValue.name, code}
	}
	return all, v.err
}
