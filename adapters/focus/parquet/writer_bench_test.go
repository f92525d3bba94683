package parquet_test

import (
	"encoding/csv"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// allocations returns columns as an export of costs has them, and rows: three of each line. Cells of a line are the same
// strings in its rows.
func allocations(n int) (columns []tabular.Column, rows [][]string) {
	add := func(kind tabular.Kind, n int, name string) {
		for i := range n {
			columns = append(columns, tabular.Column{Name: fmt.Sprint(name, i), Kind: kind})
		}
	}
	add(tabular.Texts, 20, "Same")
	add(tabular.Texts, 25, "Null")
	add(tabular.Times, 5, "Time")
	add(tabular.Texts, 4, "Line")
	add(tabular.Decimals, 4, "Price")
	add(tabular.Decimals, 4, "NoPrice")
	add(tabular.Texts, 8, "Own")
	add(tabular.Decimals, 10, "Amount")
	add(tabular.Texts, 2, "Unique")
	add(tabular.Flags, 1, "Flag")
	line := make([]string, len(columns))
	rows = make([][]string, n)
	for r := range rows {
		k := r / 3
		if r%3 == 0 {
			line = make([]string, len(columns))
			i := 0
			next := func(text func(i int) string, n int) {
				for j := range n {
					line[i] = text(j)
					i++
				}
			}
			next(func(i int) string { return fmt.Sprint("the same value of column ", i) }, 20)
			i += 25
			next(func(int) string { return (domain.Instant(k/2000)*domain.Hour + 1_777_593_600*domain.Second).String() }, 5)
			next(func(i int) string { return fmt.Sprint("line-", k%(1000*(i+1))) }, 4)
			next(func(i int) string { return decimal.New(int64(98_320+i), -4).String() }, 4)
			i += 4 + 8 + 10 + 2
			line[i] = "false"
		}
		row := append([]string(nil), line...)
		for i := range 8 {
			row[62+i] = fmt.Sprint("workspace-", (r+i)%100)
		}
		for i := range 10 {
			row[70+i] = decimal.New(98_320_000_000_00+int64(r*7919+i), -17).String()
		}
		row[80], row[81] = fmt.Sprint("issuer|account|line-", k, "|", r), fmt.Sprintf(`{"Elements":[{"AllocatedRatio":0.%09d}]}`, r)
		rows[r] = row
	}
	return columns, rows
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWrite compares the CPU time of writing rows as Parquet, and as CSV, with that of encoding/csv.
func BenchmarkWrite(b *testing.B) {
	columns, rows := allocations(150_000)
	write := func(w tabular.Writer) time.Duration {
		t := cpu(b)
		for _, row := range rows {
			if err := w.Write(row); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		return cpu(b) - t
	}
	var columnar, text, plain time.Duration
	for b.Loop() {
		columnar += write(parquet.NewWriter(io.Discard, columns))
		text += write(tabular.NewCSVWriter(io.Discard, columns))
		t := cpu(b)
		w := csv.NewWriter(io.Discard)
		for _, row := range rows {
			if err := w.Write(row); err != nil {
				b.Fatal(err)
			}
		}
		w.Flush()
		plain += cpu(b) - t
	}
	b.ReportMetric(columnar.Seconds()/plain.Seconds(), "parquet×csv")
	b.ReportMetric(text.Seconds()/plain.Seconds(), "csv×csv")
	b.ReportMetric(plain.Seconds()/float64(b.N)/float64(len(rows))*1e9, "encoding/csv-ns/row")
}
