package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Node is a value in a file, independent of the file's language.
type Node struct {
	Shape        Shape
	Text         string // of a scalar: its characters, escapes resolved
	Quoted       bool   // of a scalar: it is text, whatever it looks like
	Line, Column int
	Keys         []*Node // of a mapping
	Values       []*Node // of a mapping, one for each key; of a list, its entries
}

// Shape is the kind of a node.
type Shape uint8

// The shapes of nodes.
const (
	Null Shape = iota
	Scalar
	List
	Mapping
)

func (n *Node) get(key string) *Node {
	for i, k := range n.Keys {
		if k.Text == key {
			return n.Values[i]
		}
	}
	return nil
}

// describe shows a value in a message, on one line.
func (n *Node) describe() string {
	const most = 48
	switch n.Shape {
	case List:
		return "a list"
	case Mapping:
		return "a mapping"
	case Null:
		return "empty"
	}
	if text := []rune(n.Text); len(text) > most {
		return fmt.Sprintf("%q…", string(text[:most]))
	}
	return fmt.Sprintf("%q", n.Text)
}

// Error is one fault of a file. Lines and columns count from 1.
type Error struct {
	Line, Column int
	Path         string // for example changes[2].monthly; "" is the file as a whole
	Problem      string // what is wrong with which value, and what to do
}

func (f *Error) Error() string {
	at := fmt.Sprintf("%d:%d: ", f.Line, f.Column)
	if f.Path != "" {
		at += f.Path + ": "
	}
	return at + f.Problem
}

// Errors are all faults of a file, in order.
type Errors []*Error

func (fs Errors) Error() string {
	const most = 20
	lines := make([]string, 0, min(len(fs), most+1))
	for i, f := range fs {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more", len(fs)-most))
			break
		}
		lines = append(lines, f.Error())
	}
	return strings.Join(lines, "\n")
}

func (fs Errors) sorted() Errors {
	slices.SortStableFunc(fs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return fs
}
