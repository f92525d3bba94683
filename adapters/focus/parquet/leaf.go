package parquet

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// batch is how many values are taken from a page at a time.
const batch = 512

// leaf reads the values of one column of values.
type leaf struct {
	name       string
	index      int // in a row group
	definition int // of a value that is not null
	repeated   bool
	format     func(l *leaf, v *parquet.Value) string // of a value that is not null
	scale      int                                    // of a decimal
	bare       bool                                   // numbers and booleans, without quotes in JSON
	cache      cache

	shared *shared
	single bool // a column of its own, not repeated: it is read by flat
	flat   flat

	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
	buf    []parquet.Value
	at, n  int

	row []parquet.Value // the values of a row of a list
}

// open begins another row group.
func (l *leaf) open(pages parquet.Pages) {
	l.pages, l.values = pages, nil
	l.flat.rows, l.flat.row = 0, 0
}

// finish ends a row group, all of whose rows were read.
func (l *leaf) finish() error {
	if l.pages == nil {
		return nil
	}
	var err error
	if l.single {
		err = l.more()
	} else {
		_, err = l.next()
	}
	if err == nil {
		return errors.New("it has more values than the row group has rows")
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	l.release()
	err = l.pages.Close()
	l.pages = nil
	return err
}

// skip passes the values of a row.
func (l *leaf) skip() error {
	return guarded(func() (err error) {
		switch {
		case l.single:
			err = l.pass()
		case l.repeated:
			err = l.list()
		default:
			_, err = l.next()
		}
		return err
	})
}

func (l *leaf) release() {
	if l.page != nil {
		parquet.Release(l.page)
		l.page = nil
	}
}

// next returns the next value. It is valid until the next call. It returns io.EOF after the last of
// the row group.
func (l *leaf) next() (*parquet.Value, error) {
	for l.at == l.n {
		if l.values == nil {
			l.release()
			page, err := l.pages.ReadPage()
			if err != nil {
				return nil, err
			}
			l.page, l.values = page, page.Values()
		}
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
	l.at++
	return &l.buf[l.at-1], nil
}

// fill takes values from the open page.
func (l *leaf) fill() error {
	if l.buf == nil {
		l.buf = make([]parquet.Value, batch)
	}
	n, err := l.values.ReadValues(l.buf)
	l.at, l.n = 0, n
	if errors.Is(err, io.EOF) {
		l.values = nil
		return nil
	}
	if err == nil && n == 0 {
		return io.ErrNoProgress
	}
	return err
}

// list reads the values of the next row of a repeated column into row.
func (l *leaf) list() error {
	l.row = l.row[:0]
	for {
		v, err := l.next()
		if errors.Is(err, io.EOF) && len(l.row) > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if len(l.row) > 0 && v.RepetitionLevel() == 0 {
			l.at-- // of the next row
			return nil
		}
		if len(l.row) == maxList {
			return fmt.Errorf("a list has more than %d values", maxList)
		}
		l.row = append(l.row, v.Clone())
	}
}

// maxList bounds the values of a list in one row.
const maxList = 1 << 16
