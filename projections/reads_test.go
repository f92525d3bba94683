package projections_test

import (
	"testing"

	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// What was read is part of the text: of two computations that found the same rows, one may have looked
// where there were none, and does not hold once there are some.
func TestReadsNameWhereTheyLooked(t *testing.T) {
	from := projections.HourOf(storetest.Start)
	storetest.Look(t, storetest.Fold(t, storetest.Fleet(1, 3, storetest.Start)), func(v projections.View) error {
		inputs := func(queries ...projections.Query) string {
			t.Helper()
			of, reads := projections.Record(v)
			for _, q := range queries {
				if err := of.Scan(q, func(projections.Key, projections.Row) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			text, err := reads.Inputs(v)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		usage := projections.Query{Table: projections.TableUsage, From: from, To: from + 24}
		longer := projections.Query{Table: projections.TableUsage, From: from, To: from + 24*400}
		invoices := projections.Query{Table: projections.TableInvoices}
		one := inputs(usage)
		if one != inputs(usage, usage) || inputs(usage, invoices) != inputs(invoices, usage) {
			t.Error("the text depends on the order of what was read")
		}
		if one == inputs(longer) {
			t.Error("the text does not name the hours")
		}
		if one == inputs(usage, invoices) {
			t.Error("the text does not name a table without rows")
		}
		return nil
	})
}
