package manifest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// EachYAML calls each with every nonempty document of a text, as a tree whose tokens have positions.
// Before parsing, it refuses features that our files do not need (anchors, aliases, merges, tags,
// directives, complex keys), nesting deeper than depth, and more keys and documents than the parser
// reads in reasonable time. Duplicate keys stay in the tree. The caller MUST limit the length of the
// text.
//
// Its own errors are [Errors] with the given name; errors of each are returned unchanged. It
// recovers panics of the third-party parser and of each, because the input is untrusted, and
// returns them as errors.
func EachYAML(name string, data []byte, depth int, each func(ast.Node) error) (err error) {
	fail := func(line, column int, problem string) error {
		return Errors{{Where: Position{name, line, column}, Problem: problem}}
	}
	defer func() {
		if p := recover(); p != nil {
			err = fail(1, 1, fmt.Sprintf("the YAML parser failed: %v", p))
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if t, problem := refuse(tokens, depth); t != nil {
		return fail(t.Position.Line, t.Position.Column, problem)
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) && syntax.Token != nil {
			return fail(syntax.Token.Position.Line, syntax.Token.Position.Column, "is not YAML: "+oneLine(syntax.Message))
		}
		return fail(1, 1, "is not YAML: "+oneLine(err.Error()))
	}
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if err := each(d.Body); err != nil {
			return err
		}
	}
	return nil
}

// oneLine joins a text into one line: a message of the parser may contain parts of the file.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// refuse returns the first refused token: of a feature that our files do not need, of nesting
// that would exhaust a recursive parser, or beyond the limits of keys and documents. The parser
// takes quadratic time in the number of keys.
func refuse(tokens token.Tokens, depth int) (*token.Token, string) {
	type block struct{ column, keys int }
	var (
		blocks    []block // that enclose the token
		flows     []int   // number of keys in each enclosing bracket
		documents int
	)
	for i, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return t, "anchors, aliases and merges are not read; write the value out"
		case token.TagType:
			return t, "tags are not read; leave " + t.Value + " out"
		case token.DirectiveType:
			return t, "directives are not read; leave the line out"
		case token.MappingKeyType:
			return t, "complex keys are not read; write key: value"
		case token.SequenceStartType, token.MappingStartType:
			flows = append(flows, 0)
		case token.SequenceEndType, token.MappingEndType:
			flows = flows[:max(0, len(flows)-1)]
		case token.DocumentHeaderType, token.DocumentEndType:
			flows, blocks = flows[:0], blocks[:0]
			if documents++; documents > maxDocuments {
				return t, fmt.Sprintf("is one document too many: at most %d are allowed", maxDocuments)
			}
		}
		isKey := i+1 < len(tokens) && tokens[i+1].Type == token.MappingValueType
		keys := 0
		switch {
		case len(flows) > 0 && isKey:
			flows[len(flows)-1]++
			keys = flows[len(flows)-1]
		case len(flows) == 0 && (isKey || t.Type == token.SequenceEntryType):
			column := t.Position.Column
			for len(blocks) > 0 && blocks[len(blocks)-1].column > column {
				blocks = blocks[:len(blocks)-1]
			}
			if len(blocks) == 0 || blocks[len(blocks)-1].column < column {
				blocks = append(blocks, block{column: column})
			}
			if isKey {
				blocks[len(blocks)-1].keys++
				keys = blocks[len(blocks)-1].keys
			}
		}
		if keys > maxKeys {
			return t, fmt.Sprintf("is one key too many: a mapping has at most %d", maxKeys)
		}
		if len(flows)+len(blocks) > depth {
			return t, fmt.Sprintf("nests deeper than %d", depth)
		}
	}
	return nil, ""
}
