package instance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Bounds of a document, so that no file exhausts the reader's memory.
const (
	MaxBytes = 256 << 20
	maxDepth = 24
)

// ErrSyntax means that a document is not JSON of its format. The text before it says what is wrong
// and where.
var ErrSyntax = errors.New("not a document of this format")

// Parse reads and validates an instance. name identifies the document in errors, which give line,
// column and the place within it as a JSON Pointer.
//
// It is strict. It refuses unknown and repeated keys, null, numbers beyond 64 bits, anything after
// the document, and amounts that are not decimal strings.
func Parse(name string, data []byte) (*Instance, error) {
	var in Instance
	if err := decode(name, data, &in, required); err != nil {
		return nil, err
	}
	if in.Format != Format {
		return nil, &Faults{List: []Fault{placed(name, data, "/format", wrongFormat(in.Format, Format))}}
	}
	if err := in.Validate(); err != nil {
		return nil, located(name, data, err)
	}
	return &in, nil
}

// ParseAnswer reads an answer without verifying it; see [Check].
func ParseAnswer(name string, data []byte) (*Answer, error) {
	var a Answer
	if err := decode(name, data, &a, nil); err != nil {
		return nil, err
	}
	if a.Format != AnswerFormat {
		return nil, &Faults{List: []Fault{placed(name, data, "/format", wrongFormat(a.Format, AnswerFormat))}}
	}
	return &a, nil
}

func wrongFormat(have, want string) string {
	if have == "" {
		return fmt.Sprintf("no format is given: this program reads %q", want)
	}
	return fmt.Sprintf("format is %q: this program reads %q", have, want)
}

// decode reads one JSON document into v.
func decode(name string, data []byte, v any, need map[string][]string) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%s: %d bytes exceed the limit of %d; shorten the horizon or split the pools", name,
			len(data), MaxBytes)
	}
	if err := scan(data, need); err != nil {
		return syntax(name, data, err)
	}
	strict, amounts := json.RejectUnknownMembers(true), json.UnmarshalFromFunc(readDecimal)
	if json.Unmarshal(data, v, strict,
		json.WithUnmarshalers(json.JoinUnmarshalers(amounts, json.UnmarshalFromFunc(readUnits)))) == nil {
		return nil
	}
	// The decoder's own lists say exactly what is wrong, and where.
	reflect.ValueOf(v).Elem().SetZero()
	if err := json.Unmarshal(data, v, strict, json.WithUnmarshalers(amounts)); err != nil {
		return syntax(name, data, err)
	}
	return nil
}

// required lists the mandatory keys of an instance's objects, by place. Other missing or forbidden
// keys are checked by [Instance.Validate].
var required = map[string][]string{
	"": {"format", "name", "currency", "from", "epoch", "epochs", "annual_rate", "salvage",
		"regions", "pools", "demands", "offers"},
	"/regions/*":                {"id"},
	"/pools/*":                  {"id", "region", "class", "unit"},
	"/pools/*/on_demand":        {"hourly"},
	"/pools/*/on_demand/path/*": {"from", "hourly"},
	"/pools/*/spot":             {"hourly", "overhead"},
	"/pools/*/spot/path/*":      {"from", "hourly"},
	"/demands/*":                {"id", "pool", "interruptible_share", "shortage_hourly"},
	"/demands/*/duration/*/*":   {"units", "hours"},
	"/demands/*/buffer":         {"service_level", "failures_per_gpu_hour", "repair_hours"},
	"/offers/*":                 {"id", "kind", "term_epochs", "upfront", "hourly", "guarantees_capacity"},
	"/offers/*/tiers/*":         {"units", "upfront", "hourly"},
	"/offers/*/ramp/*":          {"epoch", "permille"},
	"/offers/*/owned": {"power_kw", "pue", "tariff_kwh", "space_monthly", "network_monthly",
		"support_monthly", "salvage"},
	"/commitments/*":      {"id", "kind", "units", "term", "upfront", "hourly", "guarantees_capacity"},
	"/commitments/*/term": {"from", "to"},
	"/quotas/*":           {"id", "limit"},
	"/quotas/*/path/*":    {"from", "limit"},
	"/overflow/*":         {"from", "to", "round_trip_ms", "hourly"},
	"/substitutes/*":      {"for", "class", "units"},
	"/posture":            {"kind", "share"},
	"/budgets/*":          {"id", "basis", "interval", "amount"},
	"/budgets/*/interval": {"from", "to"},
	"/scenarios/*":        {"id", "weight"},
}

// nothing lists keys for which 0 would mean that nothing can be bought, while leaving them out
// means no bound, or one. So 0 is refused.
var nothing = map[string]struct{ at, why string }{
	"max_units": {"/offers/*/max_units",
		"nothing could be bought: leave the offer out, or the key where an order is not bounded"},
	"lot": {"/offers/*/lot", "an order is no multiple of it: leave the key out where any number can be ordered"},
	"covers_per_unit": {"/offers/*/covers_per_unit",
		"it would cover nothing: leave the offer out, or the key where it covers one"},
	"quota_per_unit": {"/pools/*/quota_per_unit",
		"it would take nothing of its quota: leave the quota out, or the key where it takes one"},
	"factor_permille": {"/scenarios/*/factor_permille",
		"nothing would be wanted: name the demands in factors_permille if so, or leave the key out where all " +
			"stays as it is"},
}

// scan refuses invalid content before decoding. need lists the mandatory keys of objects; if nil,
// none are mandatory and null is allowed.
func scan(data []byte, need map[string][]string) error {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	var open []map[string]bool // keys of the enclosing objects; nil for lists
	for {
		refuse := func(text string, args ...any) error {
			return &jsontext.SyntacticError{
				ByteOffset: dec.InputOffset(), JSONPointer: dec.StackPointer(), Err: fmt.Errorf(text, args...),
			}
		}
		inside := dec.StackDepth()
		name := false
		if inside > 0 {
			kind, n := dec.StackIndex(inside)
			name = kind == '{' && n%2 == 0
		}
		if need != nil && inside > 0 && inside < maxDepth && dec.PeekKind() == '[' && onlyNumbers(data[dec.InputOffset():]) {
			if err := dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		t, err := dec.ReadToken()
		if err != nil {
			if dec.StackDepth() == 0 && dec.InputOffset() == 0 {
				return refuse("the document is empty or not JSON: %w", err)
			}
			return err
		}
		switch k := t.Kind(); {
		case k == 'n' && need != nil:
			return refuse("null is not allowed: leave the key out")
		case dec.StackDepth() > maxDepth:
			return refuse("nested more than %d levels deep", maxDepth)
		case k == '{' && need != nil:
			open = append(open, map[string]bool{})
		case k == '[' && need != nil:
			open = append(open, nil)
		case k == '"' && name && need != nil:
			key := t.String()
			open[len(open)-1][key] = true
			if no, ok := nothing[key]; ok && dec.PeekKind() == '0' && shape(dec) == no.at {
				n, err := dec.ReadToken()
				if err != nil {
					return err
				}
				if strings.Trim(n.String(), "-0") == "" {
					return refuse("0: %s", no.why)
				}
			}
		case (k == '}' || k == ']') && need != nil:
			have := open[len(open)-1]
			open = open[:len(open)-1]
			if have == nil {
				break
			}
			for _, key := range need[shape(dec)] {
				if !have[key] {
					return refuse("%q is missing", key)
				}
			}
		}
		if dec.StackDepth() == 0 {
			break
		}
	}
	if rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return &jsontext.SyntacticError{
			ByteOffset: int64(len(data) - len(rest)), Err: errors.New("unexpected data after the document"),
		}
	}
	return nil
}

// onlyNumbers reports whether the next value is a list of nothing but numbers, of which none is refused.
func onlyNumbers(text []byte) bool {
	for i, c := range text[bytes.IndexByte(text, '[')+1:] {
		if c == ']' {
			return i > 0
		}
		if (c < '0' || c > '9') && bytes.IndexByte([]byte(", \n\r\t-"), c) < 0 {
			return false
		}
	}
	return false
}

// shape is the decoder's place, with * for list indexes.
func shape(dec *jsontext.Decoder) string {
	var b strings.Builder
	i := 0
	for token := range dec.StackPointer().Tokens() {
		i++
		b.WriteByte('/')
		if kind, _ := dec.StackIndex(i); kind == '[' {
			b.WriteByte('*')
		} else {
			b.WriteString(token)
		}
	}
	return b.String()
}

// decimals are in plain notation: no exponent, no plus sign, no leading zeros.
var decimals = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,30})?$`)

func readDecimal(dec *jsontext.Decoder, into *domain.Decimal) error {
	t, err := dec.ReadToken()
	if err != nil {
		return err
	}
	if t.Kind() != '"' {
		return fmt.Errorf("%s is not a decimal string: write it in quotes, for example \"1.25\", so that no "+
			"program rounds it", clip(t.String()))
	}
	text := t.String()
	if !decimals.MatchString(text) {
		return fmt.Errorf("%q is not a decimal number such as \"1.25\", with at most 18 digits before the point, "+
			"30 after it and no exponent", clip(text))
	}
	d, err := decimal.NewFromString(text)
	if err != nil {
		return err
	}
	*into = d
	return nil
}

// readUnits reads a list of units by the hour, which most of a document are.
func readUnits(dec *jsontext.Decoder, into *[]int) error {
	text, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if len(text) == 0 || text[0] != '[' {
		return errUnits
	}
	out := make([]int, 0, bytes.Count(text, []byte(","))+1)
	for at := 1; at < len(text)-1; {
		c, n, from := text[at], 0, at
		if c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t' {
			at++
			continue
		}
		if negative := c == '-'; negative {
			at++
			from++
		}
		for ; at < len(text) && text[at] >= '0' && text[at] <= '9'; at++ {
			n = 10*n + int(text[at]-'0')
		}
		if at == from || at-from > 18 {
			return errUnits
		}
		if c == '-' {
			n = -n
		}
		out = append(out, n)
	}
	*into = out
	return nil
}

var errUnits = errors.New("not a list of whole numbers")

func clip(s string) string { return domain.Clip(s, 60) }

// syntax locates a decoder's error in a document.
func syntax(name string, data []byte, err error) error {
	var (
		broken *jsontext.SyntacticError
		wrong  *json.SemanticError
	)
	at, path, why := int64(0), jsontext.Pointer(""), err
	switch {
	case errors.As(err, &broken):
		at, path, why = broken.ByteOffset, broken.JSONPointer, broken.Err
		if errors.Is(why, jsontext.ErrDuplicateName) {
			why = errors.New("duplicate key")
		}
	case errors.As(err, &wrong):
		at, path, why = wrong.ByteOffset, wrong.JSONPointer, wrong.Err
		switch {
		case errors.Is(why, json.ErrUnknownName):
			why = errors.New("unknown key")
		case why == nil:
			why = fmt.Errorf("%s is not valid here: expected %s", kindName(wrong.JSONKind), wanted(wrong))
		case len(wrong.JSONValue) > 0 && wrong.GoType != nil && wrong.JSONKind == '0':
			why = fmt.Errorf("%s is not valid here: expected %s", clip(string(wrong.JSONValue)), wanted(wrong))
		}
	}
	// A value's offset may lie before the white space in front of it.
	for at < int64(len(data)) && bytes.IndexByte([]byte(" \t\r\n,:"), data[at]) >= 0 {
		at++
	}
	return &Faults{List: []Fault{faultAt(name, data, at, string(path), fmt.Sprintf("%v: %v", why, ErrSyntax))}, cause: ErrSyntax}
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "true or false"
	}
	return "this"
}

func wanted(e *json.SemanticError) string {
	if e.GoType == nil {
		return "something else"
	}
	switch k := e.GoType.Kind().String(); {
	case strings.HasPrefix(k, "int"):
		return "a whole number of at most 64 bits, without point or exponent"
	case k == "string":
		return "a string"
	case k == "bool":
		return "true or false"
	case k == "slice":
		return "a list"
	case k == "struct", k == "map":
		return "an object"
	}
	return "something else"
}

func named(path jsontext.Pointer) string {
	if path == "" {
		return ""
	}
	return ": " + string(path)
}

// position is the file, line and column of an offset.
func faultAt(name string, data []byte, at int64, path, detail string) Fault {
	before := data[:min(at, int64(len(data)))]
	f := Fault{
		Path: path, Detail: detail, File: name, Line: bytes.Count(before, []byte("\n")) + 1,
		Column: len([]rune(string(before[bytes.LastIndexByte(before, '\n')+1:]))) + 1,
	}
	f.Place = fmt.Sprintf("%s:%d:%d%s", name, f.Line, f.Column, named(jsontext.Pointer(path)))
	return f
}

// placed returns a fault of a value of a parsed document, with its place. A missing value has the place of its parent.
func placed(name string, data []byte, path, detail string) Fault {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	at, best := int64(0), -1
	for {
		before := dec.InputOffset()
		if _, err := dec.ReadToken(); err != nil {
			break
		}
		have := string(dec.StackPointer())
		if len(have) > best && (have == path || have == "" || strings.HasPrefix(path, have+"/")) {
			for before < int64(len(data)) && bytes.IndexByte([]byte(" \t\r\n,:"), data[before]) >= 0 {
				before++
			}
			at, best = before, len(have)
		}
		if have == path {
			break
		}
	}
	return faultAt(name, data, at, path, detail)
}

// located adds the places in a document to its faults.
func located(name string, data []byte, err error) error {
	var faults *Faults
	if !errors.As(err, &faults) {
		return fmt.Errorf("%s: %w", name, err)
	}
	out := &Faults{More: faults.More}
	for _, f := range faults.List {
		out.List = append(out.List, placed(name, data, f.Path, f.Detail))
	}
	return out
}

// Fault is one violated rule of an instance.
type Fault struct {
	Path   string `json:"path"` // JSON Pointer
	Detail string `json:"detail"`
	// Place is file, line, column and Path, if a document was read.
	Place string `json:"place,omitempty"`

	File         string `json:"-"`
	Line, Column int    `json:"-"`
}

// Faults is the error of an instance that violates rules: the first of them, and the number of the
// rest.
//
//nolint:errname // a list of faults, shown to the reader one by one
type Faults struct {
	List  []Fault
	More  int
	cause error
}

// fault is the error of one violated rule.
func fault(path string, cause error, text string, args ...any) error {
	return &Faults{List: []Fault{{Path: path, Detail: fmt.Sprintf(text, args...)}}, cause: cause}
}

// Unwrap returns the error that caused the violation, if any.
func (e *Faults) Unwrap() error { return e.cause }

// mostFaults is the number of faults that are reported individually.
const mostFaults = 10

func (e *Faults) Error() string {
	var b strings.Builder
	for i, f := range e.List {
		if i > 0 {
			b.WriteByte('\n')
		}
		at := f.Place
		if at == "" {
			at = f.Path
		}
		b.WriteString(at + ": " + f.Detail)
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\nand %d more", e.More)
	}
	return b.String()
}

// MarshalJSON writes an instance; nil mandatory lists become empty ones.
func (in Instance) MarshalJSON() ([]byte, error) {
	type plain Instance
	if in.Regions == nil {
		in.Regions = []Region{}
	}
	if in.Pools == nil {
		in.Pools = []Pool{}
	}
	if in.Demands == nil {
		in.Demands = []Demand{}
	}
	if in.Offers == nil {
		in.Offers = []Offer{}
	}
	return stdjson.Marshal(plain(in))
}

// Canonical returns the form in which instances are compared and digested: lists without a
// meaningful order are sorted, and JSON is compact with keys in the order of this package's
// declarations.
func (in *Instance) Canonical() ([]byte, error) {
	out, _ := in.sorted()
	b, err := out.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write instance %q: %w", in.Name, err)
	}
	return b, nil
}

// Digest is the SHA-256 of the canonical form, in hexadecimal. It writes one demand at a time: their
// hours are most of an instance.
func (in *Instance) Digest() (string, error) {
	out, _ := in.sorted()
	rest := *out
	rest.Demands = nil
	b, err := rest.MarshalJSON()
	if err != nil {
		return "", fmt.Errorf("write instance %q: %w", in.Name, err)
	}
	before, after, _ := bytes.Cut(b, []byte(`"demands":[]`))
	sum := sha256.New()
	sum.Write(before)
	sum.Write([]byte(`"demands":[`))
	for i := range out.Demands {
		if i > 0 {
			sum.Write([]byte(","))
		}
		if b, err = stdjson.Marshal(&out.Demands[i]); err != nil {
			return "", fmt.Errorf("write instance %q: %w", in.Name, err)
		}
		sum.Write(b)
	}
	sum.Write([]byte("]"))
	sum.Write(after)
	return hex.EncodeToString(sum.Sum(nil)), nil
}
