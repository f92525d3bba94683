package parquet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// column is a column of a file at the top level: one of values, or one that is read as JSON.
type column struct {
	name   string
	single *leaf // nil for a nested column
	node   *node
	json   bytes.Buffer
}

// node is a node of the schema of a nested column.
type node struct {
	name                   string
	leaf                   *leaf
	isMap, isList          bool
	repeated               bool
	definition, repetition int // levels of a value that is present
	children               []*node
	leaves                 []*leaf // below it, in order
}

// maxDepth bounds the depth of a nested column.
const maxDepth = 8

func (t *Table) column(c *parquet.Column) (*column, error) {
	col := &column{name: c.Name()}
	if c.Leaf() && !c.Repeated() {
		l, err := t.leaf(c)
		if err != nil {
			return nil, err
		}
		l.single, col.single = true, l
		return col, nil
	}
	var err error
	col.node, err = t.node(c, 1)
	if err == nil && len(col.node.leaves) == 0 {
		err = fmt.Errorf("column %s has no values", c.Name())
	}
	return col, err
}

func (t *Table) node(c *parquet.Column, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("column %s is nested more than %d levels deep", strings.Join(c.Path(), "."), maxDepth)
	}
	n := &node{name: c.Name(), repeated: c.Repeated(), definition: c.MaxDefinitionLevel(), repetition: c.MaxRepetitionLevel()}
	if c.Leaf() {
		l, err := t.leaf(c)
		if err != nil {
			return nil, err
		}
		n.leaf, n.leaves = l, []*leaf{l}
		return n, nil
	}
	for _, child := range c.Columns() {
		below, err := t.node(child, depth+1)
		if err != nil {
			return nil, err
		}
		n.children, n.leaves = append(n.children, below), append(n.leaves, below.leaves...)
	}
	if lt := c.Type().LogicalType(); lt != nil && len(n.children) == 1 && n.children[0].repeated {
		switch lt.Value.(type) {
		case *format.MapType:
			n.isMap = len(n.children[0].children) == 2
		case *format.ListType:
			n.isList = true
		}
	}
	return n, nil
}

// text returns the text of the column in the next row, and how many rows after it, of at most most, have the same.
func (c *column) text(most int) (string, int, error) {
	if l := c.single; l != nil {
		return l.text(most)
	}
	text, err := c.nested()
	return text, 0, err
}

func (c *column) nested() (string, error) {
	values := make([][]parquet.Value, len(c.node.leaves))
	for i, l := range c.node.leaves {
		if l.repeated {
			if err := l.list(); err != nil {
				return "", err
			}
			values[i] = l.row
			continue
		}
		v, err := l.next()
		if err != nil {
			return "", err
		}
		values[i] = []parquet.Value{v.Clone()}
	}
	c.json.Reset()
	c.node.write(&c.json, values)
	if s := c.json.String(); s != "null" {
		return s, nil
	}
	return "", nil
}

// write appends the JSON of the node. The values are those of its leaves, of one instance of its
// parent.
func (n *node) write(b *bytes.Buffer, values [][]parquet.Value) {
	if n.repeated {
		b.WriteByte('[')
		for i, item := range n.items(values) {
			if i > 0 {
				b.WriteByte(',')
			}
			n.one(b, item)
		}
		b.WriteByte(']')
		return
	}
	n.one(b, values)
}

// items splits the values of a repeated node into those of its instances.
func (n *node) items(values [][]parquet.Value) [][][]parquet.Value {
	if len(values[0]) == 0 || values[0][0].DefinitionLevel() < n.definition {
		return nil // an empty list
	}
	var items [][][]parquet.Value
	for i, of := range values {
		item := 0
		for from := 0; from < len(of); item++ {
			to := from + 1
			for to < len(of) && of[to].RepetitionLevel() > n.repetition {
				to++
			}
			if item == len(items) {
				items = append(items, make([][]parquet.Value, len(values)))
			}
			items[item][i] = of[from:to]
			from = to
		}
	}
	return items
}

// one appends the JSON of one instance of the node.
func (n *node) one(b *bytes.Buffer, values [][]parquet.Value) {
	if len(values[0]) == 0 || values[0][0].DefinitionLevel() < n.definition {
		b.WriteString("null")
		return
	}
	switch {
	case n.leaf != nil:
		v := &values[0][0]
		s := n.leaf.format(n.leaf, v)
		if n.leaf.bare && json.Valid([]byte(s)) { // NaN is not
			b.WriteString(s)
		} else {
			quote(b, s)
		}
	case n.isMap:
		n.object(b, values)
	case n.isList:
		list := n.children[0]
		b.WriteByte('[')
		for i, item := range list.items(values) {
			if i > 0 {
				b.WriteByte(',')
			}
			// The group between a list and its elements has one child, except in old files.
			if len(list.children) == 1 {
				list.children[0].write(b, item)
			} else {
				list.one(b, item)
			}
		}
		b.WriteByte(']')
	default:
		b.WriteByte('{')
		at := 0
		for i, child := range n.children {
			if i > 0 {
				b.WriteByte(',')
			}
			quote(b, child.name)
			b.WriteByte(':')
			child.write(b, values[at:at+len(child.leaves)])
			at += len(child.leaves)
		}
		b.WriteByte('}')
	}
}

// object appends the JSON of a map, sorted by key.
func (n *node) object(b *bytes.Buffer, values [][]parquet.Value) {
	pair := n.children[0]
	type entry struct{ key, value string }
	var entries []entry
	key, value := pair.children[0], pair.children[1]
	for _, item := range pair.items(values) {
		var e entry
		if of := item[:len(key.leaves)]; key.leaf != nil && len(of[0]) > 0 && !of[0][0].IsNull() {
			e.key = key.leaf.format(key.leaf, &of[0][0])
		}
		var v bytes.Buffer
		value.write(&v, item[len(key.leaves):])
		e.value = v.String()
		entries = append(entries, e)
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	b.WriteByte('{')
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		quote(b, e.key)
		b.WriteByte(':')
		b.WriteString(e.value)
	}
	b.WriteByte('}')
}

// quote appends a JSON string, without the escapes for HTML.
func quote(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil { // a string always encodes
		panic(err)
	}
	b.Truncate(b.Len() - 1) // the line end
}
