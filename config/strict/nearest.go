package strict

import (
	"slices"
	"strings"
)

// Nearest returns the known name that a wrong one was probably meant to be, or "".
func Nearest(wrong string, known []string) string {
	best, bestDistance := "", 1+max(1, len(wrong)/3) // one letter in three may be wrong
	if len(wrong) > 64 {
		return ""
	}
	for _, name := range slices.Sorted(slices.Values(known)) {
		if d := distance(strings.ToLower(wrong), strings.ToLower(name)); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with their neighbour
// (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j-1]+cost, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
