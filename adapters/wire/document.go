package wire

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"quartermaster/domain"
)

// MaxDocument is the maximum size in bytes of a document that [ReadCloudEvent] reads. It is four
// times that of a record, because JSON is longer than Protobuf.
const MaxDocument = 4 * maxRecord

// DocumentError describes what is wrong with a document, and where, in one line.
type DocumentError struct {
	Line    int    // from 1
	Field   string // path in the names of the document, for example data.gpus[3].uuid; "" for the whole document
	Problem string
}

// Error returns "line 7: data.gpus[3].uuid: problem".
func (e *DocumentError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("line %d: %s", e.Line, e.Problem)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Field, e.Problem)
}

// ReadCloudEvent reads an event from the JSON that [CloudEvent] writes, for people who correct an
// event. The result satisfies [domain.Validate]. The error is a [*DocumentError].
//
// Reading is strict, because the event is about to be stored for ever. It refuses unknown and
// duplicate keys, keys in another case, and numbers with an exponent, and it enforces every bound
// of a record. Source, incarnation, sequence and related attributes may be absent, because the
// stream that appends the event sets them. The id is not read, because it follows from them. A
// signature is not read, because it covers bytes in the log.
func ReadCloudEvent(doc []byte) (*domain.Envelope, error) {
	if len(doc) > MaxDocument {
		return nil, &DocumentError{Line: 1, Problem: fmt.Sprintf("%d bytes, more than %d", len(doc), MaxDocument)}
	}
	d := document{text: doc, values: map[string]string{}}
	if err := d.split(); err != nil {
		return nil, d.explain(err, 0, "")
	}
	return d.envelope()
}

// attributeKeys are the keys of a document other than data.
var attributeKeys = func() map[string]bool {
	keys := map[string]bool{"datacontenttype": true}
	for a, header := range headerNames {
		if attribute(a) != attrContentType {
			keys[strings.TrimPrefix(header, "ce_")] = true
		}
	}
	return keys
}()

// document is a CloudEvent in JSON that is being read.
type document struct {
	text   []byte
	values map[string]string // of the attributes
	data   []byte            // nil if absent
	offset int               // of data in text
}

// valueError is an error about a value that is valid JSON.
type valueError struct {
	pointer jsontext.Pointer
	problem string
}

func (m *valueError) Error() string { return m.problem }

// split splits the document into attributes and data.
func (d *document) split() error {
	dec := jsontext.NewDecoder(bytes.NewReader(d.text))
	if k := dec.PeekKind(); k != jsontext.KindBeginObject && k != 0 {
		return &valueError{"", "it is " + kindName(k) + ", want an object: one event, as \"specversion\", \"type\" and so on"}
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() == jsontext.KindString {
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		key := tok.String()
		if key == "data" {
			v, err := dec.ReadValue()
			if err != nil {
				return err
			}
			d.data = bytes.Clone(v)
			d.offset = int(dec.InputOffset()) - len(v)
			continue
		}
		at := dec.StackPointer()
		if !attributeKeys[key] {
			return &valueError{at, "is not an attribute of an event"}
		}
		if k := dec.PeekKind(); k != jsontext.KindString && k != 0 {
			return &valueError{at, "is " + kindName(k) + ", want text"}
		}
		if tok, err = dec.ReadToken(); err != nil {
			return err
		}
		v := tok.String()
		if err := checkText(v, maxAttribute); err != nil {
			return &valueError{at, err.Error()}
		}
		d.values[key] = v
	}
	if _, err := dec.ReadToken(); err != nil { // the end of the object, or an invalid token
		return err
	}
	switch _, err := dec.ReadToken(); {
	case err == nil:
		return &valueError{"", "something follows the event; want one event"}
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// envelope builds the event from the parts.
func (d *document) envelope() (*domain.Envelope, error) {
	fail := func(key, format string, args ...any) error {
		return d.explain(&valueError{jsontext.Pointer("").AppendToken(key), fmt.Sprintf(format, args...)}, 0, "")
	}
	for _, key := range []string{"specversion", "type", "time"} {
		if d.values[key] == "" {
			return nil, fail(key, "is missing")
		}
	}
	if v := d.values["specversion"]; v != specVersion {
		return nil, fail("specversion", "%.20q, want %q", v, specVersion)
	}
	if v := d.values["datacontenttype"]; v != "" && v != "application/json" {
		return nil, fail("datacontenttype", "%.80q, want application/json", v)
	}
	typ, err := parseType(d.values["type"])
	if err != nil {
		return nil, fail("type", "%v", strings.TrimPrefix(err.Error(), "type "))
	}
	env := &domain.Envelope{
		Source: d.values["source"], Subject: d.values["subject"],
		Workspace: d.values["workspace"], Cluster: d.values["cluster"], Cites: d.values["cites"],
	}
	for _, t := range [...]struct {
		key string
		to  *domain.Instant
	}{{"time", &env.Time}, {"recordedtime", &env.Recorded}} {
		if err := t.to.UnmarshalText([]byte(d.values[t.key])); err != nil {
			return nil, fail(t.key, "%v", err)
		}
	}
	for _, n := range [...]struct {
		key string
		to  *uint64
	}{
		{"incarnation", &env.Incarnation}, {"sequence", &env.Sequence},
		{"previousincarnation", &env.PreviousIncarnation}, {"previoussequence", &env.PreviousSequence},
		{"line", &env.Line},
	} {
		if v := d.values[n.key]; v != "" {
			if *n.to, err = strconv.ParseUint(v, 10, 64); err != nil {
				return nil, fail(n.key, "%.40q is not a whole number", v)
			}
		}
	}
	if d.data == nil {
		return nil, fail("data", "is missing")
	}
	if k := jsontext.Value(d.data).Kind(); k != jsontext.KindBeginObject {
		return nil, fail("data", "is %s, want an object: the fields of %s", kindName(k), typ)
	}
	if env.Event, err = readData(typ, d.data); err != nil {
		return nil, d.explain(err, d.offset, "/data")
	}
	if err := domain.Validate(env); err != nil {
		return nil, d.invalid(err)
	}
	if s, ok := env.Event.(*domain.NodeSampled); ok && env.Time != s.Interval.To {
		return nil, fail("time", "%s is not the end of the interval of the sample, %s", env.Time, s.Interval.To)
	}
	return env, nil
}

// readData reads the fields of an event.
func readData(typ domain.Type, data []byte) (domain.Event, error) {
	options := json.JoinOptions(json.RejectUnknownMembers(true), json.WithUnmarshalers(decimals))
	if typ != domain.TypeNodeSampled {
		ev := domain.NewEvent(typ)
		return ev, json.Unmarshal(data, ev, options)
	}
	var view sampleView
	if err := json.Unmarshal(data, &view, options); err != nil {
		return nil, err
	}
	return readSample(&view)
}

// decimals reads exact numbers, quoted or not, within the bounds of a record.
var decimals = json.JoinUnmarshalers(
	json.UnmarshalFromFunc(func(dec *jsontext.Decoder, d *domain.Decimal) error {
		v, err := dec.ReadValue()
		if err != nil {
			return err
		}
		*d, err = readDecimal(v)
		return err
	}),
	json.UnmarshalFromFunc(func(dec *jsontext.Decoder, d *domain.NullDecimal) error {
		v, err := dec.ReadValue()
		if err != nil {
			return err
		}
		*d = domain.NullDecimal{}
		if v.Kind() == jsontext.KindNull {
			return nil
		}
		d.Decimal, err = readDecimal(v)
		d.Valid = err == nil
		return err
	}),
)

func readDecimal(v jsontext.Value) (domain.Decimal, error) {
	text := []byte(v)
	switch v.Kind() {
	case jsontext.KindNumber:
	case jsontext.KindString:
		var err error
		if text, err = jsontext.AppendUnquote(nil, v); err != nil {
			return domain.Decimal{}, err
		}
	default:
		return domain.Decimal{}, fmt.Errorf("is %s, want a number", kindName(v.Kind()))
	}
	if len(text) > 2*maxDigits {
		return domain.Decimal{}, fmt.Errorf("decimal of more than %d digits", maxDigits)
	}
	return parseDecimal(string(text))
}

// readSample is the inverse of showSample.
func readSample(v *sampleView) (*domain.NodeSampled, error) {
	s := &domain.NodeSampled{
		Node:           v.Node,
		Interval:       v.Interval,
		ActivityField:  v.ActivityField,
		SkewNanos:      v.SkewNanos,
		HoldersUnknown: v.Unknown,
	}
	names := map[string]uint32{"": 0}
	name := func(text string) uint32 {
		ref, ok := names[text]
		if !ok {
			s.Strings = append(s.Strings, text)
			ref = uint32(len(s.Strings))
			names[text] = ref
		}
		return ref
	}
	hold := func(h holderView) uint32 {
		s.HolderWorkspace = append(s.HolderWorkspace, name(h.Workspace))
		s.HolderDeployment = append(s.HolderDeployment, name(h.Deployment))
		s.HolderUnit = append(s.HolderUnit, name(h.Unit))
		return uint32(len(s.HolderUnit))
	}
	holders, parents := map[holderView]uint32{}, map[domain.GPUID]uint32{}
	n := len(v.Entries)
	// set stores a value in an array. The array stays nil while all values are zero.
	set := func(array *[]uint32, i int, value uint32) {
		if value != 0 && *array == nil {
			*array = make([]uint32, n)
		}
		if value != 0 {
			(*array)[i] = value
		}
	}
	for i := range v.Entries {
		e := &v.Entries[i]
		s.IDs = append(s.IDs, e.UUID[:]...)
		if e.Parent != (domain.GPUID{}) {
			ref, ok := parents[e.Parent]
			if !ok {
				s.Parents = append(s.Parents, e.Parent[:]...)
				ref = uint32(len(s.Parents) / len(e.Parent))
				parents[e.Parent] = ref
			}
			set(&s.Parent, i, ref)
		}
		set(&s.Profile, i, name(e.Profile))
		set(&s.Model, i, name(e.Model))
		set(&s.Replica, i, e.Replica)
		if e.Holder != nil {
			ref, ok := holders[*e.Holder]
			if !ok {
				ref = hold(*e.Holder)
				holders[*e.Holder] = ref
			}
			set(&s.Holder, i, ref)
		}
		a := activityView{}
		if e.Activity != nil {
			a = *e.Activity
		}
		for _, m := range [...]struct {
			field string
			array *[]uint32
			value *uint32
		}{
			{"activity_permille/mean", &s.ActivityMean, a.Mean},
			{"activity_permille/min", &s.ActivityMin, a.Min},
			{"activity_permille/max", &s.ActivityMax, a.Max},
			{"tensor_active_permille", &s.TensorActive, e.Tensor}, {"dram_active_permille", &s.DRAMActive, e.DRAM},
			{"memory_used_mib", &s.MemoryUsedMiB, e.Memory}, {"power_watts", &s.PowerWatts, e.Power},
			{"temperature_c", &s.TemperatureC, e.Heat}, {"sm_clock_mhz", &s.SMClockMHz, e.SMClock},
		} {
			if m.value == nil {
				continue
			}
			if *m.value == math.MaxUint32 { // the value plus one is stored, and 0 is blank
				return nil, &valueError{
					jsontext.Pointer(fmt.Sprintf("/entries/%d/%s", i, m.field)),
					fmt.Sprintf("is %d, at most %d is allowed", *m.value, uint32(math.MaxUint32-1)),
				}
			}
			set(m.array, i, *m.value+1)
		}
		for _, field := range slices.Sorted(maps.Keys(e.Other)) {
			s.OtherEntry = append(s.OtherEntry, uint32(i))
			s.OtherField = append(s.OtherField, field)
			s.OtherValue = append(s.OtherValue, e.Other[field])
		}
	}
	for _, h := range v.Idle {
		hold(h)
	}
	return s, nil
}

// explain adds the location to an error. The error is about the part of the document that begins at
// offset and has the path prefix.
func (d *document) explain(err error, offset int, prefix jsontext.Pointer) error {
	var (
		syntactic *jsontext.SyntacticError
		semantic  *json.SemanticError
		wrong     *valueError
	)
	switch {
	case errors.As(err, &wrong):
		at := prefix + wrong.pointer
		return &DocumentError{d.line(at), fieldPath(at), wrong.problem}
	case errors.As(err, &syntactic):
		problem := "is not JSON: " + syntactic.Err.Error()
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			problem = "occurs twice"
		case errors.Is(err, io.ErrUnexpectedEOF):
			problem = "is not JSON: it ends too early"
		}
		return &DocumentError{d.lineAt(offset + int(syntactic.ByteOffset)), fieldPath(prefix + syntactic.JSONPointer), problem}
	case errors.As(err, &semantic):
		at := prefix + semantic.JSONPointer
		return &DocumentError{d.line(at), fieldPath(at), semanticProblem(semantic)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &DocumentError{Line: d.lineAt(len(d.text)), Problem: "is not JSON: it ends too early"}
	}
	return &DocumentError{Line: 1, Problem: err.Error()}
}

func semanticProblem(e *json.SemanticError) string {
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return "is not a field of it"
	case e.Err != nil && isText(e.GoType) && e.JSONKind != jsontext.KindString:
	case e.Err != nil && !errors.Is(e.Err, strconv.ErrRange) && !errors.Is(e.Err, strconv.ErrSyntax):
		return e.Err.Error()
	case e.Err != nil && len(e.JSONValue) > 0:
		return fmt.Sprintf("is %.40s, want %s", e.JSONValue, wanted(e.GoType))
	}
	return "is " + kindName(e.JSONKind) + ", want " + wanted(e.GoType)
}

func isText(t reflect.Type) bool {
	return t != nil && reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// wanted describes the JSON value of a type.
func wanted(t reflect.Type) string {
	switch {
	case t == nil:
		return "something else"
	case isText(t):
		return "text"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 of at most %d bits", t.Bits())
	case reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number of at most %d bits", t.Bits())
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "text in base64"
		}
		return "a list"
	case reflect.Pointer:
		return wanted(t.Elem())
	}
	return "an object"
}

func kindName(k jsontext.Kind) string {
	switch k {
	case jsontext.KindNull:
		return "null"
	case jsontext.KindFalse, jsontext.KindTrue:
		return "true or false"
	case jsontext.KindString:
		return "text"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindBeginArray:
		return "a list"
	case jsontext.KindBeginObject:
		return "an object"
	}
	return "not JSON"
}

// invalid returns the location in the document of an error of domain.Validate.
func (d *document) invalid(err error) error {
	var invalid *domain.InvalidError
	if !errors.As(err, &invalid) {
		return &DocumentError{Line: 1, Problem: err.Error()}
	}
	var at jsontext.Pointer
	for part := range strings.SplitSeq(invalid.Field, ".") {
		name, index, listed := strings.Cut(part, "[")
		at = at.AppendToken(name)
		if listed {
			at = at.AppendToken(strings.TrimSuffix(index, "]"))
		}
	}
	switch {
	case at == "/recorded":
		at = "/recordedtime"
	case attributeKeys[invalid.Field]:
	default:
		at = "/data" + at
	}
	return &DocumentError{d.line(at), fieldPath(at), invalid.Problem}
}

// line returns the line of a value, or of the nearest enclosing value that exists.
func (d *document) line(at jsontext.Pointer) int {
	dec := jsontext.NewDecoder(bytes.NewReader(d.text))
	best, end := jsontext.Pointer(""), 0
	for at != "" {
		if _, err := dec.ReadToken(); err != nil {
			break
		}
		p := dec.StackPointer()
		if len(p) > len(best) && p.Contains(at) {
			best, end = p, int(dec.InputOffset())
		}
		if p == at {
			break
		}
	}
	return d.lineAt(end)
}

// lineAt returns the line of an offset.
func (d *document) lineAt(offset int) int {
	return 1 + bytes.Count(d.text[:max(0, min(offset, len(d.text)))], []byte("\n"))
}

// fieldPath formats /data/gpus/3/uuid as data.gpus[3].uuid, shortened, on one line.
func fieldPath(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if b.Len() > 200 {
			return b.String() + "…"
		}
		if _, err := strconv.ParseUint(token, 10, 32); err == nil && b.Len() > 0 {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if quoted := strconv.Quote(token); quoted != `"`+token+`"` || len(token) > 80 {
			token = strconv.Quote(strings.ToValidUTF8(token[:min(len(token), 80)], "?"))
		}
		b.WriteString(token)
	}
	return b.String()
}
