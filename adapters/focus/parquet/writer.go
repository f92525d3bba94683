package parquet

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// Limits of what is written.
const (
	decimalDigits = 18 // after the point
	wholeDigits   = 20 // before it: decimal(38,18) has 38
	groupRows     = 1 << 17
	writeBatch    = 64      // rows: the values of all columns stay in the cache
	dictionary    = 1 << 20 // bytes of a column's dictionary; a column with more has none
)

// Writer writes Parquet. Texts are strings; decimals are decimal(38,18), which readers hold in 128 bits; whole numbers are
// 64-bit integers; times are timestamps in UTC, in nanoseconds; flags are booleans. Null is null. The names and the order
// of columns are those given. Equal rows give equal bytes.
//
// It is a [tabular.Writer]. Memory is bounded by a row group of 131,072 rows, encoded.
type Writer struct {
	file    *parquet.GenericWriter[any]
	columns []pen
	last    []string // the row before
	rows    int      // so far
	batched int
	err     error
}

// pen writes one column.
type pen struct {
	tabular.Column
	at     int
	value  parquet.Value   // of the last row
	values []parquet.Value // of the batch, without the last rows that have value
	same   []parquet.Value // many times value, for batches in which it does not change; empty if it is not
	bytes  []byte          // of the values
	from   int             // of the last one in bytes
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer, columns []tabular.Column) *Writer {
	p := &Writer{columns: make([]pen, len(columns)), last: make([]string, len(columns))}
	group := parquet.Group{}
	for i, c := range columns {
		p.columns[i] = pen{Column: c, at: i, values: make([]parquet.Value, 0, writeBatch), value: parquet.NullValue().Level(0, 0, i)}
		node := parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
		switch c.Kind {
		case tabular.Texts:
		case tabular.Decimals:
			node = parquet.Decimal(decimalDigits, decimalDigits+wholeDigits, parquet.FixedLenByteArrayType(16))
		case tabular.Wholes:
			node = parquet.Encoded(parquet.Int(64), &parquet.RLEDictionary)
		case tabular.Times:
			node = parquet.Encoded(parquet.Timestamp(parquet.Nanosecond), &parquet.RLEDictionary)
		case tabular.Flags:
			node = parquet.Leaf(parquet.BooleanType)
		}
		group[c.Name] = parquet.Compressed(parquet.Optional(node), &parquet.Snappy)
	}
	p.file = parquet.NewGenericWriter[any](w,
		parquet.NewSchema("rows", newOrdered(group, columns)),
		parquet.CreatedBy("quartermaster", "", ""),
		parquet.DataPageStatistics(false), // the index of pages has them
		parquet.DictionaryMaxBytes(dictionary))
	return p
}

// ordered is a group whose fields have an order; those of [parquet.Group] are sorted by name.
type ordered struct {
	parquet.Group
	fields []parquet.Field
}

func newOrdered(group parquet.Group, columns []tabular.Column) *ordered {
	byName := map[string]parquet.Field{}
	for _, f := range group.Fields() {
		byName[f.Name()] = f
	}
	o := &ordered{Group: group}
	for _, c := range columns {
		o.fields = append(o.fields, byName[c.Name])
	}
	return o
}

// Fields implements [parquet.Node].
func (o *ordered) Fields() []parquet.Field { return o.fields }

// Write implements [tabular.Writer].
func (w *Writer) Write(row []string) error {
	if w.err != nil {
		return w.err
	}
	w.rows++
	for i := range w.last {
		s := row[i]
		if s == w.last[i] {
			continue
		}
		c := &w.columns[i]
		c.settle(w.batched)
		if why := c.set(s); why != "" {
			w.err = &tabular.CellError{Row: w.rows, Column: c.Name, Reason: why}
			return w.err
		}
		w.last[i] = s
	}
	if w.batched++; w.batched == writeBatch {
		w.flush()
	}
	if w.err == nil && w.rows%groupRows == 0 {
		w.err = w.file.Flush()
	}
	return w.err
}

func (w *Writer) flush() {
	writers := w.file.ColumnWriters()
	for i := range w.columns {
		c := &w.columns[i]
		if _, err := writers[i].WriteRowValues(c.batch(w.batched)); err != nil && w.err == nil {
			w.err = fmt.Errorf("write Parquet: column %s: %w", c.Name, err)
		}
		if c.values = c.values[:0]; c.from > 0 {
			c.same = c.same[:0] // its bytes move
		}
		c.bytes = append(c.bytes[:0], c.bytes[c.from:]...) // the next row may have the last value too
		c.from = 0
		c.point()
	}
	w.batched = 0
}

// batch returns the values of a batch of so many rows.
func (c *pen) batch(rows int) []parquet.Value {
	if len(c.values) > 0 {
		c.settle(rows)
		return c.values
	}
	for len(c.same) < rows {
		c.same = append(c.same, c.value)
	}
	return c.same[:rows]
}

// settle adds the last value to values until they are those of so many rows.
func (c *pen) settle(rows int) {
	for len(c.values) < rows {
		c.values = append(c.values, c.value)
	}
}

// point lets a value that has bytes point to those of the last value.
func (c *pen) point() {
	switch {
	case c.value.IsNull():
	case c.Kind == tabular.Texts:
		c.value = parquet.ByteArrayValue(c.bytes[c.from:]).Level(0, 1, c.at)
	case c.Kind == tabular.Decimals:
		c.value = parquet.FixedLenByteArrayValue(c.bytes[c.from:]).Level(0, 1, c.at)
	}
}

// set sets the value to that of a text. It returns why it cannot.
func (c *pen) set(s string) (why string) {
	c.same = c.same[:0]
	if s == "" {
		c.value = parquet.NullValue().Level(0, 0, c.at)
		return ""
	}
	switch c.Kind {
	case tabular.Texts:
		if !utf8.ValidString(s) {
			return "a text that is not UTF-8"
		}
		c.from = len(c.bytes)
		c.bytes = append(c.bytes, s...)
		c.value = parquet.ByteArrayValue(c.bytes[c.from:])
	case tabular.Decimals:
		n, ok := unitsOf(s)
		if !ok {
			return fmt.Sprintf("%q is not a decimal of at most %d digits before and %d after the point, which decimal(38,18) of Parquet holds", tabular.Clip(s), wholeDigits, decimalDigits)
		}
		c.from = len(c.bytes)
		c.bytes = append(c.bytes, n[:]...)
		c.value = parquet.FixedLenByteArrayValue(c.bytes[c.from:])
	case tabular.Wholes:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Sprintf("%q is not a whole number of 64 bits", tabular.Clip(s))
		}
		c.value = parquet.Int64Value(n)
	case tabular.Times:
		var t domain.Instant
		if err := t.UnmarshalText([]byte(s)); err != nil {
			return err.Error()
		}
		c.value = parquet.Int64Value(int64(t))
	case tabular.Flags:
		if s != "true" && s != "false" {
			return fmt.Sprintf("%q is not a flag", tabular.Clip(s))
		}
		c.value = parquet.BooleanValue(s == "true")
	}
	c.value = c.value.Level(0, 1, c.at)
	return ""
}

// unitsOf returns a plain decimal in units of 10⁻¹⁸, in two's complement, most significant byte first.
func unitsOf(s string) (n [16]byte, ok bool) {
	digits, negative := strings.CutPrefix(s, "-")
	whole, fraction, point := strings.Cut(digits, ".")
	whole = strings.TrimLeft(whole, "0")
	if digits == "" || digits[0] == '.' || point && fraction == "" || len(whole) > wholeDigits || len(fraction) > decimalDigits {
		return n, false
	}
	var hi, lo uint64
	put := func(c byte) {
		over, low := bits.Mul64(lo, 10)
		var carry uint64
		lo, carry = bits.Add64(low, uint64(c-'0'), 0)
		hi = hi*10 + over + carry
	}
	for _, part := range [...]string{whole, fraction} {
		for i := range len(part) {
			if part[i] < '0' || part[i] > '9' {
				return n, false
			}
			put(part[i])
		}
	}
	for range decimalDigits - len(fraction) {
		put('0')
	}
	if negative {
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
	}
	binary.BigEndian.PutUint64(n[:8], hi)
	binary.BigEndian.PutUint64(n[8:], lo)
	return n, true
}

// Close implements [tabular.Writer].
func (w *Writer) Close() error {
	if w.err == nil {
		w.flush()
	}
	if w.err == nil {
		w.err = w.file.Close()
	}
	return w.err
}
