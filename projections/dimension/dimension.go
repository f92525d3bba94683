// Package dimension is the registry of what answers are grouped by and narrowed to.
//
// A [Set] lists the dimensions of one kind of answer: what each is called, how it is read,
// and what an empty value of it is called. Who parses a question and who answers it use
// the same set, so that no dimension can be asked for that is not answered.
//
// What always holds: everything that is counted has one value in each dimension, so the
// groups of any grouping add up to the same total. What nobody said is [Unknown], and
// nothing is left out for it.
package dimension

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Name is a dimension's name, as questions and answers have it.
type Name string

// Values that stand for none of a dimension's own.
const (
	Unknown = "unknown" // nobody said
	Mixed   = "mixed"   // several that differ
	None    = "none"    // there is nothing that could have one, as idle time has no workload
)

// Of is a dimension of what a source S is: an allocation, a moment of a GPU. Keys K have
// the values of those dimensions that were asked for, and nothing else, so that equal
// keys are one group.
type Of[S, K any] struct {
	Name Name
	Doc  string // what it says, in a line
	// Blank is what a table shows for an empty value, such as "(nobody)". A dimension
	// without Blank has no empty value.
	Blank string
	// Values are all that there are, apart from Unknown, Mixed and None; nil where any
	// text may be one.
	Values []string
	// Read copies the value of a source into a key.
	Read func(*S, *K)
	// Value is the text of a key's value.
	Value func(*K) string
	// Compare orders keys by the dimension; nil orders them by text.
	Compare func(a, b *K) int
}

// Set lists the dimensions of an answer.
type Set[S any, K comparable] []Of[S, K]

// Names returns the names of all.
func (s Set[S, K]) Names() []Name {
	names := make([]Name, len(s))
	for i := range s {
		names[i] = s[i].Name
	}
	return names
}

// Find returns a dimension, nil where there is none of the name.
func (s Set[S, K]) Find(name Name) *Of[S, K] {
	if i := slices.IndexFunc(s, func(d Of[S, K]) bool { return d.Name == name }); i >= 0 {
		return &s[i]
	}
	return nil
}

// UnknownError is a dimension that an answer does not have, or a value that a dimension
// cannot have. Who asked picks one of Known.
type UnknownError struct {
	What  string // dimension, or the name of the dimension whose value it is
	Name  string
	Known []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%s %q is unknown; known are %s", e.What, e.Name, strings.Join(e.Known, ", "))
}

// Parse reads names, and refuses what is unknown or named twice.
func (s Set[S, K]) Parse(names []string) ([]Name, error) {
	by := make([]Name, len(names))
	for i, n := range names {
		by[i] = Name(n)
	}
	_, err := s.By(by)
	return by, err
}

// By returns the dimensions of names, in their order.
func (s Set[S, K]) By(names []Name) ([]*Of[S, K], error) {
	by := make([]*Of[S, K], len(names))
	for i, n := range names {
		if by[i] = s.Find(n); by[i] == nil {
			return nil, s.unknown(n)
		}
		if slices.Contains(names[:i], n) {
			return nil, fmt.Errorf("dimension %q is named twice", n)
		}
	}
	return by, nil
}

func (s Set[S, K]) unknown(n Name) error {
	e := &UnknownError{What: "dimension", Name: string(n)}
	for i := range s {
		e.Known = append(e.Known, string(s[i].Name))
	}
	return e
}

// Condition narrows an answer to what has one of some values in a dimension.
type Condition struct {
	Dimension Name     `json:"dimension"`
	Values    []string `json:"values"`
}

// ParseConditions reads conditions of the form dimension=value. Several for one dimension
// are one condition that any of the values meets. The result is sorted, so that equal
// questions are equal.
func (s Set[S, K]) ParseConditions(words []string) ([]Condition, error) {
	var where []Condition
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			return nil, fmt.Errorf("condition %q is not of the form dimension=value", w)
		}
		i := slices.IndexFunc(where, func(c Condition) bool { return c.Dimension == Name(name) })
		if i < 0 {
			i = len(where)
			where = append(where, Condition{Dimension: Name(name)})
		}
		where[i].Values = append(where[i].Values, value)
	}
	for i := range where {
		slices.Sort(where[i].Values)
		where[i].Values = slices.Compact(where[i].Values)
	}
	slices.SortFunc(where, func(a, b Condition) int { return cmp.Compare(a.Dimension, b.Dimension) })
	_, err := s.Picker(where)
	return where, err
}

// Picker decides which sources meet all of some conditions.
type Picker[S any, K comparable] struct {
	of     []*Of[S, K]
	values [][]string
	key    K // of the source that is judged
	last   K // the key that was judged before
	judged bool
	meets  bool
}

// Picker returns what judges by conditions. It refuses a dimension that is unknown or named
// twice, and a value that its dimension cannot have.
func (s Set[S, K]) Picker(where []Condition) (*Picker[S, K], error) {
	names := make([]Name, len(where))
	p := &Picker[S, K]{}
	for i, c := range where {
		names[i] = c.Dimension
		p.values = append(p.values, c.Values)
	}
	var err error
	if p.of, err = s.By(names); err != nil {
		return nil, err
	}
	for i, d := range p.of {
		if len(p.values[i]) == 0 {
			return nil, fmt.Errorf("condition on %s has no value", d.Name)
		}
		known := append(slices.Clone(d.Values), Unknown, Mixed, None)
		for _, v := range p.values[i] {
			if d.Values != nil && !slices.Contains(known, v) {
				return nil, &UnknownError{What: string(d.Name), Name: v, Known: known}
			}
		}
	}
	return p, nil
}

// Picks reports whether a source meets the conditions.
func (p *Picker[S, K]) Picks(source *S) bool {
	if len(p.of) == 0 {
		return true
	}
	var none K
	p.key = none
	for _, d := range p.of {
		d.Read(source, &p.key)
	}
	if !p.judged || p.key != p.last {
		p.last, p.judged, p.meets = p.key, true, true
		for i, d := range p.of {
			p.meets = p.meets && slices.Contains(p.values[i], d.Value(&p.key))
		}
	}
	return p.meets
}

// Group is a key of groups with the texts of its values.
type Group[K any] struct {
	Key    *K
	Values []string // in the order of the dimensions
}

// Groups returns keys with their values, ordered by dimensions, the first that differs
// first. Keys that no dimension tells apart are ordered by then.
func Groups[S, K any](by []*Of[S, K], keys []K, then func(a, b *K) int) []Group[K] {
	groups := make([]Group[K], len(keys))
	values := make([]string, 0, len(keys)*len(by))
	for i := range keys {
		for _, d := range by {
			values = append(values, d.Value(&keys[i]))
		}
		groups[i] = Group[K]{&keys[i], values[i*len(by):]}
	}
	slices.SortFunc(groups, func(a, b Group[K]) int {
		for i, d := range by {
			c := strings.Compare(a.Values[i], b.Values[i])
			if d.Compare != nil {
				c = d.Compare(a.Key, b.Key)
			}
			if c != 0 {
				return c
			}
		}
		return then(a.Key, b.Key)
	})
	return groups
}

// Named returns the values of a group by the names of dimensions.
func Named[S, K any](by []*Of[S, K], g Group[K]) map[Name]string {
	named := make(map[Name]string, len(by))
	for i, d := range by {
		named[d.Name] = g.Values[i]
	}
	return named
}
