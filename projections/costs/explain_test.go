package costs_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// Every allocation of a month is found by its reference, with the same amounts, and leads to the
// event that recorded its line.
func TestExplainEveryAllocation(t *testing.T) {
	storetest.FoldView(t, house(), func(v projections.View) {
		var allocations []costs.Allocation
		err := costs.EachAllocation(v, storetest.MayBill, costs.AllocationFilter{}, func(l *costs.Allocation) error {
			allocations = append(allocations, *l)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		units := map[string]int{}
		for _, l := range allocations {
			ref, err := attribution.ParseRef(l.Allocation)
			if err != nil {
				t.Fatal(err)
			}
			x, err := costs.Explain(v, ref, nil)
			if err != nil {
				t.Fatalf("%s: %v", l.Allocation, err)
			}
			units[x.WeightUnit]++
			// The weight of what follows others is of what these billed. If their effective cost is another, it is named.
			if f := x.Followed; f != nil && f.Billed != f.Effective {
				units["effective"]++
				if !slices.ContainsFunc(x.Why, func(s string) bool { return strings.Contains(s, "in sum "+f.Effective.String()+" ") }) {
					t.Errorf("%s: %v does not name %s", l.Allocation, x.Why, f.Effective)
				}
			}
			if !reflect.DeepEqual(x.Allocation, l) || x.Month != storetest.MayBill || x.Event == nil || (x.Charge == nil) != strings.HasPrefix(l.Line, "invoice:") || len(x.Why) < 3 {
				t.Errorf("%s is explained as %+v", l.Allocation, x)
			}
			if x.Invoice != nil && l.Invoice == "" && x.Invoice.Period != (domain.Interval{From: x.Charge.BillingPeriodStart, To: x.Charge.BillingPeriodEnd}) {
				t.Errorf("%s is in the invoice of %+v", l.Allocation, x.Invoice.Period)
			}
			if x.Invoice == nil || x.Invoice.Invoice != l.Invoice || x.Statement == nil || x.Statement.Workspace != l.Workspace || x.Statement.Invoice != l.Invoice || x.Statement.Currency != l.Currency {
				t.Errorf("%s is in %+v and %+v", l.Allocation, x.Invoice, x.Statement)
			}
			var ms, period int64
			for _, u := range x.Usage {
				ms += u.GPUMs
				period += u.PeriodMs
			}
			if x.WeightUnit == "gpu_ms" && attribution.Whole(period+x.UnseenMs) != x.Of || (x.WeightUnit == "money") != (x.Followed != nil) {
				t.Errorf("%s is of %s, and its machines had %d ms, %d unseen; it follows %+v", l.Allocation, x.Of, period, x.UnseenMs, x.Followed)
			}
			if x.WeightUnit == "gpu_ms" && l.Component != attribution.Unseen && attribution.Whole(ms) != x.Weight {
				t.Errorf("%s weighs %s, and its machines had %d ms: %v", l.Allocation, x.Weight, ms, x.Why)
			}
			if (x.WeightUnit == "gpu_ms") != (len(x.Usage) > 0) || l.Component == attribution.Unseen && ms != 0 {
				t.Errorf("%s weighs %s, and lists %+v", l.Allocation, x.WeightUnit, x.Usage)
			}
		}
		if len(allocations) < 40 || units["gpu_ms"] < 10 || units["money"] < 5 || units["share"] != 2 || units["whole"] < 2 || units["effective"] == 0 {
			t.Errorf("of %d allocations the weights are %v, so that not everything is put to the test", len(allocations), units)
		}
	})
}

func TestExplain(t *testing.T) {
	storetest.FoldView(t, house(), func(v projections.View) {
		explain := func(ref string) *costs.Explanation {
			t.Helper()
			r, err := attribution.ParseRef(ref)
			if err != nil {
				t.Fatal(err)
			}
			x, err := costs.Explain(v, r, nil)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		// The line bought two hours of the two GPUs of n1, and a held one of them in the first
		// hour.
		x := explain("issuer=p;account=1;line=01-n1;hour=2026-05-01T00:00:00Z;workspace=a;cluster=c;deployment=chat;component=allocated")
		if x.Billed.String() != "2.5025" || x.Weight.String() != "3600000" || x.Of.String() != "14400000" || len(x.Usage) != 1 || x.Usage[0].Node != "n1" || x.Usage[0].Resource != "r-1" ||
			x.Interval != storetest.Span(0, 60) || x.Charge.ResourceID != "r-1" || x.Event.Source != "focus/p" || x.Event.Sequence == 0 || x.Whole.Billed.String() != "10.01" {
			t.Errorf("%+v\n%+v", x, x.Whole)
		}
		if x := explain("issuer=p;account=1;line=11-fix;hour=2026-05-01T00:00:00Z;workspace=a;cluster=c;deployment=chat;component=allocated"); x.Whole.Corrects != "01-n1" || x.Whole.Reason != "price" || x.Billed.String() != "-0.0025" {
			t.Errorf("a correction is explained as %+v, %+v", x, x.Whole)
		}
		if x := explain("issuer=p;account=1;line=invoice:i-1;hour=;workspace=platform;cluster=;deployment=;component=rounding_adjustment"); x.Billed.String() != "-0.003" || x.Event.Type != domain.TypeInvoiceReceived || x.Interval != storetest.MayBill {
			t.Errorf("a rounding adjustment is explained as %+v", x)
		}
		if x := explain("issuer=p;account=1;line=03-unused;hour=;workspace=a;cluster=;deployment=;component=unused_commitment"); x.Weight.String() != "0.7" || !slices.ContainsFunc(x.Why, func(s string) bool { return strings.Contains(s, "a owns 0.7") }) {
			t.Errorf("an owner's part is explained as %+v", x)
		}
		for ref, want := range map[string]string{
			"issuer=q;account=1;line=01-n1;hour=;workspace=a;cluster=;deployment=;component=idle":                      `no line of issuer "q" and account "1"; there are: p|1`,
			"issuer=p;account=1;line=01-n2;hour=;workspace=a;cluster=;deployment=;component=idle":                      `have 12 lines and none is "01-n2"; such as 01-n1, 02-n2`,
			"issuer=p;account=1;line=01-n1;hour=;workspace=a;cluster=c;deployment=chat;component=allocated":            `line "01-n1" has 4 allocations, such as`,
			"issuer=p;account=1;line=invoice:i-2;hour=;workspace=a;cluster=;deployment=;component=rounding_adjustment": `none is "invoice:i-2"`,
		} {
			r, err := attribution.ParseRef(ref)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = costs.Explain(v, r, nil); !errors.Is(err, costs.ErrNoAllocation) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%s: %v, want %s", ref, err, want)
			}
		}
	})
	storetest.FoldView(t, storetest.NewLog(), func(v projections.View) {
		if _, err := costs.Explain(v, attribution.Ref{}, nil); !errors.Is(err, costs.ErrNoAllocation) {
			t.Errorf("in an empty log: %v", err)
		}
	})
}

func TestEachAllocationFilters(t *testing.T) {
	storetest.FoldView(t, house(), func(v projections.View) {
		count := func(f costs.AllocationFilter) (n int) {
			err := costs.EachAllocation(v, storetest.MayBill, f, func(l *costs.Allocation) error {
				n++
				if f.Workspace != "" && l.Workspace != f.Workspace || f.Line != "" && !strings.HasSuffix(f.Line, l.Line) {
					t.Errorf("%+v picks %+v", f, l)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		all := count(costs.AllocationFilter{})
		one, named := count(costs.AllocationFilter{Line: "01-n1"}), count(costs.AllocationFilter{Line: "p|1|01-n1"})
		if one != named || one == 0 || one >= all || count(costs.AllocationFilter{Workspace: "a"}) == 0 || count(costs.AllocationFilter{Line: "q|1|01-n1"}) != 0 {
			t.Errorf("%d allocations, %d and %d of a line", all, one, named)
		}
		stop := errors.New("enough")
		if err := costs.EachAllocation(v, storetest.MayBill, costs.AllocationFilter{}, func(*costs.Allocation) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("stopped with %v", err)
		}
	})
}
