package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"quartermaster/adapters/tabular"
)

// The decoder allocates what the header of a page states, before it reads the page. Writers make pages
// of 1 MiB; DuckDB makes the largest, of up to 100 MB.
const (
	maxPage   = 128 << 20 // bytes of a page, packed or unpacked
	maxOpen   = 1 << 30   // bytes of the largest page of every column of a row group: those are open at once
	maxValues = 1 << 24   // values of a page, whose nulls take space although they are not in it
	maxHeader = 1 << 20   // bytes of a page's header, which has statistics
)

// bounded refuses a row group whose pages state more than this program reads, before the decoder
// allocates for them. It reads the headers alone.
func (t *Table) bounded(group int) error {
	open := int64(0)
	for _, l := range t.leaves {
		m := &t.file.Metadata().RowGroups[group].Columns[l.index].MetaData
		largest, err := t.largestPage(m)
		if err != nil {
			return fmt.Errorf("column %s: %w", l.name, err)
		}
		if open += largest; open > maxOpen {
			return fmt.Errorf("%w: the pages of row group %d that are open at once have more than %d MiB; write smaller pages", tabular.ErrTooLarge, group+1, maxOpen>>20)
		}
	}
	return nil
}

// largestPage returns the size of the largest page of a column in a row group.
func (t *Table) largestPage(m *format.ColumnMetaData) (largest int64, err error) {
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	if at < 0 || m.TotalCompressedSize < 0 || at+m.TotalCompressedSize < at {
		return 0, errors.New("it lies outside the file")
	}
	for end := at + m.TotalCompressedSize; at < end; {
		if err := t.ctx.Err(); err != nil {
			return 0, err
		}
		h, length, err := t.pageHeader(at, end)
		if err != nil {
			return 0, err
		}
		at += length
		if h.CompressedPageSize < 0 || h.UncompressedPageSize < 0 {
			return 0, errors.New("a page has a negative size")
		}
		size := max(int64(h.CompressedPageSize), int64(h.UncompressedPageSize))
		if m.Codec == format.Snappy && h.Type != format.DataPageV2 {
			size = max(size, t.snappy(at))
		}
		values := max(h.DataPageHeader.V.NumValues, h.DataPageHeaderV2.V.NumValues, h.DictionaryPageHeader.V.NumValues)
		switch {
		case size > maxPage:
			return 0, fmt.Errorf("%w: a page has %d bytes, and more than %d MiB are not read; write smaller pages", tabular.ErrTooLarge, size, maxPage>>20)
		case values > maxValues:
			return 0, fmt.Errorf("%w: a page has %d values, and more than %d are not read; write smaller pages", tabular.ErrTooLarge, values, maxValues)
		}
		largest = max(largest, size)
		at += int64(h.CompressedPageSize)
	}
	return largest, nil
}

// pageHeader reads the header of a page, and returns its length. Headers are short, but statistics
// have no bound.
func (t *Table) pageHeader(at, end int64) (h *format.PageHeader, length int64, err error) {
	for size := int64(512); ; size *= 16 {
		window := make([]byte, min(size, end-at, maxHeader))
		n, err := t.from.ReadAt(window, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		h = new(format.PageHeader)
		r := (&thrift.CompactProtocol{}).NewReaderFromBytes(window[:n])
		if err = thrift.NewDecoder(r).Decode(h); err == nil {
			return h, int64(r.BytesRead()), nil
		}
		if int64(n) < size {
			return nil, 0, fmt.Errorf("the header of a page: %w", err)
		}
	}
}

// snappy returns the unpacked size that a Snappy block at an offset states: the decoder believes it,
// whatever the page's header states. It returns 0 if there is none.
func (t *Table) snappy(at int64) int64 {
	var head [binary.MaxVarintLen32]byte
	n, _ := t.from.ReadAt(head[:], at)
	size, read := binary.Uvarint(head[:n])
	if read <= 0 {
		return 0
	}
	return int64(min(size, 1<<40))
}
