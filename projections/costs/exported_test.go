package costs_test

import (
	"fmt"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// What an export divides adds up to the line, whatever its size, and the shares of a line add up to 1. What belongs to
// no line of a supplier has the periods of its month.
func TestExportAddsUp(t *testing.T) {
	quantities := []string{"2000000000000000", "123456789012345678901.5", "7", "-3.000000000000000001", "0"}
	want := map[string]string{}
	l := storetest.NewLog()
	n := 0
	for _, env := range houseEvents() {
		if ev, ok := env.Event.(*domain.BillingLineRecorded); ok {
			again := *ev
			q := storetest.Dec(quantities[n%len(quantities)])
			again.Line.ConsumedQuantity = decimal.NewNullDecimal(q)
			want[again.Line.LineID] = q.String()
			env.Event = &again
			n++
		}
		l.Append(env)
	}
	at := map[string]int{}
	for i, c := range costs.ExportedColumns() {
		at[c.Name] = i
	}
	got := map[string]decimal.Decimal{}
	rows := 0
	storetest.FoldView(t, l, func(v projections.View) {
		totals, _, err := costs.Export(v, storetest.MayBill, costs.AllocationFilter{}, nil, func(row []string) error {
			rows++
			for _, name := range []string{"BillingPeriodStart", "BillingPeriodEnd"} {
				if row[at[name]] == "" {
					t.Errorf("%s has no %s", row[at["x_AllocationId"]], name)
				}
			}
			if q := row[at["ConsumedQuantity"]]; q != "" {
				line := row[at["x_OriginLineId"]]
				got[line] = got[line].Add(storetest.Dec(q))
			}
			return nil
		})
		if err != nil || len(totals) == 0 {
			t.Errorf("totals %v: %v", totals, err)
		}
	})
	if rows == 0 || n < 5 {
		t.Fatalf("%d rows of %d lines", rows, n)
	}
	for line, sum := range got {
		if w, ok := want[line]; ok && sum.String() != w {
			t.Errorf("line %s: the export adds up to %s, want %s", line, sum, w)
		}
	}
	if len(got) < n/2 {
		t.Error(fmt.Sprint("only ", len(got), " lines have a quantity"))
	}
}
