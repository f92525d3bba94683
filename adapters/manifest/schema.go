package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"quartermaster/domain"
	"quartermaster/schemas"
)

// published returns the schema, compiled and as plain values. Messages about a field use its
// description and examples.
var published = sync.OnceValues(func() (*jsonschema.Schema, any) {
	const name = "urn:quartermaster:manifest:v1"
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.Manifest))
	if err != nil {
		return nil, nil
	}
	c := jsonschema.NewCompiler()
	if c.AddResource(name, doc) != nil {
		return nil, nil
	}
	s, err := c.Compile(name)
	if err != nil {
		return nil, nil
	}
	return s, doc
})

// check validates a document with the schema.
func (l *loader) check(doc *node) {
	if !l.checkKeys(doc, nil) {
		return
	}
	schema, raw := published()
	if schema == nil {
		l.fault(doc, "", "the schema built into this program does not compile")
		return
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(doc.plain()); errors.As(err, &invalid) {
		l.explain(doc, raw, invalid)
	} else if err != nil {
		l.fault(doc, "", "%v", err)
	}
}

// checkKeys reports duplicate keys of mappings, of which the schema would see only the last.
func (l *loader) checkKeys(n *node, path []string) bool {
	ok := true
	seen := make(map[string]*node, len(n.keys))
	for i, k := range n.keys {
		if first := seen[k.text]; first != nil {
			l.fault(k, join(append(path, k.text)), "stands on line %d already; keep one of them", first.line)
			ok = false
		}
		seen[k.text] = k
		ok = l.checkKeys(n.values[i], append(path, k.text)) && ok
	}
	if n.shape == list {
		for i, v := range n.values {
			ok = l.checkKeys(v, append(path, strconv.Itoa(i))) && ok
		}
	}
	return ok
}

// explain turns a schema error into faults of the file.
func (l *loader) explain(doc *node, raw any, e *jsonschema.ValidationError) {
	if len(e.Causes) > 0 {
		for _, c := range e.Causes {
			l.explain(doc, raw, c)
		}
		return
	}
	n := doc
	for _, part := range e.InstanceLocation {
		n = n.child(part)
	}
	field := join(e.InstanceLocation)
	def := lookUp(raw, e.SchemaURL)
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		known := names(def["properties"])
		for _, p := range k.Properties {
			path := join(append(slices.Clone(e.InstanceLocation), p))
			l.fault(n.key(p), path, "unknown field; %s", domain.Suggest(p, known))
		}
	case *kind.Required:
		l.fault(n, field, "lacks %s, which it needs", strings.Join(k.Missing, ", "))
	case *kind.Type:
		l.fault(n, field, "is %s, want %s%s", n.describe(), kinds(k.Want), example(def))
	case *kind.Enum:
		want := make([]string, len(k.Want))
		for i, w := range k.Want {
			want[i] = fmt.Sprint(w)
		}
		l.fault(n, field, "%s is unknown; %s", n.describe(), domain.Suggest(n.text, want))
	case *kind.Const:
		l.fault(n, field, "is %s, want %v", n.describe(), k.Want)
	case *kind.Pattern:
		l.fault(n, field, "%s is not understood%s", n.describe(), form(def))
	case *kind.UniqueItems:
		l.fault(n.values[k.Duplicates[1]], field, "names %s twice", n.values[k.Duplicates[1]].describe())
	case *kind.MinLength:
		l.fault(n, field, "is empty%s", example(def))
	case *kind.MaxLength:
		l.fault(n, field, "has %d characters, at most %d are allowed", k.Got, k.Want)
	case *kind.Minimum:
		l.fault(n, field, "is %s, at least %s is allowed", n.describe(), k.Want.RatString())
	case *kind.Maximum:
		l.fault(n, field, "is %s, at most %s is allowed", n.describe(), k.Want.RatString())
	case *kind.MinProperties, *kind.MaxProperties:
		l.fault(n, field, "want exactly one of %s", strings.Join(names(def["properties"]), ", "))
	case *kind.MaxItems:
		l.fault(n, field, "has %d entries, at most %d are allowed", k.Got, k.Want)
	default:
		l.fault(n, field, "does not fit the schema at %s", e.SchemaURL)
	}
}

// child returns the value of a key or the entry at an index, or n itself if there is none.
func (n *node) child(part string) *node {
	if n.shape == list {
		if i, err := strconv.Atoi(part); err == nil && i < len(n.values) {
			return n.values[i]
		}
		return n
	}
	if v := n.get(part); v != nil {
		return v
	}
	return n
}

// describe shows a value in a message, on one line.
func (n *node) describe() string {
	const most = 64
	switch n.shape {
	case list:
		return "a list"
	case mapping:
		return "a mapping"
	case null:
		return "empty"
	case words:
		if len(n.text) > most {
			return strconv.Quote(n.text[:most]) + "…"
		}
		return strconv.Quote(n.text)
	}
	return n.text
}

// kinds describes the types that a schema allows.
func kinds(types []string) string {
	words := map[string]string{
		"string":  "text",
		"number":  "a number",
		"integer": "a whole number",
		"boolean": "true or false",
		"object":  "a mapping",
		"array":   "a list",
		"null":    "nothing",
	}
	out := make([]string, len(types))
	for i, t := range types {
		out[i] = words[t]
	}
	return strings.Join(out, " or ")
}

// form shows the form of a value: an example, else the description in the schema.
func form(def map[string]any) string {
	if s, ok := def["description"].(string); ok && def["examples"] == nil {
		return "; want: " + s
	}
	return example(def)
}

// example quotes the first example of a definition.
func example(def map[string]any) string {
	ex, ok := def["examples"].([]any)
	if !ok || len(ex) == 0 {
		return ""
	}
	if s, ok := ex[0].(string); ok {
		return "; write for example " + s
	}
	b, err := json.Marshal(ex[0])
	if err != nil {
		return ""
	}
	return "; write for example " + string(b)
}

func names(properties any) []string {
	m, _ := properties.(map[string]any)
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// lookUp resolves the fragment of a schema's address, which is a JSON pointer.
func lookUp(raw any, address string) map[string]any {
	_, pointer, _ := strings.Cut(address, "#")
	unescape := strings.NewReplacer("~1", "/", "~0", "~", "%24", "$")
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if part == "" {
			continue
		}
		m, _ := raw.(map[string]any)
		raw = m[unescape.Replace(part)]
	}
	m, _ := raw.(map[string]any)
	return m
}

// join formats a path, such as clusters[1].region.
func join(path []string) string {
	var b strings.Builder
	for i, p := range path {
		if _, err := strconv.Atoi(p); err == nil && i > 0 {
			b.WriteString("[" + p + "]")
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(p)
	}
	return b.String()
}
