package domain_test

import (
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
)

// Numbers are in one set exactly if joins connect them, and the set's name is its least member.
func TestSetsAreWhatJoinsConnect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "n")
		s, name := domain.NewSets(n), make([]int, n)
		for i := range name {
			name[i] = i
		}
		for range rapid.IntRange(0, 15).Draw(t, "joins") {
			i, j := rapid.IntRange(0, n-1).Draw(t, "i"), rapid.IntRange(0, n-1).Draw(t, "j")
			s.Join(i, j)
			least, other := min(name[i], name[j]), max(name[i], name[j])
			for k := range name {
				if name[k] == other {
					name[k] = least
				}
			}
		}
		for i := range name {
			if got := s.Find(i); got != name[i] {
				t.Fatalf("%d is in the set of %d, want %d", i, got, name[i])
			}
		}
	})
}
