// Package dimension is the registry of dimensions that answers are grouped and filtered by.
//
// A [Set] lists the dimensions of one kind of answer: the name of each, how it is read, and the
// name of its empty value. Parsing and answering a query use the same set, so that every dimension
// that can be requested is answered.
//
// What always holds: everything that is counted has one value in each dimension, so the groups of
// any grouping add up to the same total. An unknown value is [Unknown]; nothing is left out because
// of it.
package dimension

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Name is a dimension's name in queries and answers.
type Name string

// Special values of a dimension.
const (
	Unknown = "unknown" // not stated
	Mixed   = "mixed"   // several that differ
	None    = "none"    // not applicable: idle time has no workload
)

// Of is a dimension of a source S: an allocation, a moment of a GPU. Keys K hold the values of the
// requested dimensions and nothing else, so that equal keys are one group.
type Of[S, K any] struct {
	Name Name
	Doc  string // what it means, in one line
	// Blank is what a table shows for an empty value, such as "(nobody)". A dimension
	// without Blank has no empty value.
	Blank string
	// Values are all possible values, except Unknown, Mixed and None; nil if any text is possible.
	Values []string
	// Read copies the source's value into a key.
	Read func(*S, *K)
	// Value is the text of a key's value.
	Value func(*K) string
	// Compare orders keys by the dimension; nil orders them by text.
	Compare func(a, b *K) int
	// With returns the dimension whose name ends in rest, where the end of Name is a word in capitals that stands for
	// any text, as in tag:KEY. Such a dimension has no Read and no Value of its own.
	With func(rest string) Of[S, K]
}

// prefix returns the part of the name before the word in capitals.
func (o *Of[S, K]) prefix() string {
	return strings.TrimRight(string(o.Name), "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
}

// Set lists the dimensions of an answer.
type Set[S any, K comparable] []Of[S, K]

// Names returns all names.
func (s Set[S, K]) Names() []Name {
	names := make([]Name, len(s))
	for i := range s {
		names[i] = s[i].Name
	}
	return names
}

// Find returns the dimension with a name, nil if there is none.
func (s Set[S, K]) Find(name Name) *Of[S, K] {
	for i := range s {
		d := &s[i]
		if d.With == nil {
			if d.Name == name {
				return d
			}
			continue
		}
		if rest, ok := strings.CutPrefix(string(name), d.prefix()); ok && rest != "" {
			of := d.With(rest)
			return &of
		}
	}
	return nil
}

// UnknownError is an unknown dimension, or an impossible value of a dimension. The caller picks one
// of Known.
type UnknownError struct {
	What  string // "dimension", or the name of the dimension of the value
	Name  string
	Known []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%s %q is unknown; known are %s", e.What, e.Name, strings.Join(e.Known, ", "))
}

// Parse reads names. It returns an error for unknown and repeated names.
func (s Set[S, K]) Parse(names []string) ([]Name, error) {
	by := make([]Name, len(names))
	for i, n := range names {
		by[i] = Name(n)
	}
	_, err := s.By(by)
	return by, err
}

// By returns the dimensions with the given names, in their order.
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

// Condition restricts an answer to some values of a dimension.
type Condition struct {
	Dimension Name     `json:"dimension"`
	Values    []string `json:"values"`
}

// ParseConditions reads conditions of the form dimension=value. Several for one dimension become
// one condition that any of the values meets. The result is sorted, so that equal queries are
// equal.
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

// Picker decides which sources meet all given conditions.
type Picker[S any, K comparable] struct {
	of     []*Of[S, K]
	values [][]string
	key    K // of the current source
	last   K // the key of the last decision
	judged bool
	meets  bool
}

// Picker returns a picker for conditions. It returns an error for a dimension that is unknown or
// named twice, and for an impossible value.
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

// Groups returns keys with their values, ordered by dimension. Keys that are equal in all
// dimensions are ordered by then.
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

// Named returns the values of a group by dimension name.
func Named[S, K any](by []*Of[S, K], g Group[K]) map[Name]string {
	named := make(map[Name]string, len(by))
	for i, d := range by {
		named[d.Name] = g.Values[i]
	}
	return named
}
