package parquet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

var errColumns = errors.New("wrong columns")

// rowsOf reads a file. Fields are joined by "|".
func rowsOf(t testing.TB, file []byte, limits tabular.Limits) (rows []string, notes []tabular.Note, err error) {
	t.Helper()
	if !parquet.Is(bytes.NewReader(file)) {
		t.Fatal("the file is not taken for Parquet")
	}
	tab, err := parquet.Open(context.Background(), bytes.NewReader(file), limits, errColumns)
	if err != nil {
		return nil, nil, err
	}
	var before []string
	for line := 1; ; line++ {
		row, err := tab.Next()
		if errors.Is(err, io.EOF) {
			return rows, tab.Notes(), nil
		}
		if err != nil {
			return rows, tab.Notes(), err
		}
		if row.Line != line {
			t.Fatalf("row %d has line %d", line, row.Line)
		}
		for i, f := range row.Fields {
			if row.Changed != nil && slices.Contains(row.Changed, i) == (f == before[i]) {
				t.Fatalf("row %q after %q: columns %v are said to differ", row.Fields, before, row.Changed)
			}
		}
		before = slices.Clone(row.Fields)
		if row.Broken != nil {
			rows = append(rows, "broken: "+row.Broken.Reason)
			continue
		}
		rows = append(rows, strings.Join(row.Fields, "|"))
	}
}

// written writes rows of a struct.
func written[T any](t testing.TB, rows []T, options ...pq.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pq.NewGenericWriter[T](&b, options...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// columnsOf writes one row of the given columns, in the order of their names.
func columnsOf(t testing.TB, schema pq.Group, row pq.Row) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pq.NewWriter(&b, pq.NewSchema("row", schema))
	if _, err := w.WriteRows([]pq.Row{row}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTexts(t *testing.T) {
	big38 := new(big.Int)
	big38.SetString("-99999999999999999999999999999999999999", 10)
	two := new(big.Int).Add(big38, new(big.Int).Lsh(big.NewInt(1), 128))
	noon := time.Date(2026, 5, 1, 12, 0, 0, 250_000_000, time.UTC)
	day := int32(noon.Unix() / 86400)
	for name, c := range map[string]struct {
		node  pq.Node
		value pq.Value
		want  string
		note  bool
	}{
		"text":                {pq.String(), pq.ByteArrayValue([]byte("a,\"b\"\n")), "a,\"b\"\n", false},
		"bytes":               {pq.Leaf(pq.ByteArrayType), pq.ByteArrayValue([]byte("x")), "x", false},
		"json":                {pq.JSON(), pq.ByteArrayValue([]byte(`{"a":1}`)), `{"a":1}`, false},
		"boolean":             {pq.Leaf(pq.BooleanType), pq.BooleanValue(true), "true", false},
		"integer":             {pq.Int(64), pq.Int64Value(-7), "-7", false},
		"unsigned":            {pq.Uint(32), pq.Int32Value(-1), "4294967295", false},
		"double":              {pq.Leaf(pq.DoubleType), pq.DoubleValue(0.1), "0.1", true},
		"small double":        {pq.Leaf(pq.DoubleType), pq.DoubleValue(1e-7), "0.0000001", true},
		"negative zero":       {pq.Leaf(pq.DoubleType), pq.DoubleValue(math.Copysign(0, -1)), "0", true},
		"not a number":        {pq.Leaf(pq.DoubleType), pq.DoubleValue(math.NaN()), "NaN", true},
		"float":               {pq.Leaf(pq.FloatType), pq.FloatValue(0.1), "0.1", true},
		"decimal in int32":    {pq.Decimal(2, 9, pq.Int32Type), pq.Int32Value(-5), "-0.05", false},
		"decimal in int64":    {pq.Decimal(4, 18, pq.Int64Type), pq.Int64Value(1234500), "123.45", false},
		"decimal of scale 0":  {pq.Decimal(0, 18, pq.Int64Type), pq.Int64Value(1200), "1200", false},
		"whole decimal":       {pq.Decimal(2, 18, pq.Int64Type), pq.Int64Value(1200), "12", false},
		"decimal in 16 bytes": {pq.Decimal(18, 38, pq.FixedLenByteArrayType(16)), pq.FixedLenByteArrayValue(two.Bytes()), "-99999999999999999999.999999999999999999", false},
		"small in 16 bytes":   {pq.Decimal(10, 38, pq.FixedLenByteArrayType(16)), pq.FixedLenByteArrayValue(bytes.Repeat([]byte{0xff}, 16)), "-0.0000000001", false},
		"decimal in bytes":    {pq.Decimal(3, 38, pq.ByteArrayType), pq.ByteArrayValue([]byte{0x30, 0x39}), "12.345", false},
		"date":                {pq.Date(), pq.Int32Value(day), "2026-05-01", false},
		"milliseconds":        {pq.Timestamp(pq.Millisecond), pq.Int64Value(noon.UnixMilli()), "2026-05-01T12:00:00.25Z", false},
		"microseconds":        {pq.Timestamp(pq.Microsecond), pq.Int64Value(noon.UnixMicro()), "2026-05-01T12:00:00.25Z", false},
		"local":               {pq.TimestampAdjusted(pq.Nanosecond, false), pq.Int64Value(noon.UnixNano()), "2026-05-01T12:00:00.25", false},
		"before 1970":         {pq.Timestamp(pq.Millisecond), pq.Int64Value(-1), "1969-12-31T23:59:59.999Z", false},
		"int96": {
			pq.Leaf(pq.Int96Type), pq.Int96Value(deprecated.Int96{uint32(uint64(12*time.Hour) & 0xffffffff), uint32(uint64(12*time.Hour) >> 32), uint32(2440588 + day)}),
			"2026-05-01T12:00:00Z", false,
		},
		"uuid": {pq.UUID(), pq.FixedLenByteArrayValue([]byte("0123456789abcdef")), "30313233-3435-3637-3839-616263646566", false},
	} {
		file := columnsOf(t, pq.Group{"a": pq.Optional(c.node), "b": pq.Optional(c.node)}, pq.Row{c.value.Level(0, 1, 0), pq.NullValue().Level(0, 0, 1)})
		rows, notes, err := rowsOf(t, file, tabular.Limits{})
		if err != nil || len(rows) != 2 || rows[0] != "a|b" || rows[1] != c.want+"|" || (len(notes) == 2) != c.note {
			t.Errorf("%s: %q, notes %v, error %v, want %q", name, rows, notes, err, c.want)
		}
	}
}

func TestWhatIsNotRead(t *testing.T) {
	for name, node := range map[string]pq.Node{
		"BSON":  pq.BSON(),
		"TIME":  pq.Time(pq.Millisecond),
		"FIXED": pq.Leaf(pq.FixedLenByteArrayType(3)),
	} {
		value := pq.NullValue().Level(0, 0, 0)
		_, _, err := rowsOf(t, columnsOf(t, pq.Group{"cost": pq.Optional(node)}, pq.Row{value}), tabular.Limits{})
		if !errors.Is(err, errColumns) || !strings.Contains(err.Error(), "column cost has the Parquet type "+name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestNested(t *testing.T) {
	type pair struct {
		Key   string
		Value *string
	}
	type inner struct {
		Name   string  `parquet:"name"`
		Amount float64 `parquet:"amount"`
	}
	type row struct {
		ID      string            `parquet:"id"`
		Tags    map[string]string `parquet:"tags"`
		Labels  []pair            `parquet:"labels"`
		Names   []string          `parquet:"names,list"`
		Credits []inner           `parquet:"credits,list"`
		Deep    []map[string]int  `parquet:"deep,list"`
		One     *inner            `parquet:"one"`
	}
	v := "v"
	rows := []row{
		{ID: "full", Tags: map[string]string{"z": "1", "a": "<2>"}, Labels: []pair{{"k", &v}, {"n", nil}}, Names: []string{"x", "y"}, Credits: []inner{{"c", -1.5}, {"d", 0}}, Deep: []map[string]int{{"p": 1}, {}, {"q": 2, "r": 3}}, One: &inner{"o", 2}},
		{ID: "empty"},
		{ID: "next", Names: []string{"only"}},
	}
	var all []row
	for range 700 { // across batches and pages
		all = append(all, rows...)
	}
	for _, size := range []int{100, 1 << 20} {
		got, notes, err := rowsOf(t, written(t, all, pq.PageBufferSize(size), pq.MaxRowsPerRowGroup(1000)), tabular.Limits{})
		if err != nil || len(got) != 1+len(all) || len(notes) != 2 {
			t.Fatalf("pages of %d: %d rows, notes %v, error %v", size, len(got), notes, err)
		}
		want := []string{
			`full|{"a":"<2>","z":"1"}|[{"Key":"k","Value":"v"},{"Key":"n","Value":null}]|["x","y"]|[{"name":"c","amount":-1.5},{"name":"d","amount":0}]|[{"p":1},{},{"q":2,"r":3}]|{"name":"o","amount":2}`,
			`empty|{}|[]|[]|[]|[]|`,
			`next|{}|[]|["only"]|[]|[]|`,
		}
		for i, g := range got[1:] {
			if g != want[i%3] {
				t.Fatalf("pages of %d, row %d: %s, want %s", size, i, g, want[i%3])
			}
		}
	}
}

// Decimals of 16 bytes are written as package decimal writes them.
func TestDecimals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.StringMatching(`-?[1-9][0-9]{0,37}`).Draw(t, "digits")
		scale := rapid.IntRange(0, 38).Draw(t, "scale")
		if rapid.Bool().Draw(t, "zeros") {
			digits = digits[:min(len(digits), 19)] + strings.Repeat("0", 18)
		}
		n, _ := new(big.Int).SetString(digits, 10)
		var b [16]byte
		two := new(big.Int).Set(n)
		if n.Sign() < 0 {
			two.Add(two, new(big.Int).Lsh(big.NewInt(1), 128))
		}
		two.FillBytes(b[:])
		var file bytes.Buffer
		w := pq.NewWriter(&file, pq.NewSchema("row", pq.Group{"a": pq.Decimal(scale, 38, pq.FixedLenByteArrayType(16))}))
		if _, err := w.WriteRows([]pq.Row{{pq.FixedLenByteArrayValue(b[:]).Level(0, 0, 0)}}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		tab, err := parquet.Open(context.Background(), bytes.NewReader(file.Bytes()), tabular.Limits{}, errColumns)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Next(); err != nil {
			t.Fatal(err)
		}
		row, err := tab.Next()
		want := decimal.NewFromBigInt(n, -int32(scale)).String()
		if err != nil || row.Fields[0] != want {
			t.Fatalf("%s with scale %d is %v, error %v, want %s", digits, scale, row.Fields, err, want)
		}
	})
}

// Values that follow one another and are equal are read together, up to the end of a page and of a row group.
func TestRuns(t *testing.T) {
	type row struct {
		Dictionary *string  `parquet:"a,dict,optional"`
		Text       *string  `parquet:"b,plain,optional"`
		Whole      int64    `parquet:"c"`
		Maybe      *int64   `parquet:"d,optional"`
		Fixed      [16]byte `parquet:"e,decimal(2:38)"`
		List       []int64  `parquet:"f,list"`
		Flag       *bool    `parquet:"g,optional"`
	}
	rapid.Check(t, func(rt *rapid.T) {
		rows, want := make([]row, rapid.IntRange(1, 120).Draw(rt, "rows")), []string{"a|b|c|d|e|f|g"}
		var r row
		for i := range rows {
			again := func() bool { return rapid.IntRange(0, 3).Draw(rt, "again") > 0 }
			of := func(n int64) *int64 { return &n }
			number := rapid.Int64Range(-2, 2)
			if !again() {
				r.Dictionary = rapid.Ptr(rapid.SampledFrom([]string{"", "x", "long text"}), true).Draw(rt, "dictionary")
			}
			if !again() {
				r.Text = rapid.Ptr(rapid.SampledFrom([]string{"", "x", "y", "long text"}), true).Draw(rt, "text")
			}
			if !again() {
				r.Whole = number.Draw(rt, "whole")
			}
			if r.Maybe = of(number.Draw(rt, "maybe")); *r.Maybe == 0 {
				r.Maybe = nil
			}
			if !again() {
				for b := range r.Fixed {
					r.Fixed[b] = byte(r.Whole >> 8)
				}
				r.Fixed[15] = byte(r.Whole)
			}
			if r.List = nil; !again() {
				r.List = []int64{r.Whole}
			}
			if !again() {
				r.Flag = rapid.Ptr(rapid.Bool(), true).Draw(rt, "flag")
			}
			rows[i] = r
			want = append(want, strings.Join([]string{
				textOf(r.Dictionary), textOf(r.Text), fmt.Sprint(r.Whole), textOf(r.Maybe), decimal.New(int64(int8(r.Fixed[15])), -2).String(),
				strings.ReplaceAll(fmt.Sprint(r.List), " ", ","), textOf(r.Flag),
			}, "|"))
		}
		file := written(t, rows, pq.PageBufferSize(rapid.SampledFrom([]int{16, 200, 1 << 20}).Draw(rt, "page")), pq.MaxRowsPerRowGroup(int64(rapid.IntRange(1, 50).Draw(rt, "group"))))
		got, _, err := rowsOf(t, file, tabular.Limits{})
		if err != nil || !slices.Equal(got, want) {
			rt.Fatalf("got\n%s\nwant\n%s\nerror %v", strings.Join(got, "\n"), strings.Join(want, "\n"), err)
		}
	})
}

func textOf[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

// The same rows give the same lines, whether they were exported as CSV or as Parquet.
func TestSameLinesAsCSV(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := []string{"BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargePeriodEnd", "ChargePeriodStart", "InvoiceIssuerName", "ResourceId", "Tags"}
		group := pq.Group{}
		for _, n := range names {
			group[n] = pq.Optional(pq.String())
		}
		scale := rapid.IntRange(0, 18).Draw(rt, "scale")
		group["BilledCost"] = pq.Decimal(scale, 18, pq.Int64Type)
		for _, n := range []string{"BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd"} {
			group[n] = pq.Timestamp(pq.Millisecond)
		}
		may := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
		june := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
		var csv strings.Builder
		csv.WriteString(strings.Join(names, ",") + "\n")
		var file bytes.Buffer
		codecs := []pq.WriterOption{pq.Compression(&pq.Snappy), pq.Compression(&pq.Zstd), pq.Compression(&pq.Gzip), pq.Compression(&pq.Uncompressed)}
		w := pq.NewWriter(&file, pq.NewSchema("bill", group), rapid.SampledFrom(codecs).Draw(rt, "codec"),
			pq.PageBufferSize(rapid.SampledFrom([]int{64, 1 << 20}).Draw(rt, "page")), pq.MaxRowsPerRowGroup(int64(rapid.IntRange(1, 40).Draw(rt, "group"))))
		for range rapid.IntRange(1, 60).Draw(rt, "rows") {
			cost := rapid.Int64Range(-1e14, 1e14).Draw(rt, "cost")
			start := may.Add(time.Duration(rapid.IntRange(0, 700).Draw(rt, "hour")) * time.Hour)
			resource := rapid.SampledFrom([]string{"", "i-1", "i-2"}).Draw(rt, "resource")
			text := domain.Decimal{}
			text = text.Add(decimalOf(cost, scale))
			fmt.Fprintf(&csv, "%s,acct,USD,%s,%s,Usage,%s,%s,Example,%s,\"{\"\"a\"\":1}\"\n", text, june.Format(time.RFC3339), may.Format(time.RFC3339),
				start.Add(time.Hour).Format(time.RFC3339), start.Format(time.RFC3339), resource)
			res := pq.ByteArrayValue([]byte(resource)).Level(0, 1, 9)
			if resource == "" {
				res = pq.NullValue().Level(0, 0, 9)
			}
			str := func(s string, i int) pq.Value { return pq.ByteArrayValue([]byte(s)).Level(0, 1, i) }
			ms := func(at time.Time, i int) pq.Value { return pq.Int64Value(at.UnixMilli()).Level(0, 0, i) }
			row := pq.Row{
				pq.Int64Value(cost).Level(0, 0, 0), str("acct", 1), str("USD", 2), ms(june, 3), ms(may, 4), str("Usage", 5),
				ms(start.Add(time.Hour), 6), ms(start, 7), str("Example", 8), res, str(`{"a":1}`, 10),
			}
			if _, err := w.WriteRows([]pq.Row{row}); err != nil {
				rt.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			rt.Fatal(err)
		}
		want := linesOf(rt, strings.NewReader(csv.String()), strings.NewReader(csv.String()), focus.Options{})
		opts := focus.Options{Open: func(ctx context.Context, f io.Reader, l tabular.Limits) (tabular.Table, error) {
			return parquet.Open(ctx, f, l, focus.ErrColumns)
		}}
		got := linesOf(rt, bytes.NewReader(file.Bytes()), bytes.NewReader(file.Bytes()), opts)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			rt.Fatalf("Parquet gives\n%s\nCSV gives\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func decimalOf(n int64, scale int) domain.Decimal {
	d, err := decimal.NewFromString(fmt.Sprintf("%de-%d", n, scale))
	if err != nil {
		panic(err)
	}
	return d
}

type fataler interface{ Fatalf(string, ...any) }

func linesOf(t fataler, file, again io.Reader, opts focus.Options) (lines []string) {
	s, err := focus.Run(context.Background(), file, again, "bill", opts, func(env *domain.Envelope) error {
		l := env.Event.(*domain.BillingLineRecorded).Line
		lines = append(lines, fmt.Sprintf("%s %s %s %s", l.LineID, l.BilledCost, l.ChargePeriodStart, l.ResourceID))
		return nil
	}, func(b tabular.BadRow) { lines = append(lines, b.Reason) })
	if err != nil || s.Rows != len(lines) {
		t.Fatalf("%+v: %v", s, err)
	}
	return lines
}

func TestLimits(t *testing.T) {
	type row struct{ Text string }
	many := make([]row, 3000)
	for i := range many {
		many[i].Text = strings.Repeat("x", 90)
	}
	file := written(t, many)
	if _, _, err := rowsOf(t, file, tabular.Limits{DecodedBytes: 200_000}); !errors.Is(err, tabular.ErrTooLarge) {
		t.Errorf("many equal rows: error %v", err)
	}
	rows, _, err := rowsOf(t, written(t, []row{{strings.Repeat("x", 200)}, {"y"}}), tabular.Limits{LineBytes: 100})
	if err != nil || len(rows) != 3 || rows[1] != "broken: the row is longer than 100 bytes" || rows[2] != "y" {
		t.Errorf("a long row: %q, error %v", rows, err)
	}
	if _, err := parquet.Open(context.Background(), strings.NewReader("PAR1 and no more"), tabular.Limits{}, errColumns); !errors.Is(err, tabular.ErrDamaged) {
		t.Errorf("no Parquet: error %v", err)
	}
	if parquet.Is(strings.NewReader("PAR")) || parquet.Is(io.MultiReader(strings.NewReader("PAR1"))) {
		t.Error("something else is taken for Parquet")
	}
}

// A damaged file is found before its rows are, and no damage makes the reader panic.
func FuzzTable(f *testing.F) {
	type row struct {
		A string            `parquet:"a,dict"`
		B []int64           `parquet:"b,list"`
		C map[string]string `parquet:"c"`
		D *float64          `parquet:"d"`
	}
	d := 1.5
	rows := []row{{"x", []int64{1, 2}, map[string]string{"k": "v"}, &d}, {"y", nil, nil, nil}}
	whole := written(f, rows, pq.Compression(&pq.Uncompressed))
	f.Add(whole)
	f.Add(whole[:len(whole)-5])
	for i := 5; i < len(whole); i += 7 {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x11
		f.Add(flipped)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		limits := tabular.Limits{DecodedBytes: 1 << 20, LineBytes: 1 << 16}
		check := parquet.Whole(context.Background(), bytes.NewReader(file), limits, errColumns)
		tab, err := parquet.Open(context.Background(), bytes.NewReader(file), limits, errColumns)
		for n := 0; err == nil && n < 10_000; n++ {
			_, err = tab.Next()
		}
		if check == nil && err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, tabular.ErrTooLarge) {
			t.Fatalf("the file is whole, but reading it ends with %v", err)
		}
	})
}
