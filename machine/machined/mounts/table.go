//go:build linux

package mounts

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mounted is one line of /proc/self/mountinfo.
type Mounted struct {
	Source, Target, Type, Options string
}

// Current lists what is mounted, in the order it was mounted.
func Current() ([]Mounted, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()

	var out []Mounted

	s := bufio.NewScanner(f)
	for s.Scan() {
		m, err := parseLine(s.Text())
		if err != nil {
			return nil, err
		}

		out = append(out, m)
	}

	return out, s.Err()
}

// parseLine reads a line as proc_pid_mountinfo(5) describes it: six fields, any number of optional ones, "-", then type, source
// and super options.
func parseLine(line string) (Mounted, error) {
	left, right, ok := strings.Cut(line, " - ")
	first, last := strings.Fields(left), strings.Fields(right)

	if !ok || len(first) < 6 || len(last) < 2 {
		return Mounted{}, fmt.Errorf("mountinfo line %q has not the expected fields", line)
	}

	return Mounted{Source: unescape(last[1]), Target: unescape(first[4]), Type: last[0], Options: first[5]}, nil
}

// unescape undoes the octal escapes of blanks and backslashes.
func unescape(s string) string {
	var out strings.Builder

	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3

				continue
			}
		}

		out.WriteByte(s[i])
	}

	return out.String()
}

// Under lists mount points below and at the prefix, the last mounted first: the order in which they can be unmounted.
func Under(all []Mounted, prefix string) []string {
	var out []string

	for i := len(all) - 1; i >= 0; i-- {
		if t := all[i].Target; t == prefix || strings.HasPrefix(t, prefix+"/") {
			out = append(out, t)
		}
	}

	return out
}

// Size returns the bytes of a file system and those that are available to ordinary users.
func Size(target string) (size, available uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(target, &s); err != nil {
		return 0, 0, err
	}

	return s.Blocks * uint64(s.Bsize), s.Bavail * uint64(s.Bsize), nil
}
