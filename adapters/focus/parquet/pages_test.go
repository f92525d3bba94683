package parquet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/tabular"
)

type oneText struct {
	Text string `parquet:"text"`
}

// forged returns a file of one text, in which change changed the header of the page. The header and
// what follows it have another length, so the footer is made anew.
func forged(t *testing.T, change func(*format.PageHeader), body []byte, options ...pq.WriterOption) []byte {
	t.Helper()
	file := written(t, []oneText{{"some text"}}, options...)
	f, err := pq.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	meta := f.Metadata()
	m := &meta.RowGroups[0].Columns[0].MetaData
	at := m.DataPageOffset
	var h format.PageHeader
	var c thrift.CompactProtocol
	r := c.NewReaderFromBytes(file[at:])
	if err := thrift.NewDecoder(r).Decode(&h); err != nil {
		t.Fatal(err)
	}
	if body == nil {
		body = file[at+int64(r.BytesRead()):][:h.CompressedPageSize]
	}
	h.CRC = 0
	change(&h)
	header, err := thrift.Marshal(&c, &h)
	if err != nil {
		t.Fatal(err)
	}
	out := append(bytes.Clone(file[:at]), header...)
	out = append(out, body...)
	m.TotalCompressedSize = int64(len(header) + len(body))
	footer, err := thrift.Marshal(&c, meta)
	if err != nil {
		t.Fatal(err)
	}
	out = append(out, footer...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	return append(out, "PAR1"...)
}

func TestPagesAreBounded(t *testing.T) {
	plain := []pq.WriterOption{pq.DataPageVersion(1)}
	packed := []pq.WriterOption{pq.DataPageVersion(1), pq.Compression(&pq.Snappy)}
	if rows, _, err := rowsOf(t, forged(t, func(*format.PageHeader) {}, nil, plain...), tabular.Limits{}); err != nil || len(rows) != 2 || rows[1] != "some text" {
		t.Fatalf("an honest file: %q, %v", rows, err)
	}
	for _, c := range []struct {
		name, want string
		file       []byte
	}{
		{"packed size", "column text: file is larger than allowed: a page has 2147483647 bytes, and more than 128 MiB are not read",
			forged(t, func(h *format.PageHeader) { h.CompressedPageSize = 1<<31 - 1 }, nil, plain...)},
		{"unpacked size", "a page has 2000000000 bytes",
			forged(t, func(h *format.PageHeader) { h.UncompressedPageSize = 2_000_000_000 }, nil, packed...)},
		{"size in Snappy", "a page has 4294967295 bytes",
			forged(t, func(h *format.PageHeader) { h.CompressedPageSize = 6 }, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}, packed...)},
		{"values", "a page has 2147483647 values, and more than 16777216 are not read",
			forged(t, func(h *format.PageHeader) { h.DataPageHeader.V.NumValues = 1<<31 - 1 }, nil, plain...)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := rowsOf(t, c.file, tabular.Limits{})
		whole := parquet.Whole(context.Background(), bytes.NewReader(c.file), tabular.Limits{}, errColumns)
		runtime.ReadMemStats(&after)
		for _, err := range []error{err, whole} {
			if !errors.Is(err, tabular.ErrTooLarge) || errors.Is(err, tabular.ErrDamaged) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%s: %d MiB were allocated", c.name, took>>20)
		}
	}
	// A header with long statistics is read in more than one step.
	long := forged(t, func(h *format.PageHeader) { h.DataPageHeader.V.Statistics.MaxValue = bytes.Repeat([]byte("x"), 5000) }, nil, plain...)
	if rows, _, err := rowsOf(t, long, tabular.Limits{}); err != nil || len(rows) != 2 {
		t.Errorf("long statistics: %q, %v", rows, err)
	}
}
