//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/format/verity/superblock"
)

func TestRootHash(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	for _, test := range []struct {
		cmdline string
		given   bool
		err     string
	}{
		{"console=ttyS0 quiet\n", false, ""},
		{"console=ttyS0 talos.verity=" + hash + "\n", true, ""},
		{`"talos.verity=` + hash + `"`, true, ""},
		{"xtalos.verity=" + hash, false, ""},
		{"talos.verity=", true, "cannot use root hash"},
		{"talos.verity=" + hash[2:], true, "cannot use root hash"},
		{"talos.verity=" + hash + " talos.verity=" + hash, true, "given twice"},
	} {
		got, given, err := rootHash(test.cmdline)
		if given != test.given || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: given %v, error %v", test.cmdline, given, err)
		}
		if given && err == nil && got[31] != 0xab {
			t.Errorf("%q: hash %x", test.cmdline, got)
		}
	}
}

func TestReadSuperblock(t *testing.T) {
	image := func(magic string, used, blocks uint64) []byte {
		head, err := superblock.Superblock{DataBlocks: blocks, Salt: []byte("salt")}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 8192)
		copy(b, magic)
		binary.LittleEndian.PutUint64(b[40:], used)
		return append(b, head...)
	}
	if s, err := readSuperblock(bytes.NewReader(image("hsqs", 5000, 2))); err != nil || s.DataBlocks != 2 {
		t.Errorf("got %+v, %v", s, err)
	}
	for name, b := range map[string][]byte{
		"no squashfs":     image("sqsh", 5000, 2),
		"other blocks":    image("hsqs", 5000, 3),
		"no tree":         image("hsqs", 5000, 2)[:8192],
		"tree elsewhere":  image("hsqs", 4000, 2),
		"size beyond all": image("hsqs", 1<<63, 2),
		"empty":           nil,
	} {
		if s, err := readSuperblock(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: took %+v", name, s)
		}
	}
}
