package iso9660

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// maxName is what fits into a directory record, of at most 254 bytes, beside an identifier of 33 and the other
	// Rock Ridge fields; longer ones would need continuation areas.
	maxName = 254 - (33 + maxID + 1) - sizePX - sizeTF - 5
	maxID   = maxBase + len(version) // together with the dot
	maxBase = 31                     // characters of name, dot and extension (ECMA-119 7.5.1), and of a directory's name (7.6.3)
	version = ";1"                   // ECMA-119 7.5.1: every file has one
)

// checkName refuses what a Rock Ridge name cannot be.
func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("cannot use %q as a name", name)
	case !utf8.ValidString(name) || strings.ContainsAny(name, "\x00/"):
		return fmt.Errorf("cannot use %q as a name: not UTF-8, or has a NUL or slash", name)
	case len(name) > maxName:
		return fmt.Errorf("cannot use a name of %d bytes: at most %d", len(name), maxName)
	}
	return nil
}

// identifier is the name for readers without Rock Ridge: upper case letters, digits and underscores (d-characters,
// ECMA-119 7.4.1), one dot in a file's, a number at the end if it is taken.
func identifier(name string, dir bool, taken map[string]bool) (string, error) {
	base, ext := name, ""
	if i := strings.LastIndexByte(name, '.'); i > 0 && !dir {
		base, ext = name[:i], name[i+1:]
	}
	base, ext = dCharacters(base), dCharacters(ext)
	ext = ext[:min(len(ext), 8)]
	room, suffix := maxBase, ""
	if !dir {
		room, suffix = maxBase-1-len(ext), "."+ext+version
	}
	for i := range 10000 {
		tail := ""
		if i > 0 {
			tail = fmt.Sprintf("_%d", i)
		}
		id := base[:min(len(base), room-len(tail))] + tail + suffix
		if !taken[id] {
			return id, nil
		}
	}
	return "", fmt.Errorf("cannot find a free identifier like %q", base)
}

func dCharacters(s string) string {
	return strings.Map(func(r rune) rune {
		if isD(r) {
			return r
		}
		return '_'
	}, strings.ToUpper(s))
}

func isD(r rune) bool { return r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' }

// compareIdentifiers is the order of ECMA-119 9.3: by name, then by extension, the shorter one as if padded with blanks.
func compareIdentifiers(a, b string) int {
	baseA, extA, _ := strings.Cut(strings.TrimSuffix(a, version), ".")
	baseB, extB, _ := strings.Cut(strings.TrimSuffix(b, version), ".")
	if c := strings.Compare(baseA, baseB); c != 0 {
		return c
	}
	return strings.Compare(extA, extB)
}

// padded fills a field of n characters with blanks.
func padded(s string, n int) []byte { return []byte(s + strings.Repeat(" ", n-len(s))) }

// checkText refuses what the descriptor's fields for people cannot hold (ECMA-119 8.4).
func checkText(what, s string, limit int, allowed func(rune) bool) error {
	if len(s) > limit || strings.ContainsFunc(s, func(r rune) bool { return !allowed(r) }) {
		return fmt.Errorf("cannot use %q as %s: want at most %d characters of those allowed there", s, what, limit)
	}
	return nil
}
