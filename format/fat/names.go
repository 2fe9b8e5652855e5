package fat

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxName = 255 // UTF-16 units (specification 1.03, "FAT Long Directory Entries")

	forbidden  = `"*/:<>?\|`        // in any name
	shortExtra = "$%'-_@~`!(){}^#&" // in short names, besides letters and digits
)

// checkName refuses what a long name cannot be.
func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("cannot use %q as a name", name)
	case !utf8.ValidString(name):
		return fmt.Errorf("cannot use %q as a name: not UTF-8", name)
	case strings.ContainsAny(name, forbidden):
		return fmt.Errorf("cannot use %q as a name: has one of %s", name, forbidden)
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ") || strings.HasPrefix(name, " "):
		return fmt.Errorf("cannot use %q as a name: begins with a space or ends with a space or dot", name)
	case len(utf16.Encode([]rune(name))) > maxName:
		return fmt.Errorf("cannot use a name of more than %d characters", maxName)
	}
	for _, r := range name {
		if r < 0x20 || r == 0x7f {
			return fmt.Errorf("cannot use %q as a name: has a control character", name)
		}
	}
	return nil
}

// volumeLabel pads a label to 11 bytes.
func volumeLabel(s string) ([11]byte, error) {
	label := [11]byte([]byte("NO NAME    "))
	if s == "" {
		return label, nil
	}
	if len(s) > len(label) || s != strings.ToUpper(s) || s[0] == ' ' {
		return label, fmt.Errorf("cannot use %q as a volume label: want at most 11 upper case letters and digits", s)
	}
	for _, c := range []byte(s) {
		if c != ' ' && !isShort(rune(c)) {
			return label, fmt.Errorf("cannot use %q as a volume label: has %q", s, c)
		}
	}
	copy(label[:], s+"           ")
	return label, nil
}

// isShort says whether a short name may have r.
func isShort(r rune) bool {
	return r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r < utf8.RuneSelf && strings.ContainsRune(shortExtra, r)
}

// shorten gives each entry of a directory its 8.3 name. Names that are one keep it, before others are numbered, so
// that no name depends on another's place in the list more than by its number.
func (n *node) shorten() error {
	taken := map[[11]byte]bool{}
	for _, e := range n.entries {
		base, ext, exact := shortParts(e.name)
		if !exact {
			continue
		}
		e.short = join(base, ext)
		e.long = base+dot(ext) != e.name // only the case differs
		taken[e.short] = true
	}
	for _, e := range n.entries {
		if base, ext, exact := shortParts(e.name); !exact {
			short, err := numbered(base, ext, taken)
			if err != nil {
				return fmt.Errorf("making a short name for %q: %w", e.name, err)
			}
			e.short, e.long = short, true
			taken[short] = true
		}
	}
	return nil
}

// shortParts is the basis of a short name (specification 1.03, "The Basis-Name Generation Algorithm"), and whether it
// says the same as the name but for case.
func shortParts(name string) (base, ext string, exact bool) {
	base = strings.TrimLeft(name, ".")
	if i := strings.LastIndexByte(base, '.'); i > 0 {
		base, ext = base[:i], base[i+1:]
	}
	base, ext = basis(base), basis(ext)
	exact = len(base) <= 8 && len(ext) <= 3 && base != "" && base+dot(ext) == strings.ToUpper(name)
	if base == "" {
		base = "_"
	}
	return base[:min(8, len(base))], ext[:min(3, len(ext))], exact
}

func basis(s string) string {
	var b strings.Builder
	for _, r := range strings.ToUpper(s) {
		switch {
		case r == ' ' || r == '.': // dropped
		case isShort(r):
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	return b.String()
}

// numbered is the numeric tail of the same algorithm: BASE~1, counting until the name is free.
func numbered(base, ext string, taken map[[11]byte]bool) ([11]byte, error) {
	for i := 1; i <= 999999; i++ {
		tail := fmt.Sprintf("~%d", i)
		if short := join(base[:min(len(base), 8-len(tail))]+tail, ext); !taken[short] {
			return short, nil
		}
	}
	return [11]byte{}, fmt.Errorf("cannot find a free one")
}

func join(base, ext string) [11]byte {
	return [11]byte([]byte(fmt.Sprintf("%-8s%-3s", base, ext)))
}

func dot(ext string) string {
	if ext == "" {
		return ""
	}
	return "." + ext
}

// checksum ties a long name's records to their short name (specification 1.03, ChkSum).
func checksum(short [11]byte) byte {
	var sum byte
	for _, c := range short {
		sum = sum>>1 | sum<<7
		sum += c
	}
	return sum
}
