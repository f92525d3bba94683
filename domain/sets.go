package domain

// Sets is a partition of the numbers from 0 into disjoint sets (union-find). The name of a set is
// its least member.
type Sets []int

// NewSets returns n sets of one number each.
func NewSets(n int) Sets {
	s := make(Sets, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// Find returns the name of the set that i is in.
func (s Sets) Find(i int) int {
	for s[i] != i {
		s[i] = s[s[i]]
		i = s[i]
	}
	return i
}

// Join merges the sets of i and j.
func (s Sets) Join(i, j int) {
	i, j = s.Find(i), s.Find(j)
	s[max(i, j)] = min(i, j)
}
