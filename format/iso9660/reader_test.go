package iso9660_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"testing"

	"github.com/talos-factory/talos-factory/format/iso9660"
)

// entry is a file or directory as read.
type entry struct {
	off, size   int64
	mode, links uint32
	stamp       string
	more        bool // the last record said that another extent follows
}

func (e entry) bytes(t testing.TB, r io.ReaderAt) []byte {
	t.Helper()
	b := make([]byte, e.size)
	if n, err := r.ReadAt(b, e.off); n < len(b) {
		t.Fatal(err)
	}
	return b
}

// read lists a volume. It shares no code and no constant with the planner but the size of a sector, and believes nothing:
// numbers in both orders of bytes must agree, extents must follow each other, records must be in order.
func read(t testing.TB, r io.ReaderAt) map[string]entry {
	t.Helper()
	descriptor := entry{off: 16 * 2048, size: 2048}.bytes(t, r)
	if string(descriptor[:7]) != "\x01CD001\x01" {
		t.Fatalf("the primary descriptor begins with %q", descriptor[:7])
	}
	entries := map[string]entry{}
	root := readRecord(t, descriptor[156:190]).entry
	readDirectory(t, r, "", root, entries)

	// The path table has to know the same directories.
	size := number(t, descriptor[132:])
	for _, table := range []struct {
		at    int64
		order binary.ByteOrder
	}{
		{int64(binary.LittleEndian.Uint32(descriptor[140:])), binary.LittleEndian},
		{int64(binary.BigEndian.Uint32(descriptor[148:])), binary.BigEndian},
	} {
		places := map[int64]bool{}
		for b := (entry{off: table.at * iso9660.Sector, size: size}).bytes(t, r); len(b) > 0; b = b[(8+int(b[0])+1)&^1:] {
			places[int64(table.order.Uint32(b[2:]))*iso9660.Sector] = true
		}
		dirs := 1
		for name, e := range entries {
			if e.mode&0o40000 != 0 {
				dirs++
				if !places[e.off] {
					t.Errorf("the path table does not know directory %s", name)
				}
			}
		}
		if len(places) != dirs || !places[root.off] {
			t.Errorf("the path table has %d directories, the tree %d", len(places), dirs)
		}
	}
	return entries
}

type readEntry struct {
	entry
	id, name string
}

func readDirectory(t testing.TB, r io.ReaderAt, dir string, d entry, entries map[string]entry) {
	t.Helper()
	last, count := "", 0
	for content := d.bytes(t, r); len(content) > 0; content = content[2048:] {
		for b := content[:2048]; len(b) > 0 && b[0] > 0; b = b[b[0]:] {
			e := readRecord(t, b[:b[0]])
			if count++; count <= 2 {
				if e.id != string(rune(count-1)) || count == 1 && e.off != d.off {
					t.Errorf("record %d of %q is %q at %d", count, dir, e.id, e.off)
				}
				continue
			}
			name := path.Join(dir, e.name)
			old, known := entries[name]
			switch {
			case known && old.more && old.off+old.size == e.off:
				e.off, e.size = old.off, old.size+e.size
			case known:
				t.Errorf("%s: a second record, and not of the next extent", name)
			case e.id <= last:
				t.Errorf("%s: identifier %q after %q", name, e.id, last)
			}
			last = e.id
			entries[name] = e.entry
			if e.mode&0o40000 != 0 {
				readDirectory(t, r, name, e.entry, entries)
			}
		}
	}
}

func readRecord(t testing.TB, b []byte) readEntry {
	t.Helper()
	e := readEntry{id: string(b[33 : 33+b[32]])}
	e.off, e.size, e.more = number(t, b[2:])*iso9660.Sector, number(t, b[10:]), b[25]&0x80 != 0
	e.stamp = fmt.Sprintf("%d-%02d-%02d %02d:%02d:%02d", 1900+int(b[18]), b[19], b[20], b[21], b[22], b[23])
	use := b[33+b[32]:]
	if b[32]%2 == 0 {
		use = use[1:]
	}
	for ; len(use) > 4; use = use[use[2]:] {
		switch string(use[:2]) {
		case "PX":
			e.mode, e.links = uint32(number(t, use[4:])), uint32(number(t, use[12:]))
		case "NM":
			e.name = string(use[5:use[2]])
		}
	}
	return e
}

// number is one of 32 bits in both orders of bytes.
func number(t testing.TB, b []byte) int64 {
	t.Helper()
	little, big := binary.LittleEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	if little != big {
		t.Errorf("a number is %d and %d", little, big)
	}
	return int64(little)
}
