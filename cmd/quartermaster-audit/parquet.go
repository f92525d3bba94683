package main

import (
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"quartermaster/adapters/commandline"
)

// parquetMagic begins a Parquet file.
const parquetMagic = "PAR1"

// mostScale bounds the scale of decimals: more than 256 bits can use.
const mostScale = 100

// cellText returns the text of a value that is not null.
type cellText func(parquet.Value) string

// readParquet reads a Parquet file whose columns have one value a row. A value has the text that a CSV export has
// for it: decimals are plain, without zeros at the end; times are in RFC 3339, in UTC.
func readParquet(f *os.File, name string) (all *exported, err error) {
	defer func() { // the decoder trusts what it reads
		if p := recover(); p != nil {
			all, err = nil, commandline.Usagef("%s is damaged: %v", name, p)
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	p, err := parquet.OpenFile(f, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, commandline.Usagef("%s is damaged: %v", name, err)
	}
	all = &exported{}
	var texts []cellText
	for _, c := range p.Root().Columns() {
		text, err := textOf(c)
		if err != nil {
			return nil, commandline.Usagef("%s: column %s %v", name, c.Name(), err)
		}
		all.header = append(all.header, c.Name())
		texts = append(texts, text)
	}
	for _, group := range p.RowGroups() {
		if err := all.read(group, texts); err != nil {
			return nil, commandline.Usagef("%s is damaged after row %d: %v", name, len(all.rows), err)
		}
	}
	return all, nil
}

// read adds the rows of a row group.
func (e *exported) read(group parquet.RowGroup, texts []cellText) (err error) {
	rows := group.Rows()
	defer func() { err = errors.Join(err, rows.Close()) }()
	buf := make([]parquet.Row, 128)
	last := make([]string, len(texts)) // rows share texts: most are those of the row before
	left := group.NumRows()
	for {
		n, err := rows.ReadRows(buf)
		left -= int64(n)
		for _, values := range buf[:n] {
			if len(values) != len(texts) {
				return fmt.Errorf("a row has %d values in %d columns", len(values), len(texts))
			}
			row := make([]string, len(texts))
			for _, v := range values {
				if i := v.Column(); !v.IsNull() {
					if text := texts[i](v); text != last[i] {
						last[i] = text
					}
					row[i] = last[i]
				}
			}
			e.rows = append(e.rows, row)
		}
		switch {
		case errors.Is(err, io.EOF) && left != 0:
			return io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// textOf returns how the values of a column are written.
func textOf(c *parquet.Column) (cellText, error) {
	if !c.Leaf() || c.MaxRepetitionLevel() > 0 {
		return nil, errors.New("has several values in a row, which is not read")
	}
	kind := c.Type().Kind()
	var logical format.LogicalTypeValue
	if lt := c.Type().LogicalType(); lt != nil {
		logical = lt.Value
	}
	switch lt := logical.(type) {
	case nil:
		switch kind {
		case parquet.Boolean, parquet.Int32, parquet.Int64, parquet.ByteArray:
			return parquet.Value.String, nil
		case parquet.Float:
			return func(v parquet.Value) string { return strconv.FormatFloat(float64(v.Float()), 'f', -1, 32) }, nil
		case parquet.Double:
			return func(v parquet.Value) string { return strconv.FormatFloat(v.Double(), 'f', -1, 64) }, nil
		}
	case *format.StringType, *format.EnumType, *format.JsonType:
		return parquet.Value.String, nil
	case *format.IntType:
		if lt.IsSigned {
			return parquet.Value.String, nil
		}
	case *format.DecimalType:
		if lt.Scale < 0 || lt.Scale > mostScale {
			return nil, fmt.Errorf("has decimals of scale %d, want at most %d", lt.Scale, mostScale)
		}
		return func(v parquet.Value) string { return decimalText(v, int(lt.Scale)) }, nil
	case *format.DateType:
		return func(v parquet.Value) string { return time.Unix(int64(v.Int32())*86400, 0).UTC().Format(time.DateOnly) }, nil
	case *format.TimestampType:
		if lt.IsAdjustedToUTC && lt.Unit.Value != nil {
			unit := lt.Unit.Value.Duration()
			return func(v parquet.Value) string { return timeText(v.Int64(), unit) }, nil
		}
	}
	return nil, fmt.Errorf("has the Parquet type %s, which is not read", c.Type())
}

// timeText is an instant of units since 1970.
func timeText(n int64, unit time.Duration) string {
	second := int64(time.Second / unit)
	return time.Unix(n/second, n%second*int64(unit)).UTC().Format(time.RFC3339Nano)
}

// decimalText is a decimal without zeros at its end. Its bytes are a whole number in two's complement, most
// significant first.
func decimalText(v parquet.Value, scale int) string {
	n := new(big.Int)
	switch v.Kind() {
	case parquet.Int32:
		n.SetInt64(int64(v.Int32()))
	case parquet.Int64:
		n.SetInt64(v.Int64())
	default:
		b := v.ByteArray()
		if n.SetBytes(b); len(b) > 0 && b[0]&0x80 != 0 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
		}
	}
	text := new(big.Rat).SetFrac(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)).FloatString(scale)
	if scale > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
