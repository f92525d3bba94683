package focus_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/adapters/focus"
	"quartermaster/domain/long"
)

// The id of a row is that of the row alone, whatever rows come before it: bad ones, equal ones, ones whose values have the
// same length, and ones with values of none.
func TestIdsOfRowsAreThoseOfRowsAlone(t *testing.T) {
	long.Check(t, 100, 10_000, func(rt *rapid.T) {
		cell := func(name string, values ...string) string {
			return name + "=" + rapid.SampledFrom(values).Draw(rt, name)
		}
		var rows [][]string
		for i := range rapid.IntRange(1, 12).Draw(rt, "rows") {
			rows = append(rows, []string{
				cell("BilledCost", "1", "2", "1.0", "", "12", "x"), cell("ListCost", "", "1", "-", "3.0000000000000000000001", "2"),
				cell("BillingAccountId", "a-1", "a-2", "a-10"), cell("RegionId", "", "r", "s", "rr"), cell("ServiceName", "", "s", "t"),
				cell("ChargePeriodEnd", "2026-05-04T00:00:00Z", "2026-05-05T00:00:00Z", "2026-05-04T02:00:00+02:00", "never"),
				cell("ResourceId", "", "i-1", "i-2", "i-10"), cell("Tags", "", "{}", `{"a":1}`), cell("x_Plan", "", "p", "q"),
				cell("export_time", "1", "22", ""), cell("x_LineId", "", "", fmt.Sprint("l", i)), cell("InvoiceIssuerName", "A", "B"),
			})
		}
		opts := focus.Options{ExportTime: []string{"export_time"}}
		together := read(t, bill(rows...), opts)
		at := 0
		for i, row := range rows {
			alone := read(t, bill(row), opts)
			if len(alone.events) == 0 {
				continue
			}
			if at == len(together.events) {
				rt.Fatalf("row %d %q is bad beside others: %v", i, row, together.bad)
			}
			got, want := together.line(at), alone.line(0)
			got.LineID, _, _ = strings.Cut(got.LineID, "-") // of equal rows
			if got.LineID != want.LineID {
				rt.Fatalf("row %d %q has id %s, want %s", i, row, got.LineID, want.LineID)
			}
			at++
		}
		if at != len(together.events) {
			rt.Fatalf("%d rows, %d of them alone", len(together.events), at)
		}
	})
}
