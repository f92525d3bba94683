package parquet

import (
	"bytes"
	"errors"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"
)

// flat is a page of a column that has one value or null in each row. Values are taken from the memory of the
// page. Values that follow one another and are equal become text once, and a value of a dictionary too.
type flat struct {
	rows, row int // of the page; the next row
	used      int // values before it that are not null
	levels    []byte
	values    encoding.Values
	length    int // of a value of fixed length
	bytes     []byte
	offsets   []uint32 // of each value in bytes, and the end
	ints      []int64
	indexes   []int32 // in dictionary
	other     bool    // a type whose values are read one by one

	dictionary parquet.Dictionary
	texts      []string // of the dictionary, "" before the first use; nil if the dictionary is too large
	held       int64    // of the room for texts
	value      parquet.Value
}

// shared is what the columns of a table share.
type shared struct {
	room int64 // bytes of dictionaries whose texts may still be kept
	// The last decimal of more than 64 bits. The costs of a line are often equal.
	high, low uint64
	scale     int
	text      string
}

const (
	keptTexts = 64 << 20 // bytes of dictionaries whose texts are kept, of all columns together
	textBytes = 32       // that a text takes in memory, apart from its characters
)

// more makes sure that there is another value. It returns io.EOF after the last of the row group.
func (l *leaf) more() error {
	f := &l.flat
	for f.row == f.rows {
		l.release()
		page, err := l.pages.ReadPage()
		if err != nil {
			return err
		}
		l.page = page
		if err := l.load(page); err != nil {
			return err
		}
	}
	return nil
}

var errShort = errors.New("a page has fewer values than it states")

// load prepares to read a page. All values that it states are there afterwards.
func (l *leaf) load(page parquet.Page) error {
	f := &l.flat
	f.rows, f.row, f.used, f.other = int(page.NumValues()), 0, 0, false
	f.levels, f.values = page.DefinitionLevels(), page.Data()
	f.indexes, f.ints, f.offsets, f.bytes = nil, nil, nil, nil
	l.at, l.n, l.values = 0, 0, nil
	count := f.rows
	if len(f.levels) > 0 {
		if len(f.levels) < f.rows {
			return errShort
		}
		count = bytes.Count(f.levels[:f.rows], []byte{byte(l.definition)})
	}
	if dictionary := page.Dictionary(); dictionary != nil {
		if f.indexes = f.values.Int32(); len(f.indexes) < count {
			return errShort
		}
		values := dictionary.Len()
		for _, i := range f.indexes[:count] {
			if uint32(i) >= uint32(values) {
				return errors.New("a page refers to a value that its dictionary does not have")
			}
		}
		l.remember(dictionary)
		return nil
	}
	switch f.values.Kind() {
	case encoding.ByteArray:
		if f.bytes, f.offsets = f.values.ByteArray(); count > 0 && len(f.offsets) <= count {
			return errShort
		}
		for i := range count {
			if f.offsets[i] > f.offsets[i+1] || int(f.offsets[i+1]) > len(f.bytes) {
				return errors.New("a text lies outside its page")
			}
		}
	case encoding.FixedLenByteArray:
		if f.bytes, f.length = f.values.FixedLenByteArray(); f.length <= 0 || len(f.bytes)/f.length < count {
			return errShort
		}
	case encoding.Int64:
		if f.ints = f.values.Int64(); len(f.ints) < count {
			return errShort
		}
	default:
		f.other, l.values = true, page.Values()
	}
	return nil
}

// remember prepares to keep the texts of a dictionary.
func (l *leaf) remember(d parquet.Dictionary) {
	f := &l.flat
	if f.dictionary == d {
		return
	}
	l.shared.room += f.held
	f.dictionary, f.texts, f.held = d, nil, 0
	if need := int64(d.Len())*textBytes + d.Size(); need <= l.shared.room {
		f.texts, f.held = make([]string, d.Len()), need
		l.shared.room -= need
	}
}

// pass passes the next value.
func (l *leaf) pass() error {
	if err := l.more(); err != nil {
		return err
	}
	l.flat.row++
	if l.flat.other {
		_, err := l.one()
		return err
	}
	return nil
}

// one returns the next value of a page whose values are read one by one.
func (l *leaf) one() (*parquet.Value, error) {
	for l.at == l.n {
		if l.values == nil {
			return nil, errShort
		}
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
	l.at++
	return &l.buf[l.at-1], nil
}

// text returns the text of the next value, passes those after it that are equal, of at most most, and returns how
// many these are.
func (l *leaf) text(most int) (text string, same int, err error) {
	f := &l.flat
	if f.row == f.rows {
		if err := l.more(); err != nil {
			return "", 0, err
		}
	}
	if f.row++; f.other {
		v, err := l.one()
		if err != nil || v.IsNull() {
			return "", 0, err
		}
		return l.format(l, v), 0, nil
	}
	most = min(most, f.rows-f.row)
	present := byte(l.definition)
	if len(f.levels) > 0 && f.levels[f.row-1] != present {
		for same < most && f.levels[f.row+same] != present {
			same++
		}
		f.row += same
		return "", same, nil
	}
	text = l.present(f.used)
	var levels []byte
	if len(f.levels) > 0 {
		levels = f.levels[f.row:]
	}
	switch {
	case f.indexes != nil:
		same = equal(f.indexes[f.used:], levels, present, most)
	case f.ints != nil:
		same = equal(f.ints[f.used:], levels, present, most)
	default:
		for b := f.at(f.used); same < most && (levels == nil || levels[same] == present) && bytes.Equal(f.at(f.used+same+1), b); {
			same++
		}
	}
	f.row, f.used = f.row+same, f.used+same+1
	return text, same, nil
}

// equal returns how many values after the first, of at most most, are equal to it, up to the next null. The levels,
// nil if there are no nulls, begin with that of the second.
func equal[T comparable](values []T, levels []byte, present byte, most int) (n int) {
	for n < most && (levels == nil || levels[n] == present) && values[n+1] == values[0] {
		n++
	}
	return n
}

// at returns a value that has bytes.
func (f *flat) at(i int) []byte {
	if f.offsets != nil {
		return f.bytes[f.offsets[i]:f.offsets[i+1]]
	}
	return f.bytes[i*f.length:][:f.length]
}

// present returns the text of a value that is not null.
func (l *leaf) present(i int) string {
	f := &l.flat
	v := &f.value // formatting would move one of this function to the heap
	switch {
	case f.indexes != nil:
		index := f.indexes[i]
		if f.texts == nil {
			*v = f.dictionary.Index(index)
			return l.format(l, v)
		}
		if f.texts[index] == "" {
			*v = f.dictionary.Index(index)
			f.texts[index] = l.format(l, v)
		}
		return f.texts[index]
	case f.ints != nil:
		*v = parquet.Int64Value(f.ints[i])
	case f.offsets != nil:
		*v = parquet.ByteArrayValue(f.at(i))
	default:
		*v = parquet.FixedLenByteArrayValue(f.at(i))
	}
	return l.format(l, v)
}
