package projections_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// mayBill is the billing month of these tests.
var mayBill = domain.Interval{From: t0, To: t0 + 31*domain.Day}

// billLine is a line of invoice i-1 of account 1 for usage in the whole of May,
// edited.
func billLine(id, billed string, edit ...func(*domain.BillingLine)) domain.BillingLine {
	l := domain.BillingLine{
		LineID: id, InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "i-1", BillingCurrency: "USD",
		BillingPeriodStart: mayBill.From, BillingPeriodEnd: mayBill.To, ChargePeriodStart: mayBill.From, ChargePeriodEnd: mayBill.To,
		ChargeCategory: "Usage", ChargeFrequency: "Usage-Based", PricingCategory: "Standard",
		BilledCost: dec(billed), EffectiveCost: decimal.NewNullDecimal(dec(billed)),
	}
	for _, e := range edit {
		e(&l)
	}
	return l
}

func recorded(l domain.BillingLine) domain.Envelope {
	return domain.Envelope{Source: "focus/" + l.InvoiceIssuerName, Time: l.BillingPeriodEnd, Event: &domain.BillingLineRecorded{Line: l}}
}

func TestEachLine(t *testing.T) {
	week := func(from int) func(*domain.BillingLine) {
		return func(l *domain.BillingLine) {
			l.BillingPeriodStart = t0 + domain.Instant(from)*domain.Day
			l.BillingPeriodEnd = l.BillingPeriodStart + 7*domain.Day
		}
	}
	other := func(l *domain.BillingLine) { l.InvoiceIssuerName = "a" }
	again := recorded(billLine("l1", "3"))
	again.Time += domain.Hour
	l := storetest.NewLog()
	l.Append(
		recorded(billLine("april", "1", week(-1))), recorded(billLine("last", "1", week(30))), recorded(billLine("june", "1", week(31))),
		recorded(billLine("l1", "1")), again, recorded(billLine("l1", "2", other)),
		domain.Envelope{Time: mayBill.To, Event: &domain.BillingLineCorrected{Line: billLine("l2", "-0.5"), Corrects: "l1", Reason: "credit"}},
	)
	read := func(month domain.Interval) (got []string) {
		view(t, l, func(v projections.View) {
			err := projections.EachLine(v, month, func(l *projections.LedgerLine) error {
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s x%d %s %s %s@%d", l.InvoiceIssuerName, l.LineID, l.BilledCost, l.Stated, l.Corrects, l.Reason, l.Event.Source, l.Event.Sequence)))
				if l.Event.Key != l.InvoiceIssuerName+"|1" || l.Event.Topic != domain.TopicBilling || l.Event.Partition != domain.PartitionOf([]byte(l.Event.Key), 4) {
					t.Errorf("recorded by %+v", l.Event)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
		return got
	}
	if got, want := read(mayBill), []string{
		"a l1 2 x1   focus/a@1", "p l1 3 x2   focus/p@5", "p l2 -0.5 x1 l1 credit test/1@1", "p last 1 x1   focus/p@2",
	}; !slices.Equal(got, want) {
		t.Errorf("May has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := read(projections.BillingMonth(mayBill.From - 1)); len(got) != 1 || !strings.HasPrefix(got[0], "p april") {
		t.Errorf("April has %q", got)
	}
	if got := read(projections.BillingMonth(mayBill.To)); len(got) != 1 || !strings.HasPrefix(got[0], "p june") {
		t.Errorf("June has %q", got)
	}
	view(t, l, func(v projections.View) {
		for _, bad := range []domain.Interval{{From: t0, To: t0 + domain.Day}, {From: t0 + 1, To: mayBill.To}, {}} {
			if err := projections.EachLine(v, bad, func(*projections.LedgerLine) error { return nil }); err == nil {
				t.Errorf("%v is no month, and was read", bad)
			}
		}
	})
}
