package app

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"quartermaster/adapters/manifest"
	"quartermaster/simulations/whatif"
)

// Bounds of a scenario file, checked before parsing.
const (
	scenarioBytes = 1 << 20
	scenarioLines = 20_000
	scenarioDepth = 16
	scenarioMarks = 50_000 // colons, commas, brackets, dashes
)

// ReadScenarioFile reads a scenario from a file. Errors name file, line and column.
func (s *App) ReadScenarioFile(path string) (*whatif.Scenario, error) {
	data, err := s.readFile(path, nil, scenarioBytes)
	if err != nil {
		return nil, err
	}
	return ReadScenario(path, data)
}

// ReadScenario reads a scenario, of the content of a file. The path of its instance is relative to the file.
func ReadScenario(path string, data []byte) (*whatif.Scenario, error) {
	s, err := ParseScenario(data)
	if err != nil {
		return nil, InFile(path, err)
	}
	if s.Base.Instance != "" && !filepath.IsAbs(s.Base.Instance) {
		s.Base.Instance = filepath.Join(filepath.Dir(path), s.Base.Instance)
	}
	return s, nil
}

// ParseScenario parses a scenario from YAML. The error is [whatif.Errors].
func ParseScenario(data []byte) (*whatif.Scenario, error) {
	doc, err := ScenarioTree(data)
	if err != nil {
		return nil, err
	}
	return whatif.Parse(doc)
}

// ScenarioTree parses a file with a single document.
func ScenarioTree(data []byte) (doc *whatif.Node, err error) {
	fail := func(line, column int, format string, args ...any) error {
		return whatif.Errors{{Line: line, Column: column, Problem: fmt.Sprintf(format, args...)}}
	}
	if len(data) > scenarioBytes {
		return nil, fail(1, 1, "is larger than %d KiB, which no scenario needs", scenarioBytes>>10)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	line, column, marks := 1, 1, 0
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1, r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			return nil, fail(line, column, "byte 0x%02x is not text in UTF-8; save the file as UTF-8", data[i])
		case r == '\n':
			line, column = line+1, 0
		case strings.ContainsRune(":,[]{}-?&*!|>", r):
			marks++
		}
		if line > scenarioLines {
			return nil, fail(line, 1, "too many lines: a scenario has at most %d", scenarioLines)
		}
		if marks > scenarioMarks {
			return nil, fail(line, column, "too much punctuation: a scenario has at most %d colons, commas, dashes and brackets", scenarioMarks)
		}
		i += size
		column++
	}
	err = manifest.EachYAML("", data, scenarioDepth, func(body ast.Node) error {
		n, err := scenarioNode(body)
		if err == nil && doc != nil {
			err = fail(n.Line, n.Column, "a second scenario begins here: write one scenario to a file")
		}
		doc = n
		return err
	})
	var broken manifest.Errors
	switch {
	case errors.As(err, &broken):
		var out whatif.Errors
		for _, e := range broken {
			out = append(out, &whatif.Error{Line: e.Where.Line, Column: e.Where.Column, Problem: e.Problem})
		}
		return nil, out
	case err != nil:
		return nil, err
	case doc == nil:
		return nil, fail(1, 1, "is empty; begin with apiVersion: %s and kind: %s", whatif.APIVersion, whatif.FileKind)
	}
	return doc, nil
}

// scenarioNode converts a tree of bounded depth.
func scenarioNode(a ast.Node) (*whatif.Node, error) {
	t := a.GetToken()
	n := &whatif.Node{Line: t.Position.Line, Column: t.Position.Column, Shape: whatif.Scalar, Text: t.Value}
	pair := func(p *ast.MappingValueNode) error {
		k, err := scenarioNode(p.Key)
		if err != nil {
			return err
		}
		v, err := scenarioNode(p.Value)
		if err != nil {
			return err
		}
		if k.Shape != whatif.Scalar {
			return whatif.Errors{{Line: k.Line, Column: k.Column, Problem: "a key is a word, not a list or mapping"}}
		}
		if len(n.Keys) == 0 {
			n.Line, n.Column = k.Line, k.Column
		}
		n.Keys, n.Values = append(n.Keys, k), append(n.Values, v)
		return nil
	}
	switch a := a.(type) {
	case *ast.NullNode:
		n.Shape = whatif.Null
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
	case *ast.StringNode:
		n.Text, n.Quoted = a.Value, true
	case *ast.LiteralNode:
		n.Text, n.Quoted = strings.Join(strings.Fields(a.Value.Value), " "), true
	case *ast.SequenceNode:
		n.Shape = whatif.List
		for _, v := range a.Values {
			x, err := scenarioNode(v)
			if err != nil {
				return nil, err
			}
			n.Values = append(n.Values, x)
		}
	case *ast.MappingNode:
		n.Shape = whatif.Mapping
		for _, v := range a.Values {
			if err := pair(v); err != nil {
				return nil, err
			}
		}
	case *ast.MappingValueNode:
		n.Shape = whatif.Mapping
		if err := pair(a); err != nil {
			return nil, err
		}
	default:
		return nil, whatif.Errors{{Line: n.Line, Column: n.Column, Problem: "this part of YAML is not supported; write plain lists, mappings and values"}}
	}
	return n, nil
}
