package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
)

// node is a value in a file, either YAML or JSON.
type node struct {
	shape        shape
	text         string // of a scalar: its characters, escapes resolved
	line, column int
	keys         []*node // of a mapping
	values       []*node // of a mapping, one per key; of a list, its entries
}

type shape uint8

const (
	null shape = iota
	truth
	number // text is a number in the form of JSON
	words
	list
	mapping
)

// get returns the value of a key, or nil if there is none.
func (n *node) get(key string) *node {
	for i, k := range n.keys {
		if k.text == key {
			return n.values[i]
		}
	}
	return nil
}

// key returns the node of a key, or n itself if there is none.
func (n *node) key(name string) *node {
	for _, k := range n.keys {
		if k.text == name {
			return k
		}
	}
	return n
}

// plain returns the value in the types that the schema validator reads.
func (n *node) plain() any {
	switch n.shape {
	case truth:
		return strings.EqualFold(n.text, "true")
	case number:
		return json.Number(n.text)
	case words:
		return n.text
	case list:
		out := make([]any, len(n.values))
		for i, v := range n.values {
			out[i] = v.plain()
		}
		return out
	case mapping:
		out := make(map[string]any, len(n.keys))
		for i, k := range n.keys {
			out[k.text] = n.values[i].plain()
		}
		return out
	}
	return nil
}

// decimalNumber is the only accepted form of a number. Anything else is text, because YAML readers
// interpret 0x10, 1_000 and 012 differently, and 1e999999999 would exhaust memory.
var decimalNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?$`)

func numberOrWords(text string) shape {
	if decimalNumber.MatchString(text) {
		return number
	}
	return words
}

// read turns the bytes of a file into its documents.
func (l *loader) read(data []byte) ([]*node, error) {
	fail := func(offset int, format string, args ...any) error {
		line, column := place(data, offset)
		return Errors{{Where: Position{l.name, line, column}, Problem: fmt.Sprintf(format, args...)}}
	}
	if len(data) > maxBytes {
		return nil, Errors{{
			Where:   Position{l.name, 1, 1},
			Problem: fmt.Sprintf("is larger than %d MiB; divide it", maxBytes>>20),
		}}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if i := firstNoText(data); i >= 0 {
		return nil, fail(i, "byte 0x%02x is not text in UTF-8; save the file as UTF-8", data[i])
	}
	if marks := count(data); marks > maxMarks {
		return nil, fail(0, "has %d lines, colons, commas and brackets, at most %d are allowed; divide it", marks, maxMarks)
	}
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	isJSON := strings.HasSuffix(strings.ToLower(l.name), ".json")
	if isJSON || len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(data) {
		return l.readJSON(data, fail)
	}
	return l.readYAML(data)
}

// firstNoText returns the offset of the first byte that is not UTF-8 or is a control character
// other than a tab or a line end; -1 if there is none.
func firstNoText(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 || r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f {
			return i
		}
		i += size
	}
	return -1
}

// count returns an upper bound of the number of tokens without tokenizing.
func count(data []byte) int {
	n := 0
	for _, b := range data {
		switch b {
		case '\n', ':', ',', '[', ']', '{', '}', '-', '?', '"', '\'', '#', '&', '*', '!', '|', '>':
			n++
		}
	}
	return n
}

func place(data []byte, offset int) (line, column int) {
	before := data[:min(offset, len(data))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1
}

// cursor converts ascending offsets into lines and columns in one pass over the file.
type cursor struct {
	data                 []byte
	offset, line, column int
}

func (c *cursor) to(offset int) *node {
	for c.offset < offset {
		r, size := utf8.DecodeRune(c.data[c.offset:])
		c.offset += size
		c.column++
		if r == '\n' {
			c.line, c.column = c.line+1, 1
		}
	}
	return &node{line: c.line, column: c.column}
}

func (l *loader) readJSON(data []byte, fail func(int, string, ...any) error) ([]*node, error) {
	places := cursor{data: data, line: 1, column: 1}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	// next returns the next token and where it begins, which the decoder does not report.
	next := func() (json.Token, *node, error) {
		at := int(dec.InputOffset())
		for at < len(data) && strings.IndexByte(" \t\r\n,:", data[at]) >= 0 {
			at++
		}
		n := places.to(at)
		tok, err := dec.Token()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, fail(at, "is not JSON: %v", err)
		}
		return tok, n, err
	}
	var value func(tok json.Token, n *node, depth int) error
	value = func(tok json.Token, n *node, depth int) error {
		if depth > maxDepth {
			return Errors{{Where: l.at(n), Problem: fmt.Sprintf("nests deeper than %d", maxDepth)}}
		}
		switch v := tok.(type) {
		case nil:
			n.shape, n.text = null, "null"
		case bool:
			n.shape, n.text = truth, fmt.Sprint(v)
		case json.Number:
			n.shape, n.text = numberOrWords(v.String()), v.String()
		case string:
			n.shape, n.text = words, v
		case json.Delim:
			n.shape = list
			if v == '{' {
				n.shape = mapping
			}
			for {
				tok, child, err := next()
				if errors.Is(err, io.EOF) {
					err = fail(len(data), "is not JSON: it ends within a value")
				}
				if err != nil {
					return err
				}
				if d, ok := tok.(json.Delim); ok && (d == '}' || d == ']') {
					return nil
				}
				if n.shape == mapping {
					child.shape, child.text = words, tok.(string)
					n.keys = append(n.keys, child)
					if len(n.keys) > maxKeys {
						return Errors{{
							Where:   l.at(child),
							Problem: fmt.Sprintf("is one key too many: a mapping has at most %d", maxKeys),
						}}
					}
					if tok, child, err = next(); err != nil {
						if errors.Is(err, io.EOF) {
							err = fail(len(data), "is not JSON: it ends within a value")
						}
						return err
					}
				}
				if err := value(tok, child, depth+1); err != nil {
					return err
				}
				n.values = append(n.values, child)
			}
		}
		return nil
	}
	var docs []*node
	for {
		tok, n, err := next()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		if len(docs) == maxDocuments {
			return nil, Errors{{
				Where:   l.at(n),
				Problem: fmt.Sprintf("is one document too many: at most %d are allowed", maxDocuments),
			}}
		}
		if err := value(tok, n, 1); err != nil {
			return nil, err
		}
		docs = append(docs, n)
	}
}

func (l *loader) readYAML(data []byte) (docs []*node, err error) {
	// checkKeys finds duplicate keys, for JSON too.
	err = EachYAML(l.name, data, maxDepth, func(body ast.Node) error {
		n, err := l.fromYAML(body)
		if err == nil && n.shape != null {
			docs = append(docs, n)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return docs, nil
}

// fromYAML converts a tree of bounded depth.
func (l *loader) fromYAML(a ast.Node) (*node, error) {
	t := a.GetToken()
	n := &node{line: t.Position.Line, column: t.Position.Column}
	switch a := a.(type) {
	case *ast.NullNode:
		n.shape, n.text = null, "null"
	case *ast.BoolNode:
		n.shape, n.text = truth, t.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.shape, n.text = numberOrWords(t.Value), t.Value
	case *ast.StringNode:
		n.shape, n.text = words, a.Value
	case *ast.LiteralNode:
		n.shape, n.text = words, a.Value.Value
	case *ast.SequenceNode:
		n.shape = list
		for _, v := range a.Values {
			child, err := l.fromYAML(v)
			if err != nil {
				return nil, err
			}
			n.values = append(n.values, child)
		}
	case *ast.MappingNode:
		n.shape = mapping
		for _, v := range a.Values {
			if err := l.pair(n, v); err != nil {
				return nil, err
			}
		}
	case *ast.MappingValueNode:
		n.shape = mapping
		if err := l.pair(n, a); err != nil {
			return nil, err
		}
	default:
		return nil, Errors{{Where: l.at(n), Problem: "this part of YAML is not read; write plain lists, mappings and values"}}
	}
	return n, nil
}

func (l *loader) pair(n *node, p *ast.MappingValueNode) error {
	key, err := l.fromYAML(p.Key)
	if err != nil {
		return err
	}
	value, err := l.fromYAML(p.Value)
	if err != nil {
		return err
	}
	if key.shape == list || key.shape == mapping {
		return Errors{{Where: l.at(key), Problem: "a key is a word, not a list or mapping"}}
	}
	if len(n.keys) == 0 {
		// The position of a block is that of its first key; the parser reports that of a colon.
		n.line, n.column = key.line, key.column
	}
	n.keys, n.values = append(n.keys, key), append(n.values, value)
	return nil
}
