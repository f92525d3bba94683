package bill

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"quartermaster/adapters/focus"
	"quartermaster/domain"
)

// ErrMapping is wrapped by every fault of a mapping. The user corrects the file.
var ErrMapping = errors.New("the mapping is wrong")

// Mapping says how a supplier's rows become rows of FOCUS.
type Mapping struct {
	Name    string `json:"mapping"`
	Version int    `json:"version"`
	About   string `json:"about"`
	Source  string `json:"source"` // where the supplier documents the columns
	// Required and Optional are the supplier's columns that rules may use.
	Required []string `json:"required"`
	Optional []string `json:"optional,omitempty"`
	Keep     []string `json:"keep,omitempty"` // columns that are kept under x_NAME
	// Rows is the path to the list of rows in a file of JSON, "." if the file is the list. It is empty if
	// the supplier has no JSON.
	Rows string `json:"rows,omitempty"`
	// Parameters and Tables are what the user gives beside the file.
	Parameters []Parameter `json:"parameters,omitempty"`
	Tables     []*Table    `json:"tables,omitempty"`
	Fields     []string    `json:"fields"`           // columns of FOCUS that have a rule, in order
	SHA256     string      `json:"sha256,omitempty"` // of the file

	rules      map[string]*rule // by field
	values     map[string]*rule
	parameters map[string]string
	tables     map[string]*Table
	given      map[string]bool // parameters and tables that the user gave
	documents  []focus.Document
}

// Documents returns the files that the user gave, the mapping or tables of it. Without them, lines cannot be made from a
// bill again.
func (m *Mapping) Documents() []focus.Document { return m.documents }

// String returns NAME@VERSION, as lines have it in x_Mapping. Each table follows as +NAME:HASH.
func (m *Mapping) String() string {
	name := fmt.Sprintf("%s@%d", m.Name, m.Version)
	for _, t := range m.Tables {
		if t.SHA256 != "" {
			name += "+" + t.Name + ":" + t.SHA256[:12]
		}
	}
	return name
}

//go:embed mappings/*.yaml
var shipped embed.FS

// Names returns the names of the mappings that are part of the program.
func Names() []string {
	files, err := fs.Glob(shipped, "mappings/*.yaml")
	if err != nil {
		panic(err) // the pattern is constant
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(f, "mappings/"), ".yaml")
	}
	slices.Sort(files)
	return files
}

// Named returns a mapping that is part of the program, and its text. It reports false if there is
// none of that name.
func Named(name string) (m *Mapping, text []byte, ok bool) {
	text, err := shipped.ReadFile("mappings/" + name + ".yaml")
	if err != nil {
		return nil, nil, false
	}
	if m, err = Parse(name+".yaml", text); err != nil {
		panic(err) // a test parses all of them
	}
	m.documents = nil
	return m, text, true
}

// maxFile bounds a mapping file, in bytes. Those of hyperscalers have ten thousand.
const maxFile = 1 << 20

// reader collects the faults of a file.
type reader struct {
	file   string
	faults []error
	m      *Mapping
	known  map[string]bool // declared columns
	uses   map[string][]use
}

// use is a place where a value is used by another one.
type use struct {
	name string
	node ast.Node
}

// Parse reads a mapping. Messages call the file name. The error joins all faults, each as
// file:line:column: text, and wraps ErrMapping.
func Parse(file string, text []byte) (*Mapping, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%w: %s: more than %d bytes", ErrMapping, file, maxFile)
	}
	r := &reader{file: file, known: map[string]bool{}, uses: map[string][]use{}}
	r.m = &Mapping{
		rules: map[string]*rule{}, values: map[string]*rule{}, parameters: map[string]string{}, tables: map[string]*Table{},
		given: map[string]bool{},
	}
	tree, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrMapping, file, strings.TrimSpace(strings.SplitN(err.Error(), "\n", 2)[0]))
	}
	switch {
	case len(tree.Docs) > 1:
		return nil, fmt.Errorf("%w: %s: want one document, found %d", ErrMapping, file, len(tree.Docs))
	case len(tree.Docs) == 0 || tree.Docs[0].Body == nil:
		return nil, fmt.Errorf("%w: %s: there is no mapping in the file", ErrMapping, file)
	}
	r.document(tree.Docs[0].Body)
	if len(r.faults) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrMapping, errors.Join(r.faults...))
	}
	sum := sha256.Sum256(bytes.TrimSpace(text))
	r.m.SHA256, r.m.documents = hex.EncodeToString(sum[:]), []focus.Document{{Name: file, Text: text}}
	return r.m, nil
}

// bad adds a fault at a node.
func (r *reader) bad(n ast.Node, format string, args ...any) {
	at := n.GetToken().Position
	r.faults = append(r.faults, fmt.Errorf("%s:%d:%d: %s", r.file, at.Line, at.Column, fmt.Sprintf(format, args...)))
}

// entry is a key of a mapping node.
type entry struct {
	key   string
	at    ast.Node // of the key
	value ast.Node
}

// entries returns the keys of a node. A key that is there twice is a fault.
func (r *reader) entries(n ast.Node, what string) []entry {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	case *ast.NullNode:
		return nil
	default:
		r.bad(n, "%s must be a mapping of keys", what)
		return nil
	}
	var all []entry
	for _, v := range values {
		e := entry{key: scalarText(v.Key), at: v.Key, value: v.Value}
		if i := slices.IndexFunc(all, func(o entry) bool { return strings.EqualFold(o.key, e.key) }); i >= 0 && what == "fields" {
			r.bad(v.Key, "field %s has two rules; the first is in line %d", e.key, all[i].at.GetToken().Position.Line)
			continue
		} else if i >= 0 && all[i].key == e.key {
			r.bad(v.Key, "%s is there twice; the first is in line %d", e.key, all[i].at.GetToken().Position.Line)
			continue
		}
		all = append(all, e)
	}
	return all
}

// scalarText returns the text of a scalar.
func scalarText(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.NullNode:
		return ""
	case ast.MapKeyNode:
		return strings.Trim(n.GetToken().Value, `"'`)
	}
	return n.GetToken().Value
}

func isScalar(n ast.Node) bool {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.LiteralNode:
		return true
	}
	return false
}

func (r *reader) text(n ast.Node, what string) string {
	if !isScalar(n) {
		r.bad(n, "%s must be a text", what)
		return ""
	}
	return scalarText(n)
}

func (r *reader) texts(n ast.Node, what string) []string {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.bad(n, "%s must be a list", what)
		return nil
	}
	var all []string
	for _, v := range list.Values {
		all = append(all, r.text(v, what))
	}
	return all
}

func (r *reader) document(body ast.Node) {
	m := r.m
	var fields, values ast.Node
	for _, e := range r.entries(body, "the mapping") {
		switch e.key {
		case "mapping":
			m.Name = r.text(e.value, e.key)
		case "version":
			n := 0
			if _, err := fmt.Sscanf(r.text(e.value, e.key), "%d", &n); err != nil || n < 1 {
				r.bad(e.value, "version must be a whole number from 1")
			}
			m.Version = n
		case "about":
			m.About = strings.TrimSpace(r.text(e.value, e.key))
		case "source":
			m.Source = strings.TrimSpace(r.text(e.value, e.key))
		case "required":
			m.Required = r.texts(e.value, e.key)
		case "optional":
			m.Optional = r.texts(e.value, e.key)
		case "keep":
			m.Keep = r.texts(e.value, e.key)
			for _, name := range m.Keep {
				defer r.declared(e.value, name)
			}
		case "rows":
			m.Rows = strings.TrimSpace(r.text(e.value, e.key))
		case "parameters":
			r.parameters(e.value)
		case "tables":
			r.tables(e.value)
		case "values":
			values = e.value
		case "fields":
			fields = e.value
		default:
			r.bad(e.at, "unknown key %s; %s", e.key, domain.Suggest(e.key, []string{
				"mapping", "version", "about", "source", "rows", "parameters", "tables", "required", "optional", "keep", "values", "fields",
			}))
		}
	}
	for _, name := range append(slices.Clone(m.Required), m.Optional...) {
		r.known[fold(name)] = true
	}
	switch {
	case m.Name == "" || strings.ContainsAny(m.Name, " \t\n@?&"):
		r.bad(body, "mapping must be a name without blanks")
	case m.Version == 0:
		r.bad(body, "version is missing")
	case len(m.Required) == 0:
		r.bad(body, "required is missing: a file is recognized by its columns")
	case fields == nil:
		r.bad(body, "fields is missing")
	}
	if len(r.faults) > 0 {
		return
	}
	var named []entry
	if values != nil {
		named = r.entries(values, "values")
		for _, e := range named {
			m.values[e.key] = nil // known before any rule is read
		}
	}
	for _, e := range named {
		m.values[e.key] = r.rule(e.value, e.key)
	}
	columns := focus.Columns()
	for _, e := range r.entries(fields, "fields") {
		i := slices.IndexFunc(columns, func(c string) bool { return strings.EqualFold(c, e.key) })
		custom := strings.HasPrefix(e.key, "x_") && len(e.key) > 2
		if i < 0 && !custom {
			r.bad(e.at, "%s is no column of FOCUS, nor a custom one, whose name begins with x_; %s", e.key, domain.Suggest(e.key, columns))
			continue
		}
		name := e.key
		if i >= 0 {
			name = columns[i]
		}
		m.rules[name] = r.rule(e.value, "")
	}
	m.Fields = slices.Sorted(maps.Keys(m.rules))
	for _, c := range []string{"BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodStart", "BillingPeriodEnd", "ChargeCategory", "ChargePeriodStart", "ChargePeriodEnd", "InvoiceIssuerName"} {
		if m.rules[c] == nil {
			r.bad(fields, "%s has no rule, and every line needs it", c)
		}
	}
	r.cycles(named)
}

// declared refuses a column that the mapping does not declare.
func (r *reader) declared(n ast.Node, name string) {
	if !r.known[fold(name)] {
		r.bad(n, "column %s is unknown: declare it under required or optional; %s", name,
			domain.Suggest(name, append(slices.Clone(r.m.Required), r.m.Optional...)))
	}
}

// cycles refuses values that need themselves.
func (r *reader) cycles(named []entry) {
	state := map[string]int{} // 1: being visited, 2: done
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		state[name] = 1
		for _, u := range r.uses[name] {
			switch state[u.name] {
			case 0:
				visit(u.name, append(path, u.name))
			case 1:
				i := slices.Index(path, u.name)
				r.bad(u.node, "value %s needs itself: %s", u.name, strings.Join(append(slices.Clone(path[max(i, 0):]), u.name), " → "))
			}
		}
		state[name] = 2
	}
	for _, e := range named {
		if state[e.key] == 0 {
			visit(e.key, []string{e.key})
		}
	}
}

func fold(name string) string { return strings.ToLower(strings.TrimSpace(name)) }
