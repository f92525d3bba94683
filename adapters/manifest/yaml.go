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

// EachYAML calls each with every document of a text that is not empty: a tree whose
// tokens have their places. It refuses what none of our files needs (anchors,
// aliases, merges, tags, directives, complex keys), nesting deeper than depth, and
// more keys and documents than the parser reads in reasonable time, before the
// parser sees any of it. Keys that stand twice are in the tree. The caller bounds
// the length of the text.
//
// Its own errors are [Errors], under the given name; those of each are returned as
// they are. The parser is a stranger's and its input is a stranger's too: a defect
// in it, or in a tree of its making, is an error.
func EachYAML(name string, data []byte, depth int, each func(ast.Node) error) (err error) {
	fail := func(line, column int, problem string) error {
		return Errors{{Where: Position{name, line, column}, Problem: problem}}
	}
	defer func() {
		if p := recover(); p != nil {
			err = fail(1, 1, fmt.Sprintf("the YAML parser gave up on it: %v", p))
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

// oneLine quotes nothing and breaks nothing: a message of the parser may hold
// what stood in the file.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// refuse finds the first token of what our files leave out of YAML, of
// nesting that would exhaust a recursive parser, and of more keys or documents
// than a parser reads in reasonable time that takes the square of their number.
func refuse(tokens token.Tokens, depth int) (*token.Token, string) {
	type block struct{ column, keys int }
	var (
		blocks    []block // that enclose the token
		flows     []int   // brackets that enclose it, by the keys in each
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
