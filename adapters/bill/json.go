package bill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
)

// open opens a file of the supplier: as JSON if the mapping says where its rows are and the file begins
// like JSON, otherwise with open.
func (m *Mapping) open(
	ctx context.Context, file io.Reader, limits tabular.Limits,
	open func(context.Context, io.Reader, tabular.Limits) (tabular.Table, error),
) (tabular.Table, error) {
	limits = limits.WithDefaults()
	if m.Rows == "" || columnar(file) {
		return open(ctx, file, limits)
	}
	text, err := tabular.Open(ctx, file, limits, focus.ErrColumns)
	if err != nil {
		return nil, err
	}
	b := bufio.NewReader(text)
	if beginsJSON(b) {
		return newObjects(b, m, limits), nil
	}
	return tabular.NewCSV(b, limits.LineBytes), nil
}

// Whole reads a file of JSON to its end and returns why it cannot be read. It does not look at other
// files, which whole reads. See [tabular.Whole].
func (m *Mapping) Whole(
	ctx context.Context, file io.Reader, limits tabular.Limits, whole func(context.Context, io.Reader, tabular.Limits) error,
) error {
	if m.Rows == "" || columnar(file) {
		return whole(ctx, file, limits)
	}
	t, err := m.open(ctx, file, limits, nil)
	if err != nil {
		return err
	}
	for {
		if _, err := t.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// columnar reports whether a file is Parquet, which is read from its end.
func columnar(file io.Reader) bool {
	f, ok := file.(io.ReaderAt)
	if !ok {
		return false
	}
	var head [4]byte
	n, _ := f.ReadAt(head[:], 0)
	return string(head[:n]) == "PAR1"
}

// IsJSON reports whether a file of a supplier, which may be compressed, begins like JSON.
func IsJSON(ctx context.Context, file io.Reader) (bool, error) {
	if columnar(file) {
		return false, nil
	}
	text, err := tabular.Open(ctx, file, tabular.Limits{}.WithDefaults(), focus.ErrColumns)
	return err == nil && beginsJSON(bufio.NewReader(text)), err
}

// beginsJSON reports whether a text begins like an object or a list. It skips blanks before that.
func beginsJSON(b *bufio.Reader) bool {
	for {
		c, err := b.Peek(1)
		switch {
		case err != nil:
			return false
		case bytes.ContainsAny(c, " \t\r\n"):
			_, _ = b.Discard(1)
		default:
			return c[0] == '{' || c[0] == '['
		}
	}
}

// maxDepth bounds how deep what is not read of a file of JSON may be nested.
const maxDepth = 1000

// objects is a table of the objects in a list of JSON. Its columns are those that the mapping declares:
// a text and a number are as they are written, null is an empty cell, and a list or an object is its
// JSON. A file may be several documents, one after the other, such as the pages of an answer. Line
// counts the rows, since a document may be a single line.
type objects struct {
	m       *Mapping
	in      *metered
	dec     *json.Decoder
	limits  tabular.Limits
	path    []string // of the list; empty if the document is the list
	columns []string
	at      map[string]int // columns, folded
	begun   bool
	open    bool // the decoder is in the list
	line    int
	row     []string
	set     []bool
}

func newObjects(r io.Reader, m *Mapping, limits tabular.Limits) *objects {
	o := &objects{m: m, in: &metered{r: r}, limits: limits, at: map[string]int{}}
	if m.Rows != "." {
		o.path = strings.Split(m.Rows, ".")
	}
	for _, name := range append(append([]string{}, m.Required...), m.Optional...) {
		if _, ok := o.at[fold(name)]; !ok {
			o.at[fold(name)] = len(o.columns)
			o.columns = append(o.columns, name)
		}
	}
	o.row, o.set = make([]string, len(o.columns)), make([]bool, len(o.columns))
	o.dec = json.NewDecoder(o.in)
	o.allow()
	return o
}

// metered ends with an error if more is read than is allowed.
type metered struct {
	r    io.Reader
	left int
}

func (m *metered) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, fmt.Errorf("%w: a value of JSON is far longer than a row may be", tabular.ErrTooLarge)
	}
	n, err := m.r.Read(p[:min(len(p), m.left)])
	m.left -= n
	return n, err
}

// allow allows for another value. The decoder reads ahead.
func (o *objects) allow() { o.in.left = 4*o.limits.LineBytes + 1<<16 }

func (o *objects) Notes() []tabular.Note { return nil }

// Next returns the next object: see [tabular.Table].
func (o *objects) Next() (tabular.Row, error) {
	o.line++
	row := tabular.Row{Line: o.line}
	if !o.begun {
		o.begun = true
		row.Fields = o.columns
		return row, nil
	}
	for {
		if !o.open {
			more, err := o.document()
			if err != nil || !more {
				return row, o.wrong(err)
			}
			o.open = true
		}
		o.allow()
		if !o.dec.More() {
			if err := o.leave(); err != nil {
				return row, o.wrong(err)
			}
			o.open = false
			continue
		}
		var raw json.RawMessage
		if err := o.dec.Decode(&raw); err != nil {
			return row, o.wrong(err)
		}
		if len(raw) > o.limits.LineBytes {
			row.Broken = &tabular.Fault{Reason: fmt.Sprintf("the row is longer than %d bytes", o.limits.LineBytes)}
			return row, nil
		}
		row.Broken = o.object(raw)
		row.Fields = o.row
		return row, nil
	}
}

// wrong returns the error of reading. Half a file is no bill.
func (o *objects) wrong(err error) error {
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return io.EOF
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the JSON ends in the middle", tabular.ErrDamaged)
	case errors.As(err, &syntax):
		return fmt.Errorf("%w: the JSON is wrong at byte %d: %w", tabular.ErrDamaged, syntax.Offset, err)
	}
	return err
}

// errEnd is the end of the file between two documents.
var errEnd = errors.New("no more documents")

// document goes to the list of the next document. It reports false at the end of the file.
func (o *objects) document() (more bool, err error) {
	o.allow()
	err = o.enter(o.path, true)
	if errors.Is(err, errEnd) {
		return false, nil
	}
	return err == nil, err
}

func (o *objects) enter(path []string, first bool) error {
	t, err := o.dec.Token()
	switch {
	case first && errors.Is(err, io.EOF):
		return errEnd
	case err != nil:
		return err
	case len(path) == 0 && t == json.Delim('['):
		return nil
	case len(path) == 0:
		return fmt.Errorf("%w: mapping %s needs a list at %s", focus.ErrColumns, o.m, o.m.Rows)
	case t != json.Delim('{'):
		return fmt.Errorf("%w: mapping %s needs an object with the member %s", focus.ErrColumns, o.m, path[0])
	}
	for o.dec.More() {
		key, err := o.key()
		if err != nil {
			return err
		}
		if key == path[0] {
			return o.enter(path[1:], false)
		}
		if err := o.skip(); err != nil {
			return err
		}
	}
	if _, err := o.dec.Token(); err != nil {
		return err
	}
	return fmt.Errorf("%w: mapping %s needs a list at %s, and a document has none", focus.ErrColumns, o.m, o.m.Rows)
}

// leave goes from the end of the list to the end of its document.
func (o *objects) leave() error {
	if _, err := o.dec.Token(); err != nil {
		return err
	}
	for i := len(o.path) - 1; i >= 0; i-- {
		for o.dec.More() {
			key, err := o.key()
			if err != nil {
				return err
			}
			if key == o.path[i] {
				return fmt.Errorf("%w: the member %s is there twice", focus.ErrColumns, key)
			}
			if err := o.skip(); err != nil {
				return err
			}
		}
		if _, err := o.dec.Token(); err != nil {
			return err
		}
	}
	return nil
}

func (o *objects) key() (string, error) {
	o.allow()
	t, err := o.dec.Token()
	if err != nil {
		return "", err
	}
	key, _ := t.(string)
	return key, nil
}

// skip passes a value.
func (o *objects) skip() error {
	for depth := 0; ; {
		o.allow()
		t, err := o.dec.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
		if depth > maxDepth {
			return fmt.Errorf("%w: the JSON is nested deeper than %d", tabular.ErrTooLarge, maxDepth)
		}
	}
}

// object reads a row.
func (o *objects) object(raw []byte) *tabular.Fault {
	clear(o.row)
	clear(o.set)
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return &tabular.Fault{Value: tabular.Clip(string(raw)), Reason: "is no object"}
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return &tabular.Fault{Reason: "is no object"}
		}
		name, _ := key.(string)
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return &tabular.Fault{Field: name, Reason: "is not JSON"}
		}
		i, ok := o.at[fold(name)]
		if !ok {
			continue
		}
		if o.set[i] {
			return &tabular.Fault{Field: name, Reason: "is there twice"}
		}
		o.set[i], o.row[i] = true, cellOf(v)
	}
	for _, name := range o.m.Required {
		if !o.set[o.at[fold(name)]] {
			return &tabular.Fault{Field: name, Reason: "is missing"}
		}
	}
	return nil
}

// cellOf returns a value of JSON as a cell.
func cellOf(v json.RawMessage) string {
	switch {
	case string(v) == "null":
		return ""
	case v[0] == '"':
		var s string
		if json.Unmarshal(v, &s) == nil {
			return s
		}
	case v[0] == '{' || v[0] == '[':
		var b bytes.Buffer
		if json.Compact(&b, v) == nil {
			return b.String()
		}
	}
	return string(v)
}
