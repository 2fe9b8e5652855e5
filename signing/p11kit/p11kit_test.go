package p11kit

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/asn1"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParseAnswer(t *testing.T) {
	answer := func(number uint32, signature string) body { return body(nil).u32(number).rawBytes([]byte(signature)) }
	v, err := parseAnswer(callFindObjects, answer(27, "au").byte(1).u32(2).ulong(5).ulong(6))
	if err != nil {
		t.Fatal(err)
	}
	if got := v.ulongs(); len(got) != 2 || got[1] != 6 || v.err != nil {
		t.Errorf("got %v, %v", got, v.err)
	}
	_, err = parseAnswer(callLogin, answer(0, "u").ulong(pinIncorrect))
	var refused moduleError
	if !errors.As(err, &refused) || refused.code != pinIncorrect {
		t.Errorf("got %v", err)
	}
	for name, b := range map[string]body{
		"empty": nil, "another call": answer(26, "au"), "another kind": answer(27, "ay"), "error without a number": answer(0, "u"),
		"signature without an end": body(nil).u32(27).u32(200),
	} {
		if _, err := parseAnswer(callFindObjects, b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	short, err := parseAnswer(callFindObjects, answer(27, "au").byte(1).u32(1<<30))
	if err != nil {
		t.Fatal(err)
	}
	if got := short.ulongs(); got != nil || short.err == nil {
		t.Errorf("an array without its numbers is %v, %v", got, short.err)
	}
}

func TestNoPIN(t *testing.T) {
	token := Token{Socket: "/s", Label: "l", PIN: []byte("4711")}
	for _, value := range []any{token, &token, &Key{token: token}} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
			if got := fmt.Sprintf(format, value); strings.Contains(got, "4711") || strings.Contains(got, "52, 55") || strings.Contains(got, "0x34") {
				t.Errorf("%s prints the PIN: %s", format, got)
			}
		}
	}
}

func TestEC(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	params, err := asn1.Marshal(asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7})
	if err != nil {
		t.Fatal(err)
	}
	point, err := asn1.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseEC(params, point)
	if err != nil || !got.Equal(&key.PublicKey) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseEC(params, point[:len(point)-1]); err == nil {
		t.Error("half a point is taken")
	}
	for _, n := range []int{0, 63} {
		if _, err := encodeECDSA(make([]byte, n)); err == nil {
			t.Errorf("%d bytes are taken for a signature", n)
		}
	}
}

// Whatever a server answers, the reader comes to an end.
func FuzzAnswer(f *testing.F) {
	f.Add(uint8(0), []byte(body(nil).u32(4).rawBytes([]byte("au")).byte(1).u32(1).ulong(3)))
	f.Add(uint8(1), []byte(body(nil).u32(0).rawBytes([]byte("u")).ulong(5)))
	f.Add(uint8(2), []byte(body(nil).u32(43).rawBytes([]byte("ay")).bytes([]byte("signature"))))
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		c := []call{callGetSlotList, callGetAttributeValue, callSign}[which%3]
		v, err := parseAnswer(c, b)
		if err != nil {
			return
		}
		v.ulongs()
		v.bytes()
		v.rawBytes()
		if len(v.rest) > 0 && !bytes.HasSuffix(b, v.rest) {
			t.Error("the rest is not the answer's")
		}
	})
}
