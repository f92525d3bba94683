package domain

import "strings"

// Suggest returns a hint with the known word that is nearest to an unknown one, or else all known
// words.
func Suggest(word string, known []string) string {
	best, at := len(word)/3+2, ""
	for _, k := range known {
		if d := distance(word, k); d < best {
			best, at = d, k
		}
	}
	if at != "" {
		return "did you mean " + at + "?"
	}
	return "known are " + strings.Join(known, ", ")
}

// distance is the number of letters to insert, delete or replace (Levenshtein).
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// Clip returns at most n characters of a text for people. A longer text ends in an ellipsis, which
// counts.
func Clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
