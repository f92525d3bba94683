package bill

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/shopspring/decimal"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// rule computes a cell. It is one of the kinds of the package comment.
type rule struct {
	kind     string
	text     string // a constant, a column, a value, a parameter, a table, a path, a separator, a unit
	of       []*rule
	cases    map[string]*rule
	fallback *rule // of a switch; nil: a value without a case is a bad row
	layout   string
	zone     *time.Location
	plus     time.Duration
	at       *rule // of a lookup: the time
}

// kinds are the keys that say what a rule is, with the keys that may stand beside them.
var kinds = map[string][]string{
	"column": nil, "value": nil, "first": nil, "join": {"with"}, "json": {"path"}, "json_sum": {"path"}, "json_pairs": nil, "switch": {"cases", "default"},
	"sum": nil, "difference": nil, "product": nil, "time": {"format", "zone"}, "start_of": {"at", "zone", "format"},
	"end_of": {"at", "zone", "format"}, "plus": {"at"}, "epoch": nil, "parameter": nil, "lookup": {"key", "at"},
}

// rule reads a rule. in is the value that it is the rule of, "" for a field.
func (r *reader) rule(n ast.Node, in string) *rule {
	if isScalar(n) {
		return &rule{kind: "constant", text: scalarText(n)}
	}
	keys := r.entries(n, "a rule")
	ru := &rule{}
	var at ast.Node
	for _, e := range keys {
		if _, ok := kinds[e.key]; !ok {
			continue
		}
		if ru.kind != "" {
			r.bad(e.at, "a rule is either %s or %s", ru.kind, e.key)
			return ru
		}
		ru.kind, at = e.key, e.value
	}
	if ru.kind == "" {
		if len(r.faults) == 0 {
			r.bad(n, "this is no rule: want a text, or a key such as column, switch or sum")
		}
		return ru
	}
	list := func() {
		seq, ok := at.(*ast.SequenceNode)
		if !ok || len(seq.Values) == 0 {
			r.bad(at, "%s needs a list of rules", ru.kind)
			return
		}
		for _, v := range seq.Values {
			ru.of = append(ru.of, r.rule(v, in))
		}
	}
	switch ru.kind {
	case "column":
		ru.text = fold(r.text(at, ru.kind))
		r.declared(at, r.text(at, ru.kind))
	case "value":
		ru.text = r.text(at, ru.kind)
		if _, ok := r.m.values[ru.text]; !ok {
			r.bad(at, "value %s is unknown: name it under values", ru.text)
		}
		r.uses[in] = append(r.uses[in], use{ru.text, at})
	case "parameter":
		ru.text = r.text(at, ru.kind)
		if _, ok := r.m.parameters[ru.text]; !ok {
			r.bad(at, "parameter %s is unknown: name it under parameters", ru.text)
		}
	case "lookup":
		ru.text = r.text(at, ru.kind)
		if r.m.tables[ru.text] == nil {
			r.bad(at, "table %s is unknown: name it under tables", ru.text)
		}
	case "first", "join", "sum", "product":
		list()
	case "difference":
		if list(); len(ru.of) != 2 {
			r.bad(at, "difference needs two rules")
		}
	case "json", "json_sum", "json_pairs", "switch", "time", "epoch":
		ru.of = []*rule{r.rule(at, in)}
	case "start_of", "end_of":
		ru.text = r.text(at, ru.kind)
		if !slices.Contains([]string{"month", "week", "day"}, ru.text) {
			r.bad(at, "%s is one of month, week and day", ru.kind)
		}
	case "plus":
		var err error
		if ru.plus, err = time.ParseDuration(r.text(at, ru.kind)); err != nil {
			r.bad(at, "plus is a duration such as 1h")
		}
	}
	for _, e := range keys {
		switch {
		case e.key == ru.kind:
		case !slices.Contains(kinds[ru.kind], e.key):
			r.bad(e.at, "%s has no key %s; %s", ru.kind, e.key, domain.Suggest(e.key, append(slices.Clone(kinds[ru.kind]), ru.kind)))
		case e.key == "with" || e.key == "path":
			ru.text = r.text(e.value, e.key)
		case e.key == "at" && ru.kind == "lookup":
			ru.at = r.rule(e.value, in)
		case e.key == "key":
			at = e.value
			list()
		case e.key == "at":
			ru.of = []*rule{r.rule(e.value, in)}
		case e.key == "format":
			ru.layout = r.text(e.value, e.key)
		case e.key == "zone":
			name := r.text(e.value, e.key)
			zone, err := time.LoadLocation(name)
			if err != nil || name == "" || name == "Local" {
				r.bad(e.value, "zone %q is unknown: want a name such as UTC or America/Los_Angeles", name)
			}
			ru.zone = zone
		case e.key == "default":
			ru.fallback = r.rule(e.value, in)
		case e.key == "cases":
			ru.cases = map[string]*rule{}
			for _, c := range r.entries(e.value, "cases") {
				ru.cases[c.key] = r.rule(c.value, in)
			}
		}
	}
	switch {
	case len(r.faults) > 0:
	case ru.kind == "lookup" && (ru.at == nil || len(ru.of) == 0):
		r.bad(at, "lookup needs key, a list of rules, and at, a time")
	case ru.kind == "lookup" && len(ru.of) != len(r.m.tables[ru.text].Key):
		r.bad(at, "table %s has a key of %d columns: %s", ru.text, len(r.m.tables[ru.text].Key), strings.Join(r.m.tables[ru.text].Key, ", "))
	case ru.kind == "switch" && len(ru.cases) == 0:
		r.bad(at, "switch needs cases")
	case (ru.kind == "json" || ru.kind == "json_sum") && ru.text == "":
		r.bad(at, "%s needs a path", ru.kind)
	case slices.Contains([]string{"start_of", "end_of", "plus"}, ru.kind) && len(ru.of) == 0:
		r.bad(at, "%s needs at", ru.kind)
	case slices.Contains([]string{"start_of", "end_of"}, ru.kind) && ru.zone == nil:
		r.bad(at, "%s needs a zone: suppliers' months begin at different times", ru.kind)
	}
	return ru
}

// row is a row of the supplier, with the values that were computed.
type row struct {
	m    *Mapping
	cell func(column string) string
	done map[string]string // values
	made int               // bytes of the texts that were joined
}

// eval computes a rule in a row. "" is null.
func (ru *rule) eval(w *row) (string, *tabular.Fault) {
	sub := func(i int) (string, *tabular.Fault) { return ru.of[i].eval(w) }
	switch ru.kind {
	case "constant":
		return ru.text, nil
	case "column":
		return w.cell(ru.text), nil
	case "value":
		if v, ok := w.done[ru.text]; ok {
			return v, nil
		}
		v, fault := w.m.values[ru.text].eval(w)
		if fault == nil {
			w.done[ru.text] = v
		}
		return v, fault
	case "parameter":
		return w.m.parameters[ru.text], nil
	case "lookup":
		return ru.lookup(w)
	case "first":
		for i := range ru.of {
			if v, fault := sub(i); v != "" || fault != nil {
				return v, fault
			}
		}
		return "", nil
	case "join":
		var parts []string
		for i := range ru.of {
			v, fault := sub(i)
			if fault != nil {
				return "", fault
			}
			if v != "" {
				parts = append(parts, v)
				w.made += len(v) + len(ru.text)
			}
			if w.made > maxMade {
				return "", &tabular.Fault{Reason: fmt.Sprintf("needs joined texts of more than %d bytes in a row", maxMade)}
			}
		}
		return strings.Join(parts, ru.text), nil
	case "switch":
		v, fault := sub(0)
		if fault != nil {
			return "", fault
		}
		if c, ok := ru.cases[v]; ok {
			return c.eval(w)
		}
		if ru.fallback == nil {
			return "", &tabular.Fault{Value: v, Reason: "is a value for which the mapping has no case"}
		}
		return ru.fallback.eval(w)
	case "json", "json_sum":
		v, fault := sub(0)
		if fault != nil || v == "" {
			if ru.kind == "json_sum" && fault == nil {
				return "0", nil
			}
			return "", fault
		}
		if ru.kind == "json" {
			return member(v, ru.text)
		}
		return sumOf(v, ru.text)
	case "json_pairs":
		v, fault := sub(0)
		if fault != nil || v == "" {
			return "", fault
		}
		return pairsOf(v)
	case "sum", "difference", "product":
		return ru.number(w)
	}
	v, fault := sub(0)
	if fault != nil || v == "" {
		return "", fault
	}
	t, fault := ru.parse(v)
	if fault != nil {
		return "", fault
	}
	switch ru.kind {
	case "start_of", "end_of":
		t = bound(t.In(ru.zone), ru.text, ru.kind == "end_of")
	case "plus":
		t = t.Add(ru.plus)
	}
	return t.UTC().Format(time.RFC3339Nano), nil
}

// bound returns the beginning of the unit that holds a time, or its end.
func bound(t time.Time, unit string, end bool) time.Time {
	y, m, d := t.Date()
	switch unit {
	case "month":
		if d = 1; end {
			m++
		}
	case "week":
		if d -= (int(t.Weekday()) + 6) % 7; end {
			d += 7
		}
	case "day":
		if end {
			d++
		}
	}
	return time.Date(y, m, d, 0, 0, 0, 0, t.Location())
}

func (ru *rule) parse(v string) (time.Time, *tabular.Fault) {
	wrong := func(why string) (time.Time, *tabular.Fault) {
		return time.Time{}, &tabular.Fault{Value: v, Reason: why}
	}
	switch {
	case ru.kind == "epoch":
		d, err := number(v)
		if err != nil || d.Abs().Cmp(decimal.New(1, 11)) >= 0 {
			return wrong("is not a number of seconds since 1970")
		}
		seconds := d.Floor() // nanoseconds since 1970 would overflow in 2262
		return time.Unix(seconds.IntPart(), d.Sub(seconds).Shift(9).IntPart()), nil
	case ru.layout != "":
		zone := ru.zone
		if zone == nil {
			zone = time.UTC
			if !strings.Contains(ru.layout, "Z07") && !strings.Contains(ru.layout, "-07") {
				return wrong("has no time zone: name one in the rule")
			}
		}
		t, err := time.ParseInLocation(ru.layout, v, zone)
		if err != nil {
			return wrong("is not a time in the format " + ru.layout)
		}
		return t, nil
	}
	text := strings.Replace(v, " ", "T", 1)
	if utc, ok := strings.CutSuffix(v, " UTC"); ok {
		text = strings.Replace(utc, " ", "T", 1) + "Z"
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	t, why, ok := tabular.Local(text, ru.zone)
	switch {
	case why != "":
		return wrong(why)
	case !ok:
		return wrong("is not a time")
	}
	return t, nil
}

// number computes a sum, a difference or a product.
func (ru *rule) number(w *row) (string, *tabular.Fault) {
	total := decimal.Decimal{}
	if ru.kind == "product" {
		total = decimal.New(1, 0)
	}
	for i, of := range ru.of {
		v, fault := of.eval(w)
		if fault != nil {
			return "", fault
		}
		if v == "" {
			if ru.kind == "product" {
				return "", nil
			}
			return "", &tabular.Fault{Reason: fmt.Sprintf("is a %s with a number that is null: the mapping says what to take for it with first", ru.kind)}
		}
		d, err := number(v)
		switch {
		case err != nil:
			return "", &tabular.Fault{Value: v, Reason: "is not a number"}
		case ru.kind == "product":
			total = total.Mul(d)
		case ru.kind == "difference" && i == 1:
			total = total.Sub(d)
		default:
			total = total.Add(d)
		}
		if total.NumDigits() > maxDigits {
			return "", &tabular.Fault{Value: v, Reason: "makes a number of too many digits"}
		}
	}
	return total.String(), nil
}

// maxMade bounds the texts that are joined in a row, in bytes: values that join values grow without
// bound otherwise.
const maxMade = 1 << 20

// maxDigits bounds the digits of a computed number.
const maxDigits = 400

// number parses a number that a cell has.
func number(s string) (decimal.Decimal, error) {
	if len(s) > domain.MaxWritten {
		return decimal.Decimal{}, fmt.Errorf("has more than %d characters", domain.MaxWritten)
	}
	d, err := decimal.NewFromString(s)
	if err == nil && (d.Exponent() > maxDigits || d.Exponent() < -maxDigits) {
		err = fmt.Errorf("has more than %d digits", maxDigits)
	}
	return d, err
}

// decode reads JSON without turning numbers into floats.
func decode(text string) (any, *tabular.Fault) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return nil, &tabular.Fault{Value: text, Reason: "is not JSON"}
	}
	return v, nil
}

func member(text, path string) (string, *tabular.Fault) {
	v, fault := decode(text)
	if fault != nil {
		return "", fault
	}
	for key := range strings.SplitSeq(path, ".") {
		switch of := v.(type) {
		case map[string]any:
			v = of[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(of) {
				return "", nil
			}
			v = of[i]
		default:
			return "", nil
		}
	}
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", &tabular.Fault{Value: text, Reason: "is not JSON"}
	}
	return string(b), nil
}

// decodeList decodes a list, empty for null.
func decodeList(text string) ([]any, *tabular.Fault) {
	v, fault := decode(text)
	if fault != nil {
		return nil, fault
	}
	list, ok := v.([]any)
	if !ok && v != nil {
		return nil, &tabular.Fault{Value: text, Reason: "is not a list in JSON"}
	}
	return list, nil
}

// pairsOf returns a list of keys with values as an object, with its keys sorted.
func pairsOf(text string) (string, *tabular.Fault) {
	list, fault := decodeList(text)
	if fault != nil {
		return "", fault
	}
	if len(list) == 0 {
		return "", nil
	}
	object := make(map[string]any, len(list))
	for _, item := range list {
		of, ok := item.(map[string]any)
		key, isText := of["key"].(string)
		if !ok || !isText {
			return "", &tabular.Fault{Value: text, Reason: "is not a list of objects with a key in JSON"}
		}
		switch of["value"].(type) {
		case map[string]any, []any:
			return "", &tabular.Fault{Value: text, Reason: fmt.Sprintf("has a value of the key %q that is not a text, number or boolean", key)}
		}
		if before, twice := object[key]; twice && before != of["value"] {
			return "", &tabular.Fault{Value: text, Reason: fmt.Sprintf("has two values of the key %q", key)}
		}
		object[key] = of["value"]
	}
	b, err := json.Marshal(object)
	if err != nil {
		return "", &tabular.Fault{Value: text, Reason: "is not JSON"}
	}
	return string(b), nil
}

func sumOf(text, path string) (string, *tabular.Fault) {
	list, fault := decodeList(text)
	if fault != nil {
		return "", fault
	}
	total := decimal.Decimal{}
	for _, item := range list {
		of, ok := item.(map[string]any)
		if !ok {
			return "", &tabular.Fault{Value: text, Reason: "is not a list of objects in JSON"}
		}
		n, ok := of[path].(json.Number)
		if !ok && of[path] != nil {
			if s, isText := of[path].(string); isText {
				n, ok = json.Number(s), true
			}
		}
		if !ok {
			continue
		}
		d, err := number(n.String())
		if err != nil {
			return "", &tabular.Fault{Value: n.String(), Reason: "is not a number"}
		}
		total = total.Add(d)
	}
	return total.String(), nil
}
