package focus_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// texts are texts that CSV and trimming do not change.
var texts = rapid.Custom(func(t *rapid.T) string {
	s := rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "i-1", `"quoted"`, "a,b", "two\nlines", "ünïcödé €", `{"k":"v"}`, "tab\tbed", "=1+1", "nullable", "-"}),
		rapid.StringMatching(`[ -~]{0,20}`),
	).Draw(t, "text")
	s = strings.TrimSpace(s)
	if s == "NULL" || s == "null" {
		return ""
	}
	return s
})

// numbers have up to 24 digits before the point and 18 after it.
var numbers = rapid.Custom(func(t *rapid.T) domain.Decimal {
	n := new(big.Int)
	n.SetString(rapid.StringMatching(`-?[0-9]{1,24}`).Draw(t, "digits"), 10)
	return decimal.NewFromBigInt(n, -rapid.Int32Range(0, 18).Draw(t, "scale"))
})

// amounts have up to 15 digits before the point, so attribution can divide them.
var amounts = rapid.Custom(func(t *rapid.T) domain.Decimal {
	digits := rapid.StringMatching(`[0-9]{1,33}`).Draw(t, "digits")
	scale := rapid.Int32Range(max(0, int32(len(digits))-15), 18).Draw(t, "scale")
	d := decimal.RequireFromString(digits).Shift(-scale)
	if rapid.Bool().Draw(t, "negative") {
		return d.Neg()
	}
	return d
})

// drawLine fills every field of a line with a value that Validate accepts.
func drawLine(t *rapid.T) domain.BillingLine {
	var l domain.BillingLine
	v := reflect.ValueOf(&l).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch p := v.Field(i).Addr().Interface().(type) {
		case *string:
			*p = texts.Draw(t, name)
		case *domain.Decimal:
			*p = numbers.Draw(t, name)
		case *domain.NullDecimal:
			if p.Valid = rapid.Bool().Draw(t, name); p.Valid {
				p.Decimal = numbers.Draw(t, name)
			}
		case *bool:
			*p = rapid.Bool().Draw(t, name)
		}
	}
	id := rapid.StringMatching(`[a-zA-Z0-9 ,"|.-]{0,9}[a-z]`)
	l.LineID, l.BillingAccountID, l.InvoiceIssuerName, l.FocusVersion = id.Draw(t, "id"), id.Draw(t, "account"), id.Draw(t, "issuer"), "1.2"
	for _, s := range []*string{&l.LineID, &l.BillingAccountID, &l.InvoiceIssuerName} {
		*s = strings.TrimSpace(*s)
	}
	l.BillingCurrency = rapid.StringMatching(`[A-Z]{3}`).Draw(t, "currency")
	l.ChargeClass = "Correction" // FOCUS has no rules for corrections
	one := func(values ...string) string { return rapid.SampledFrom(values).Draw(t, "value") }
	l.ChargeCategory = one("Usage", "Purchase", "Tax", "Credit", "Adjustment")
	l.ChargeFrequency = one("", "One-Time", "Recurring", "Usage-Based")
	l.PricingCategory = one("", "Standard", "Dynamic", "Committed", "Other")
	l.CommitmentDiscountCategory = one("", "Spend", "Usage")
	l.CommitmentDiscountStatus, l.CapacityReservationStatus = one("", "Used", "Unused"), one("", "Used", "Unused")
	for _, n := range []*domain.NullDecimal{&l.ContractedUnitPrice, &l.ListUnitPrice, &l.PricingCurrencyContractedUnitPrice, &l.PricingCurrencyListUnitPrice} {
		n.Decimal = n.Decimal.Abs()
	}
	l.BilledCost = amounts.Draw(t, "billed")
	if l.EffectiveCost.Valid {
		l.EffectiveCost.Decimal = amounts.Draw(t, "effective")
	}
	l.PricingUnit, l.ConsumedUnit = one("", "GB", "Hours"), one("", "Months", "GPU-Hours")
	for _, q := range []struct {
		unit string
		n    *domain.NullDecimal
	}{{l.PricingUnit, &l.PricingQuantity}, {l.ConsumedUnit, &l.ConsumedQuantity}} {
		if q.n.Valid && strings.HasSuffix(q.unit, "Hours") {
			q.n.Decimal = decimal.New(rapid.Int64Range(-2e8, 2e8).Draw(t, "hours"), -rapid.Int32Range(0, 9).Draw(t, "scale"))
		}
	}
	at := func(name string) domain.Instant {
		return domain.Instant(rapid.Int64Range(1, 9_000_000_000).Draw(t, name)) * domain.Second
	}
	l.BillingPeriodStart, l.ChargePeriodStart = at("billing"), at("charge")
	l.BillingPeriodEnd, l.ChargePeriodEnd = l.BillingPeriodStart+31*domain.Day, l.ChargePeriodStart+1
	if v := texts.Draw(t, "other"); v != "" {
		l.Other = map[string]string{"x_Other": v}
	}
	// A value that was set aside or rounded is written as it was read.
	written := func(column, text string) {
		if l.Other == nil {
			l.Other = map[string]string{}
		}
		l.Other[domain.AsWritten(column)] = text
	}
	if rapid.Bool().Draw(t, "deviates") {
		l.BilledCost = decimal.RequireFromString("0.000000000000000002")
		written("BilledCost", one("0.0000000000000000015", "0.0000000000000000025", "25E-19", "2.00000000000000000001e-18"))
		l.PricingCategory, l.ListUnitPrice, l.ListCost = "", domain.NullDecimal{}, domain.NullDecimal{}
		written("PricingCategory", one("Spot", "standard"))
		written("ListUnitPrice", one("-1", "-3.00000000000"))
		written("ListCost", one("n/a", "1,5", "$3", "1e24"))
		l.BillingAccountName = strings.Repeat("n", 4096)
		written("BillingAccountName", strings.Repeat("n", 5000))
	}
	return l
}

// TestLinesComeBackAsWritten checks the round trip of writer and reader: no digit, text or time
// of any column is lost.
func TestLinesComeBackAsWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLine(rt)
		if err := domain.Validate(&domain.Envelope{Time: 1, Event: &domain.BillingLineRecorded{Line: l}}); err != nil {
			rt.Fatalf("the drawn line is invalid: %v", err)
		}
		corrects := rapid.SampledFrom([]string{"", "l-0 "}).Draw(rt, "corrects")
		var b bytes.Buffer
		w := focus.NewWriter(&b, "x_Other")
		var want domain.Event = &domain.BillingLineRecorded{Line: l}
		var err error
		if corrects == "" {
			err = w.WriteLine(&l)
		} else {
			c := &domain.BillingLineCorrected{Line: l, Corrects: strings.TrimSpace(corrects), Reason: "why, then"}
			want, err = c, w.WriteCorrection(c)
		}
		if err == nil {
			err = w.Flush()
		}
		if err != nil {
			rt.Fatal(err)
		}
		r := read(t, b.String(), focus.Options{})
		if r.err != nil || len(r.events) != 1 {
			rt.Fatalf("bad %v, error %v in\n%s", r.bad, r.err, b.String())
		}
		// The reader fills this field where it is null, so it cannot be null again.
		if got, want := asJSON(t, r.events[0].Event), asJSON(t, want); got != want {
			rt.Fatalf("came back as\n%s, was\n%s", got, want)
		}
	})
}

// TestNumbersAreReadExactly compares the parser with rational arithmetic: numbers are exact to 18
// decimals, and the rest is kept and at most half of the last digit.
func TestNumbersAreReadExactly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringMatching(`-?[0-9]{0,14}(\.[0-9]{0,14})?([eE][+-]?[0-9]{1,2})?`).Draw(rt, "number")
		want, isNumber := new(big.Rat).SetString(text)
		r := read(t, bill([]string{"BilledCost=" + text}), focus.Options{})
		if !isNumber {
			if len(r.bad) != 1 {
				rt.Fatalf("%q is read as %v", text, r.events)
			}
			return
		}
		fine := new(big.Rat).Mul(want, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(18), nil)))
		large := new(big.Rat).Abs(want).Cmp(new(big.Rat).SetInt64(1e15)) >= 0
		if large == (len(r.events) == 1) {
			rt.Fatalf("%q: events %d, bad %v", text, len(r.events), r.bad)
		}
		if large {
			return
		}
		l := r.line(0)
		rest := new(big.Rat).Sub(want, l.BilledCost.Rat())
		if fine.IsInt() != (rest.Sign() == 0) || new(big.Rat).Abs(rest).Cmp(big.NewRat(1, 2e18)) > 0 {
			rt.Fatalf("%q is read as %s", text, l.BilledCost)
		}
		away, _ := l.RoundedAway()
		if kept := l.Other["x_BilledCostAsWritten"]; away.Rat().Cmp(rest) != 0 || (kept == text) == fine.IsInt() {
			rt.Fatalf("%q: %s was rounded away, %q is kept", text, away, kept)
		}
		if strict := read(t, bill([]string{"BilledCost=" + text}), focus.Options{Strict: true}); len(strict.events) == 1 != fine.IsInt() {
			rt.Fatalf("%q: with Strict %d events", text, len(strict.events))
		}
	})
}

// FuzzRead reads damaged files: every event is valid, every other row is reported, and a second
// run gives the same result.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		bill(nil, []string{"ResourceId=NULL", "Tags={}", "x_Plan=p"}),
		bill([]string{"ProviderName=a", "InvoiceIssuerName="}, []string{"ProviderName=a", "ListCost=1e-3"}),
		bill([]string{"x_LineId=l1", "x_CorrectsLineId=l0", "x_Generated=true"}, []string{"x_LineId=l1"}),
		bill([]string{"PricingQuantity=1e8", "PricingUnit=3 Hours", "EffectiveCost=1e14"}, []string{"ConsumedQuantity=9", "ConsumedUnit=1000000 Weeks"}),
		bill([]string{"ChargePeriodStart=2026-03-08 02:00", "ChargePeriodEnd=2026-11-01 01:00"}),
		bill([]string{"InvoiceIssuerName=", "InvoiceId=i"}, []string{"InvoiceId=i"}, []string{"BilledCost=0.12345678901234567890123", "PricingCategory=Spot", "ListUnitPrice=-1", "x_a=\x01"}),
		invoiceHeader + detail("I", "d", "1") + detail("I", "e", "-1", "ChargeCategory=Tax") + detail("J", "d", "1"),
		"\"\n\"\n\"\n\"", "a\"b\n", ",,,\n", "\xef\xbb\xbfBilledCost\n",
	} {
		f.Add([]byte(s))
		f.Add([]byte(zipped(f, s)))
	}
	opts := focus.Options{Zone: "America/New_York", Limits: tabular.Limits{LineBytes: 4096, DecodedBytes: 1 << 20}, InvoiceBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, in []byte) {
		once := func(out io.Writer) (focus.Summary, string) {
			events, bads := 0, 0
			sum, err := focus.Run(context.Background(), bytes.NewReader(in), bytes.NewReader(in), "f", opts, func(e *domain.Envelope) error {
				events++
				if err := domain.Validate(e); err != nil {
					t.Fatalf("invalid event: %v", err)
				}
				if err := dividable(e.Event); err != nil {
					t.Fatalf("an event cannot be divided: %v", err)
				}
				if _, err := e.Key(); err != nil {
					t.Fatal(err)
				}
				_, err := fmt.Fprintf(out, "%s %s %s\n", e.Time, e.Subject, asJSON(t, e.Event))
				return err
			}, func(b tabular.BadRow) {
				bads++
				if b.Line < 2 || b.Reason == "" || len(b.Value) > 140 || len(b.Field) > 140 {
					t.Fatalf("bad row %+v", b)
				}
				fmt.Fprintln(out, b)
			})
			if sum.Bad != bads || sum.Events != events || sum.Bad > sum.Rows || len(sum.Warnings) > 202 {
				t.Fatalf("summary %+v beside %d events and %d bad rows", sum, events, bads)
			}
			if err == nil && sum.Dataset == focus.CostAndUsage && sum.Events+sum.Bad != sum.Rows {
				t.Fatalf("%d rows became %d events and %d bad rows", sum.Rows, sum.Events, sum.Bad)
			}
			return sum, fmt.Sprint(err)
		}
		var one, two bytes.Buffer
		sum1, err1 := once(&one)
		sum2, err2 := once(&two)
		if !bytes.Equal(one.Bytes(), two.Bytes()) || err1 != err2 || fmt.Sprint(sum1) != fmt.Sprint(sum2) {
			t.Fatalf("two runs differ: %+v %s and %+v %s", sum1, err1, sum2, err2)
		}
	})
}

// month returns a bill of n machine-hours with the columns of 1.2 that hyperscalers send.
func month(t testing.TB, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := focus.NewWriter(&b)
	l := machine()
	l.Other, l.LineID, l.FocusVersion = nil, "", "1.2"
	l.BillingAccountName, l.ChargeDescription, l.ChargeFrequency, l.PricingCategory, l.PricingUnit = "Research", "GPU machine, on demand, 8 × H100", "Usage-Based", "Standard", "Hours"
	l.RegionID, l.RegionName, l.ResourceName, l.ResourceType, l.ServiceSubcategory = "us-east-1", "US East", "trainer", "Machine", "Virtual Machines"
	l.SKUID, l.SKUPriceID, l.SubAccountID, l.SubAccountName = "SKU-1", "SKU-1-1", "sub-1", "Search"
	one := decimal.NewNullDecimal(decimal.New(1, 0))
	l.PricingQuantity, l.ConsumedQuantity, l.ConsumedUnit = one, one, "Hours"
	for i := range n {
		l.ResourceID = fmt.Sprintf("i-%06d", i%2000)
		l.ChargePeriodStart = may2026 + domain.Instant(i/2000)*domain.Hour
		l.ChargePeriodEnd = l.ChargePeriodStart + domain.Hour
		l.BilledCost = decimal.New(98_320_000_000_00+int64(i), -11)
		cost := decimal.NewNullDecimal(l.BilledCost)
		l.EffectiveCost, l.ListCost, l.ContractedCost, l.ListUnitPrice, l.ContractedUnitPrice = cost, cost, cost, cost, cost
		if err := w.WriteLine(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Memory grows by a hash per row, not with the size of the rows.
func TestMemoryOfAMonth(t *testing.T) {
	const n = 5_000
	text := month(t, n)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	most := uint64(0)
	rows := 0
	_, err := focus.Run(context.Background(), bytes.NewReader(text), bytes.NewReader(text), "f", focus.Options{}, func(*domain.Envelope) error {
		if rows++; rows == n {
			runtime.GC()
			runtime.ReadMemStats(&after)
			most = after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)
		}
		return nil
	}, nil)
	if err != nil || rows != n || most > 1<<20 {
		t.Errorf("%d rows of %d bytes hold %d bytes, error %v", rows, len(text)/n, most, err)
	}
}

func BenchmarkRead(b *testing.B) {
	text := month(b, 20_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	rows := 0
	var read, plain time.Duration // of CPU
	for b.Loop() {
		start := cpuTime(b)
		sum, err := focus.Run(context.Background(), bytes.NewReader(text), bytes.NewReader(text), "f", focus.Options{}, func(*domain.Envelope) error { return nil }, nil)
		if err != nil || sum.Bad > 0 {
			b.Fatal(sum, err)
		}
		rows += sum.Rows
		between := cpuTime(b)
		plainCSV(b, text)
		read, plain = read+between-start, plain+cpuTime(b)-between
	}
	b.ReportMetric(float64(rows)/read.Seconds(), "rows/cpu-s")
	b.ReportMetric(read.Seconds()/plain.Seconds(), "×csv")
}

// cpuTime returns the CPU time that this process took so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// plainCSV reads the same file with encoding/csv alone.
func plainCSV(b *testing.B, text []byte) {
	b.Helper()
	r := csv.NewReader(bytes.NewReader(text))
	r.ReuseRecord = true
	for {
		if _, err := r.Read(); err == io.EOF {
			return
		} else if err != nil {
			b.Fatal(err)
		}
	}
}
