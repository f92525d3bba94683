package projections

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
)

// drawLine returns a line with any of the columns.
func drawLine(t *rapid.T) domain.BillingLine {
	text := rapid.StringN(0, 30, 60)
	l := domain.BillingLine{}
	v := reflect.ValueOf(&l).Elem()
	for i := range v.NumField() {
		if !rapid.Bool().Draw(t, "has") {
			continue
		}
		number := decimal.New(rapid.Int64().Draw(t, "n"), rapid.Int32Range(-18, 2).Draw(t, "exponent"))
		switch f := v.Field(i).Addr().Interface().(type) {
		case *string:
			*f = text.Draw(t, "text")
		case *domain.Decimal:
			*f = number
		case *domain.NullDecimal:
			*f = decimal.NewNullDecimal(number)
		case *domain.Instant:
			*f = domain.Instant(rapid.Int64Range(0, 9_000_000_000_000_000_000).Draw(t, "time"))
		case *bool:
			*f = true
		case *map[string]string:
			*f = rapid.MapOfN(text, text, 1, 4).Draw(t, "other")
		default:
			t.Fatalf("a field of type %T", f)
		}
	}
	return l
}

func drawLines(t *rapid.T) *History {
	h := &History{}
	for range rapid.IntRange(1, 3).Draw(t, "versions") {
		h.Versions = append(h.Versions, Version{
			Order: domain.Precedence{
				Effective: 1, Time: domain.Instant(rapid.Int64Range(0, 1<<60).Draw(t, "time")), Source: "s/" + rapid.String().Draw(t, "source"),
				Incarnation: rapid.Uint64().Draw(t, "incarnation"), Sequence: rapid.Uint64().Draw(t, "sequence"),
			},
			Recorded: domain.Instant(rapid.Int64Range(0, 1).Draw(t, "recorded")), Line: rapid.Uint64Range(0, 2).Draw(t, "line"),
			Workspace: rapid.SampledFrom([]string{"", "w"}).Draw(t, "workspace"),
			Event:     &domain.BillingLineRecorded{Line: drawLine(t)},
		})
	}
	return h
}

// Lines are decoded as the library decodes them, and what is not in the form that is written is left to it.
func TestLinesAreDecodedAsByTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawLines(t)
		other := rapid.IntRange(0, 3).Draw(t, "other")
		switch other {
		case 1:
			h.Versions[0].Event = &domain.BillingLineCorrected{Line: drawLine(t), Corrects: "l", Reason: "r"}
		case 2:
			h.Versions[0].Signer = &Signer{Operator: "o"}
		}
		b, err := EncodeRow(h)
		if err != nil {
			t.Fatal(err)
		}
		if other == 3 {
			b = bytes.Clone(b)
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		}
		var fast, slow History
		ok := decodeLines(b, &fast)
		err = lenient.Unmarshal(b, &slow)
		if !ok && other == 0 {
			t.Fatalf("a row of lines is not decoded: %x", b)
		}
		if ok && (err != nil || !reflect.DeepEqual(fast, slow)) {
			t.Fatalf("decoded %+v, want %+v, error %v", fast, slow, err)
		}
	})
}

func BenchmarkDecodeLine(b *testing.B) {
	one := decimal.New(98_320, -3)
	row, err := EncodeRow(&History{Versions: []Version{{
		Order: domain.Precedence{Effective: 1 << 60, Time: 1 << 60, Appended: 1 << 60, Source: "focus/p", Incarnation: 1, Sequence: 7},
		Event: &domain.BillingLineRecorded{Line: domain.BillingLine{
			LineID: "00001-0001", InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "i-2026-01", BillingCurrency: "USD", BillingPeriodStart: 1 << 60,
			BillingPeriodEnd: 1 << 60, ChargePeriodStart: 1 << 60, ChargePeriodEnd: 1 << 60, ChargeCategory: "Usage", ChargeFrequency: "Usage-Based",
			PricingCategory: "Standard", BilledCost: one, EffectiveCost: decimal.NewNullDecimal(one), ResourceID: "rn00001",
			PricingQuantity: decimal.NewNullDecimal(one), PricingUnit: "Hours",
		}},
	}}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRow(TableBillingLines, row); err != nil {
			b.Fatal(err)
		}
	}
}
