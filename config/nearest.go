package config

import (
	"maps"
	"slices"
	"strings"
)

// nearest returns the known name that a wrong one was probably meant to be, or "".
func nearest[V any](wrong string, known map[string]V) string {
	best, bestDistance := "", 1+max(1, len(wrong)/3) // one letter in three may be wrong
	if len(wrong) > 64 {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if d := distance(strings.ToLower(wrong), strings.ToLower(name)); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance counts the letters to insert, delete or replace (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
