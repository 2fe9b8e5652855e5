package superblock_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/format/verity/superblock"
)

var sample = superblock.Superblock{UUID: [16]byte{1, 2, 3}, DataBlocks: 5, Salt: []byte("salt")}

func TestRoundTrip(t *testing.T) {
	b, err := sample.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != superblock.Size {
		t.Errorf("got %d bytes", len(b))
	}
	got, err := superblock.Parse(append(b, "more of the block"...))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample, got); diff != "" {
		t.Error(diff)
	}
}

// TestRefusals changes one field after the other.
func TestRefusals(t *testing.T) {
	good, err := sample.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]int{
		"version": 8, "hash type": 12, "algorithm": 35, "data block": 64, "hash block": 69, "data blocks": 79, "salt size": 80,
		"padding": 82, "behind the salt": 88 + 4, "end": 511,
	} {
		bad := bytes.Clone(good)
		bad[at] ^= 0x40
		if s, err := superblock.Parse(bad); err == nil && name != "salt size" {
			t.Errorf("%s: took %+v", name, s)
		}
	}
	if _, err := superblock.Parse(good[:511]); !errors.Is(err, superblock.ErrNone) {
		t.Errorf("short: %v", err)
	}
	if _, err := (superblock.Superblock{}).Encode(); err == nil {
		t.Error("encoded a superblock without data")
	}
}

func TestTarget(t *testing.T) {
	root, err := superblock.ParseHash(strings.Repeat("0a", 32))
	if err != nil {
		t.Fatal(err)
	}
	want := superblock.Target{
		Sectors: 40,
		Params:  "1 /dev/loop0 /dev/loop0 4096 4096 5 6 sha256 " + strings.Repeat("0a", 32) + " 73616c74 2 panic_on_corruption panic_on_error",
	}
	if diff := cmp.Diff(want, sample.Target("/dev/loop0", root)); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{"", "0a", strings.Repeat("0g", 32), strings.Repeat("0a", 33)} {
		if _, err := superblock.ParseHash(text); err == nil {
			t.Errorf("took root hash %q", text)
		}
	}
}

// FuzzParse: what is taken is written back as it was.
func FuzzParse(f *testing.F) {
	for _, s := range []superblock.Superblock{sample, {DataBlocks: 1}, {DataBlocks: 1 << 50, Salt: make([]byte, 256)}} {
		b, err := s.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:300])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := superblock.Parse(b)
		if err != nil {
			return
		}
		again, err := s.Encode()
		if err != nil || !bytes.Equal(again, b[:superblock.Size]) {
			t.Errorf("%+v is not what was read (%v)", s, err)
		}
	})
}
