package costs_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// addedUp are the columns of an export that are divided.
var addedUp = []string{
	"BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "PricingQuantity", "ConsumedQuantity", "CommitmentDiscountQuantity",
	"PricingCurrencyEffectiveCost", "x_GpuSecondsBought", "x_GpuSecondsAllocated", "x_GpuSecondsMeasured", "x_GpuSecondsUseful",
}

var columnAt = func() map[string]int {
	at := map[string]int{}
	for i, c := range costs.ExportedColumns() {
		at[c.Name] = i
	}
	return at
}()

// exportedSums are the cells of an export, read with big decimals, by allocation and currency. It shares no code with
// the division and the difference.
type exportedSums map[string][]decimal.Decimal

func (e exportedSums) add(t interface{ Fatal(...any) }, row []string, sign int64) {
	key := row[columnAt["BillingCurrency"]] + " " + row[columnAt["x_AllocationId"]]
	sums := e[key]
	if sums == nil {
		sums = make([]decimal.Decimal, len(addedUp))
		e[key] = sums
	}
	for i, name := range addedUp {
		cell := row[columnAt[name]]
		if cell == "" {
			continue
		}
		n, err := decimal.NewFromString(cell)
		if err != nil {
			t.Fatal(name, cell, err)
		}
		sums[i] = sums[i].Add(n.Mul(decimal.NewFromInt(sign)))
	}
}

// text lists the sums that are not 0. Those of allocations whose costs are 0 are left out: what changes no cost is not
// posted.
func (e exportedSums) text() (lines []string) {
	for k, s := range e {
		if !s[0].IsZero() || !s[1].IsZero() {
			lines = append(lines, fmt.Sprint(k, s))
		}
	}
	slices.Sort(lines)
	return lines
}

// What an export of all months has at one position, less what it had at another, is what was posted between, allocation
// by allocation, in every figure: whatever changes a closed month, and however often the books are closed between. The
// lines' columns and periods are those of the supplier.
func TestExportsDifferByPostings(t *testing.T) {
	long.Check(t, 200, 20_000, func(t *rapid.T) {
		l := house()
		june := projections.BillingMonth(storetest.MayBill.To)
		divide := func(month domain.Interval) (d *costs.Division, why *costs.Changes) {
			m, err := l.Fold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := m.View(t.Context(), func(v projections.View) (err error) {
				if d, err = costs.Divide(v, month, 1<<30); err == nil {
					why, err = costs.ReadChanges(v, month, storetest.MayBill.To)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return d, why
		}
		closed, _ := divide(storetest.MayBill)
		var kept []costs.Posting // into closed periods
		books := june            // the open period
		// export writes May, and the postings into each month since.
		periods := map[string][2]string{} // of lines as their supplier states them
		stated := func(row []string) error {
			period := [2]string{row[columnAt["BillingPeriodStart"]], row[columnAt["BillingPeriodEnd"]]}
			periods[row[columnAt["x_OriginLineId"]]] = period
			return nil
		}
		export := func(open []costs.Posting) (sums exportedSums) {
			sums = exportedSums{}
			if _, err := closed.Export(costs.AllocationFilter{}, nil, func(row []string) error {
				if row[columnAt["x_BooksPeriod"]] != "2026-05" || row[columnAt["x_PostingType"]] != "" || row[columnAt["x_CauseEventId"]] != "" {
					t.Fatal("an allocation of May has", row)
				}
				sums.add(t, row, 1)
				return stated(row)
			}); err != nil {
				t.Fatal(err)
			}
			for _, all := range [][]costs.Posting{kept, open} {
				n := 0
				totals, err := costs.ExportPostings(all, costs.AllocationFilter{}, nil, func(row []string) error {
					p := &all[n]
					n++
					for name, want := range map[string]string{
						"x_BooksPeriod": p.Books, "x_PostingType": string(p.Type), "x_Cause": strings.Join(p.Causes, "; "),
						"x_CauseEventId": strings.Join(p.Events, "; "),
						"x_AllocationId": p.Allocation, "InvoiceId": p.Invoice, "x_OriginLineId": p.Line,
						"BillingPeriodStart": periods[p.Line][0], "BillingPeriodEnd": periods[p.Line][1],
						"BilledCost": p.Billed.String(), "EffectiveCost": p.Effective.String(),
					} {
						if got := row[columnAt[name]]; got != want {
							t.Fatal(p.Allocation, "has", name, got, "want", want)
						}
					}
					sums.add(t, row, 1)
					return nil
				})
				if err != nil || n != len(all) {
					t.Fatal(n, "rows of", len(all), err)
				}
				sum := map[string]costs.ControlTotal{}
				for i := range all {
					s := sum[all[i].Currency]
					sum[all[i].Currency] = costs.ControlTotal{Currency: all[i].Currency, Rows: s.Rows + 1,
						Billed: s.Billed.Add(all[i].Billed), Effective: s.Effective.Add(all[i].Effective)}
				}
				for _, s := range totals {
					if sum[s.Currency] != s {
						t.Fatal("control total", s, "want", sum[s.Currency])
					}
				}
				if len(totals) != len(sum) {
					t.Fatal("control totals", totals, "want", sum)
				}
			}
			return sums
		}
		n1, before := export(nil), closed
		for n := range rapid.IntRange(1, 3).Draw(t, "positions") {
			l.Append(later(t, n)...)
			now, why := divide(storetest.MayBill)
			open, err := costs.Difference(closed, kept, now, books, why)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := now.Export(costs.AllocationFilter{}, nil, stated); err != nil {
				t.Fatal(err)
			}
			n2 := export(open)
			between := exportedSums{}
			for k, s := range n2 {
				between[k] = slices.Clone(s)
			}
			for k, s := range n1 {
				if between[k] == nil {
					between[k] = make([]decimal.Decimal, len(addedUp))
				}
				for i := range s {
					between[k][i] = between[k][i].Sub(s[i])
				}
			}
			posted, err := costs.Difference(before, nil, now, books, why)
			if err != nil {
				t.Fatal(err)
			}
			want := exactly{}
			for i := range posted {
				want.add(posted[i].Currency+" "+posted[i].Allocation, posted[i].Billed, posted[i].Effective)
			}
			got := exactly{}
			for k, s := range between {
				got[k] = [2]decimal.Decimal{s[0], s[1]}
			}
			if got, want := got.text(), want.text(); !slices.Equal(got, want) {
				t.Fatalf("the exports differ by\n%q\nand this was posted between:\n%q", got, want)
			}
			// All figures of what was posted are those of the month as it is now.
			today := exportedSums{}
			if _, err := now.Export(costs.AllocationFilter{}, nil, func(row []string) error { today.add(t, row, 1); return nil }); err != nil {
				t.Fatal(err)
			}
			moved := map[string]bool{}
			for i := range open {
				moved[open[i].Currency+" "+open[i].Allocation] = true
			}
			for _, e := range []exportedSums{today, n2} {
				maps.DeleteFunc(e, func(k string, _ []decimal.Decimal) bool { return !moved[k] })
			}
			if got, want := n2.text(), today.text(); !slices.Equal(got, want) {
				t.Fatalf("what was closed and posted is\n%q\nwant\n%q", got, want)
			}
			if rapid.Bool().Draw(t, "close") {
				var file bytes.Buffer
				if err := costs.WritePostings(&file, open); err != nil {
					t.Fatal(err)
				}
				again, err := costs.ReadPostings(file.Bytes())
				if err != nil {
					t.Fatal(err)
				}
				kept, open, books = append(kept, again...), nil, projections.BillingMonth(books.To)
			}
			n1, before = export(open), now
		}
	})
}

// A posting has the line's columns as an allocation of it has, also when the line is gone, and adds up with what was
// closed in every figure.
func TestPostedRowsHaveTheLine(t *testing.T) {
	quantity := func(n string) func(*domain.BillingLine) {
		return func(l *domain.BillingLine) {
			l.ResourceID, l.ServiceName, l.Tags = "r-1", "GPU rental", `{"team":"red"}`
			l.ConsumedQuantity = decimal.NewNullDecimal(storetest.Dec(n))
			l.ListCost = decimal.NewNullDecimal(storetest.Dec("40"))
			l.ListUnitPrice = decimal.NewNullDecimal(storetest.Dec("2.5"))
		}
	}
	at := storetest.MayBill.To + domain.Day
	l := house()
	var closed *costs.Division
	divide := func() (d *costs.Division) {
		t.Helper()
		storetest.FoldView(t, l, func(v projections.View) {
			var err error
			if d, err = costs.Divide(v, storetest.MayBill, 1<<30); err != nil {
				t.Fatal(err)
			}
		})
		return d
	}
	posted := func(before []costs.Posting) (all []costs.Posting, rows [][]string) {
		t.Helper()
		all, err := costs.Difference(closed, before, divide(), projections.BillingMonth(at), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := costs.ExportPostings(all, costs.AllocationFilter{Line: "new"}, nil, func(row []string) error {
			rows = append(rows, slices.Clone(row))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all, rows
	}
	closed = divide()
	env := recorded(billLine("new", "5", quantity("123456789012345678901.5")))
	l.AppendAt(env, at)
	late, rows := posted(nil)
	check := func(rows [][]string, want map[string]string) {
		t.Helper()
		if len(rows) < 2 {
			t.Fatal("the line is in rows", rows)
		}
		sums := map[string]decimal.Decimal{}
		for _, row := range rows {
			for name, text := range map[string]string{
				"ServiceName": "GPU rental", "Tags": `{"team":"red"}`, "ListUnitPrice": "2.5", "ResourceId": "r-1",
				"AllocatedMethodId": attribution.Method, "ChargeCategory": "Usage", "x_Class": "on_demand",
			} {
				if got := row[columnAt[name]]; got != text {
					t.Errorf("%s is %q, want %q", name, got, text)
				}
			}
			for name := range want {
				text := row[columnAt[name]]
				if name == "AllocatedMethodDetails" {
					text = strings.TrimSuffix(strings.TrimPrefix(text, `{"Elements":[{"AllocatedRatio":`), "}]}")
				}
				sums[name] = sums[name].Add(storetest.Dec(text))
			}
		}
		for name, text := range want {
			if sums[name].String() != text {
				t.Errorf("%s adds up to %s, want %s", name, sums[name], text)
			}
		}
	}
	check(rows, map[string]string{"BilledCost": "5", "ConsumedQuantity": "123456789012345678901.5", "ListCost": "40", "AllocatedMethodDetails": "1"})
	// Another quantity is a difference. The share of the line does not change.
	env = recorded(billLine("new", "7", quantity("123456789012345678911.5")))
	env.Source = "focus/again"
	l.AppendAt(env, at+domain.Hour)
	more, rows := posted(late)
	check(rows, map[string]string{"BilledCost": "2", "ConsumedQuantity": "10", "ListCost": "0", "AllocatedMethodDetails": "0"})
	// A line that is gone is known from its postings alone.
	l.AppendAt(domain.Envelope{Source: "focus/gone", Time: at, Event: &domain.BillingLineRemoved{
		InvoiceIssuerName: "p", BillingAccountID: "1", LineID: "new", BillingPeriod: storetest.MayBill,
	}}, at+2*domain.Hour)
	_, rows = posted(slices.Concat(late, more))
	check(rows, map[string]string{"BilledCost": "-7", "ConsumedQuantity": "-123456789012345678911.5", "ListCost": "-40", "AllocatedMethodDetails": "-1"})
}

// Postings that do not say the same in their row are refused.
func TestPostingsOfOtherRows(t *testing.T) {
	l := house()
	var closed, now *costs.Division
	var err error
	storetest.FoldView(t, l, func(v projections.View) { closed, err = costs.Divide(v, storetest.MayBill, 1<<30) })
	if err != nil {
		t.Fatal(err)
	}
	l.AppendAt(recorded(billLine("new", "5", func(l *domain.BillingLine) { l.ResourceID = "r-1" })), storetest.MayBill.To+domain.Day)
	storetest.FoldView(t, l, func(v projections.View) { now, err = costs.Divide(v, storetest.MayBill, 1<<30) })
	if err != nil {
		t.Fatal(err)
	}
	posted, err := costs.Difference(closed, nil, now, projections.BillingMonth(storetest.MayBill.To), nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := costs.WritePostings(&b, posted); err != nil {
		t.Fatal(err)
	}
	if _, err := costs.ReadPostings(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(b.String(), "\n")
	if len(lines) < 4 {
		t.Fatal(b.String())
	}
	amount := fmt.Sprintf(`"billed":%q`, posted[0].Billed)
	for name, text := range map[string]string{
		"another order":  lines[0] + lines[2] + lines[1],
		"another amount": strings.Replace(b.String(), amount, `"billed":"9"`, 1),
		"no row":         strings.Replace(b.String(), `"row":"`, `"row":"","method":"`, 1),
		"half a row":     strings.Replace(b.String(), `"row":"`, `"row":"AAAA`, 1),
		"a later form":   "quartermaster.postings/9\n",
		"a sum too large": strings.Replace(b.String(), `"held":[`, `"held":[`+strings.Repeat(
			`{"unit":"u","node":"n","billed":"999999999999999999","effective":"0","list":"0","contracted":"0","gpu_ms":[0,0,0,0]},`, 400), 1),
	} {
		if _, err := costs.ReadPostings([]byte(text)); !errors.Is(err, costs.ErrCanonical) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
