package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"quartermaster/domain"
)

// reader fills a struct from YAML.
type reader struct{ *File }

// shown is the length at which messages cut a key, in characters.
const shown = 64

func (r *reader) at(t *token.Token) string {
	return fmt.Sprintf("%s:%d:%d", r.name, t.Position.Line, t.Position.Column)
}

func (r *reader) read(data []byte, into reflect.Value) {
	// A defect in the third-party parser must not end the process.
	defer func() {
		if p := recover(); p != nil {
			r.addAt(r.name, "", "the YAML parser failed")
		}
	}()
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		r.addAt(r.name, "", "is not text in UTF-8")
		return
	}
	tokens := lexer.Tokenize(string(data))
	if t, problem := refuseTokens(tokens); t != nil {
		r.addAt(r.at(t), "", "%s", problem)
		return
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // mapping refuses duplicates
	if err != nil {
		at, problem := r.name, "unknown error"
		if syntax := new(yaml.SyntaxError); errors.As(err, &syntax) && syntax.Token != nil {
			at, problem = r.at(syntax.Token), strings.Join(strings.Fields(syntax.Message), " ")
		}
		r.addAt(at, "", "is not YAML: %s", problem)
		return
	}
	bodies := 0
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if bodies++; bodies > 1 {
			r.addAt(r.at(doc.Body.GetToken()), "", "is a second document; a configuration is one")
			return
		}
		r.mapping(doc.Body, "", into)
	}
}

// refuseTokens finds the first token that a configuration does not need and that could make a
// YAML bomb.
func refuseTokens(tokens token.Tokens) (*token.Token, string) {
	const mostTokens, mostColumn, mostFlows = 10_000, 60, 8
	flows := 0
	for i, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return t, "anchors, aliases and merges are not read; write the value out"
		case token.TagType, token.DirectiveType, token.MappingKeyType:
			return t, "tags, directives and complex keys are not read; leave them out"
		case token.SequenceStartType, token.MappingStartType:
			flows++
		case token.SequenceEndType, token.MappingEndType:
			flows = max(0, flows-1)
		}
		isKey := t.Type == token.SequenceEntryType || i+1 < len(tokens) && tokens[i+1].Type == token.MappingValueType
		if flows > mostFlows || flows == 0 && isKey && t.Position.Column > mostColumn {
			return t, "nests too deep for a configuration"
		}
		if i > mostTokens {
			return t, "is too long for a configuration"
		}
	}
	return nil, ""
}

// mapping fills a struct.
func (r *reader) mapping(n ast.Node, path string, into reflect.Value) {
	var pairs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.NullNode:
		return
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		r.addAt(r.at(n.GetToken()), path, "is %s, want keys with values", shapeOf(n))
		return
	}
	var known []string
	at := map[string]reflect.Value{}
	for i := range into.NumField() {
		if key := into.Type().Field(i).Tag.Get("yaml"); key != "" {
			known = append(known, key)
			at[key] = into.Field(i)
		}
	}
	first := map[string]*token.Token{}
	for _, p := range pairs {
		t := p.Key.GetToken()
		key, ok := scalar(p.Key)
		keyPath := strings.TrimPrefix(path+"."+key, ".")
		switch v, isKnown := at[key]; {
		case !ok:
			r.addAt(r.at(t), path, "a key is a word")
		case !isKnown:
			r.addAt(r.at(t), domain.Clip(keyPath, shown), "unknown field; %s", domain.Suggest(key, known))
		case first[key] != nil:
			r.addAt(r.at(t), keyPath, "stands on line %d already; keep one of them", first[key].Position.Line)
		default:
			first[key] = t
			if v.Kind() == reflect.Struct {
				r.from[keyPath] = Origin{FromFile, r.at(t)}
			}
			r.value(p.Value, keyPath, v)
		}
	}
}

// value fills a field from a node. A null leaves the field unset.
func (r *reader) value(n ast.Node, path string, v reflect.Value) {
	if _, null := n.(*ast.NullNode); null {
		return
	}
	at := r.at(n.GetToken())
	if v.Kind() == reflect.Struct {
		r.mapping(n, path, v)
		return
	}
	if v.Kind() == reflect.Map {
		r.words(n, path, v)
		return
	}
	r.from[path] = Origin{FromFile, at}
	if v.Kind() != reflect.Slice {
		text, ok := scalar(n)
		if !ok {
			r.addAt(at, path, "is %s, want one value%s", shapeOf(n), hint(n))
		} else if err := set(v, text); err != nil {
			r.addAt(at, path, "%v", err)
		}
		return
	}
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.addAt(at, path, "is %s, want a list: begin each entry with a dash", shapeOf(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
	for i, e := range list.Values {
		entry := fmt.Sprintf("%s[%d]", path, i)
		r.from[entry] = Origin{FromFile, r.at(start(e))}
		if _, null := e.(*ast.NullNode); null {
			r.Add(entry, "is empty")
			continue
		}
		r.value(e, entry, v.Index(i))
	}
}

// words fills a map of strings.
func (r *reader) words(n ast.Node, path string, v reflect.Value) {
	var pairs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		r.addAt(r.at(n.GetToken()), path, "is %s, want keys with values", shapeOf(n))
		return
	}
	r.from[path] = Origin{FromFile, r.at(n.GetToken())}
	v.Set(reflect.MakeMap(v.Type()))
	for _, p := range pairs {
		key, ok := scalar(p.Key)
		value, single := scalar(p.Value)
		at := r.at(p.Key.GetToken())
		switch {
		case !ok || !single:
			r.addAt(at, path, "want one word after each key")
		case v.MapIndex(reflect.ValueOf(key)).IsValid():
			r.addAt(at, path+"."+domain.Clip(key, shown), "duplicate key; keep one of them")
		default:
			v.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(value))
		}
	}
}

// start returns the first token of a value. For a block mapping the parser itself reports the
// first colon.
func start(n ast.Node) *token.Token {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken()
	}
	return n.GetToken()
}

// hint suggests quoting a value that was read as a mapping: within braces the parser reads
// host:port as one.
func hint(n ast.Node) string {
	if shapeOf(n) == "a mapping" {
		return "; quote it if it holds a colon"
	}
	return ""
}

// scalar returns the text of a single value.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimRight(n.Value.Value, "\n"), true
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func shapeOf(n ast.Node) string {
	switch n.(type) {
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	}
	return "a single value"
}

// Joined returns the errors that [errors.Join] joined, or the error itself.
func Joined(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
