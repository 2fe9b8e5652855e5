package meta_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/meta"
)

func Example() {
	plan, err := meta.Values{meta.DiskImageBootloader: []byte("dual-boot")}.Plan()
	if err != nil {
		panic(err)
	}
	values, err := meta.Parse(plan.NewReader(nil))
	if err != nil {
		panic(err)
	}
	fmt.Println(plan.Size(), string(values[meta.DiskImageBootloader]))
	// Output: 1048576 dual-boot
}

func whole(t testing.TB, v meta.Values) []byte {
	p, err := v.Plan()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(p.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The bytes, spelled out: other tools read and write them.
func TestBytes(t *testing.T) {
	b := whole(t, meta.Values{0x11: []byte("dual-boot"), 0x0a: []byte("x")})
	head := "5a4b3c2d" + "0000000a00000001" + "78" + "0000001100000009" + hex.EncodeToString([]byte("dual-boot")) + "0000000000000000"
	if got := hex.EncodeToString(b[:len(head)/2]); got != head {
		t.Errorf("block begins\n%s, want\n%s", got, head)
	}
	const size = 256 << 10
	if !bytes.Equal(b[:size], b[size:2*size]) {
		t.Error("the copies differ")
	}
	block := bytes.Clone(b[:size])
	clear(block[size-36 : size-4])
	sum := sha256.Sum256(block)
	if !bytes.Equal(sum[:], b[size-36:size-4]) || binary.BigEndian.Uint32(b[size-4:]) != 0xa5b4c3d2 {
		t.Error("wrong checksum or magic at the end")
	}
	// syslinux: the first three words' roles, and that all words of the data and the checksum sum up to the base.
	for _, adv := range [][]byte{b[len(b)-1024 : len(b)-512], b[len(b)-512:]} {
		var words uint32
		for i := 4; i < 508; i += 4 {
			words += binary.LittleEndian.Uint32(adv[i:])
		}
		if binary.LittleEndian.Uint32(adv) != 0x5a2d2fa5 || words != 0xa3041767 || binary.LittleEndian.Uint32(adv[508:]) != 0xdd28bf64 {
			t.Error("the legacy block is not valid")
		}
	}
}

func TestTwiceTheSame(t *testing.T) {
	v := meta.Values{}
	for tag := range meta.Tag(100) {
		v[tag+1] = bytes.Repeat([]byte{byte(tag)}, int(tag))
	}
	a, err := v.Plan()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := v.Plan()
	if diff := cmp.Diff(a.Extents(), b.Extents()); diff != "" {
		t.Error(diff)
	}
	got, err := meta.Parse(a.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v, got, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("written and read (-want +got):\n%s", diff)
	}
	if n := a.Literals(); n > 20_000 {
		t.Errorf("%d literal bytes", n)
	}
}

// A machine writes first the one block, then the other; wherever that is cut, values are read.
func TestCutWrite(t *testing.T) {
	old, updated := meta.Values{1: []byte("old")}, meta.Values{1: []byte("new"), 2: []byte("more")}
	block, err := updated.Block()
	if err != nil {
		t.Fatal(err)
	}
	disk := whole(t, old)
	for n := 0; n <= 2*len(block); n += 4099 {
		d := bytes.Clone(disk)
		copy(d, block[:min(n, len(block))])
		copy(d[len(block):], block[:max(0, n-len(block))])
		got, err := meta.Parse(bytes.NewReader(d))
		if err != nil {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
		if s := string(got[1]); s != "old" && s != "new" {
			t.Errorf("cut after %d bytes: got %q", n, s)
		}
	}
}

func TestDamage(t *testing.T) {
	for name, damage := range map[string]func(b []byte){
		"magic":     func(b []byte) { b[0]++ },
		"tail":      func(b []byte) { b[meta.BlockSize-1]++ },
		"checksum":  func(b []byte) { b[meta.BlockSize-20]++ },
		"value":     func(b []byte) { b[13]++ },
		"all zeros": func(b []byte) { clear(b[:meta.BlockSize]) },
	} {
		b := whole(t, meta.Values{6: []byte("A")})
		damage(b)
		got, err := meta.Parse(bytes.NewReader(b))
		if err != nil || string(got[6]) != "A" {
			t.Errorf("%s in the first copy: got %v, %v", name, got, err)
		}
		damage(b[meta.BlockSize:])
		if _, err := meta.Parse(bytes.NewReader(b)); !errors.Is(err, meta.ErrDamaged) {
			t.Errorf("%s in both: got %v, want ErrDamaged", name, err)
		}
	}
	if _, err := meta.Parse(bytes.NewReader(nil)); !errors.Is(err, meta.ErrDamaged) {
		t.Errorf("empty: got %v", err)
	}
	if _, err := meta.Parse(extent.New(meta.Size).NewReader(nil)); !errors.Is(err, meta.ErrDamaged) {
		t.Errorf("zeros: got %v", err)
	}
}

func TestLimits(t *testing.T) {
	full := meta.Values{1: make([]byte, meta.MaxValues-8)}
	if got, err := meta.Parse(bytes.NewReader(whole(t, full))); err != nil || len(got[1]) != 262096 {
		t.Errorf("a full block: %d bytes, %v", len(got[1]), err)
	}
	for _, c := range []struct {
		want string
		v    meta.Values
	}{
		{"only 262096 of 262104 are left", meta.Values{1: make([]byte, meta.MaxValues-7)}},
		{"only 0 of", meta.Values{1: make([]byte, meta.MaxValues-8), 2: nil}},
		{"tag 0", meta.Values{0: nil}},
	} {
		if _, err := c.v.Plan(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

// The corpus is short; each input is padded to a partition and given a right checksum.
func FuzzParse(f *testing.F) {
	f.Add(whole(f, meta.Values{6: []byte("A"), 0x11: []byte("dual-boot")})[:64])
	f.Add([]byte{0x5a, 0x4b, 0x3c, 0x2d, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, head []byte) {
		b := make([]byte, meta.Size)
		copy(b[:meta.BlockSize-36], head)
		binary.BigEndian.PutUint32(b[meta.BlockSize-4:], 0xa5b4c3d2)
		sum := sha256.Sum256(b[:meta.BlockSize])
		copy(b[meta.BlockSize-36:], sum[:])
		v, err := meta.Parse(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := meta.Parse(bytes.NewReader(whole(t, v)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v, again, cmp.Comparer(bytes.Equal)); diff != "" {
			t.Error(diff)
		}
	})
}
