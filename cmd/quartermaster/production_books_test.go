package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lib/pq"
	"github.com/rogpeppe/go-internal/txtar"
)

// What SQL shows of a closed month is what the commands answer, to the last digit. It is loaded by the close, stays when
// another generation of rows becomes active, and is loaded again after it was deleted.
func TestProductionClosedBooksInSQL(t *testing.T) {
	s := newSite(t)
	s.start()
	a := s.serve("a")
	a.says(1, "caught up")
	script, err := txtar.ParseFile(filepath.Join("testdata", "script", "close.txt"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, f := range script.Files {
		if err := os.WriteFile(f.Name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	do := func(line string) string {
		t.Helper()
		code, out := s.command(strings.Fields(line)...)
		if code != 0 {
			t.Fatalf("%s: %s", line, out)
		}
		return out
	}
	dsn, err := pq.NewConnector(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(dsn)
	t.Cleanup(func() { db.Close() })
	rows := func(query string, args ...any) []string {
		t.Helper()
		found, err := db.QueryContext(t.Context(), query, args...)
		if err != nil {
			t.Fatal(err)
		}
		defer found.Close()
		list := []string{}
		for found.Next() {
			var row string
			if err := found.Scan(&row); err != nil {
				t.Fatal(err)
			}
			list = append(list, row)
		}
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		return list
	}
	same := func(what string, got, want []string) {
		t.Helper()
		slices.Sort(got)
		slices.Sort(want)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: SQL has\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	trimmed := func(number string) string {
		if strings.Contains(number, ".") {
			number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
		}
		return number
	}
	// answered compares the views with the commands.
	answered := func() {
		t.Helper()
		for _, by := range []struct{ dimension, column string }{
			{"workspace", "workspace"}, {"component", `"x_Component"`}, {"line", `"InvoiceIssuerName" || '|' || "BillingAccountId" || '|' || "x_OriginLineId"`},
			{"gpu_model", `coalesce("x_GpuModel", 'unknown')`}, {"day", `coalesce(to_char("x_Hour" at time zone 'UTC', 'YYYY-MM-DD'), '')`},
		} {
			var report struct {
				Groups []struct {
					Key                         map[string]string
					Currency, Billed, Effective string
					Bought                      int64 `json:"bought_gpu_ms"`
				}
			}
			if err := json.Unmarshal([]byte(do("costs --period 2026-05 -o json --by "+by.dimension)), &report); err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, g := range report.Groups {
				want = append(want, fmt.Sprintf("%s %s %s %s %d", g.Key[by.dimension], g.Currency, g.Billed, g.Effective, g.Bought))
			}
			same("costs by "+by.dimension, rows(fmt.Sprintf(`select %s || ' ' || "BillingCurrency" || ' ' || trim_scale(sum("BilledCost")) || ' ' ||
				trim_scale(sum("EffectiveCost")) || ' ' || trim_scale(sum("x_GpuSecondsBought") * 1000) from quartermaster.posted_allocations
				where books_period = '2026-05-01T00:00Z' and posting_type is null group by %[1]s, "BillingCurrency"`, by.column)), want)
			if by.dimension == "workspace" {
				same("the view costs", rows(`select workspace || ' ' || currency || ' ' || trim_scale(sum(billed)) || ' ' || trim_scale(sum(effective))
					|| ' ' || trim_scale(sum(gpu_seconds_bought) * 1000) from quartermaster.costs
					where books_period = '2026-05-01T00:00Z' and posting_type is null group by workspace, currency`), want)
			}
		}
		for dimension, column := range map[string]string{"unit": "x_UnitId", "node": "x_NodeId"} {
			var report struct {
				Groups []struct {
					Key                         map[string]string
					Currency, Billed, Effective string
					Bought                      int64 `json:"bought_gpu_ms"`
				}
			}
			if err := json.Unmarshal([]byte(do("costs --period 2026-05 -o json --by "+dimension)), &report); err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, g := range report.Groups {
				want = append(want, fmt.Sprintf("%s %s %s %s %d", g.Key[dimension], g.Currency, g.Billed, g.Effective, g.Bought))
			}
			same("costs by "+dimension, rows(fmt.Sprintf(`select coalesce(%[1]q, '') || ' ' || "BillingCurrency" || ' ' || trim_scale(sum("BilledCost")) || ' ' ||
				trim_scale(sum("EffectiveCost")) || ' ' || trim_scale(sum("x_GpuSecondsBought") * 1000) from quartermaster.posted_units
				where books_period = '2026-05-01T00:00Z' and posting_type is null group by %[1]q, "BillingCurrency"`, column)), want)
		}
		for _, month := range []string{"2026-05", "2026-06"} {
			var postings struct {
				Sums []struct {
					Period, Currency, Billed, Effective string
					Type                                string `json:"posting_type"`
					Postings                            int
				}
			}
			if err := json.Unmarshal([]byte(do("costs postings -o json --month "+month)), &postings); err != nil {
				t.Fatal(err)
			}
			sums := map[string]int{}
			for _, p := range postings.Sums {
				sums[fmt.Sprintf("%s %s %s %s %s %d", p.Period, p.Type, p.Currency, p.Billed, p.Effective, p.Postings)]++
			}
			if month == "2026-05" {
				if len(sums) != 0 {
					t.Errorf("postings into the first closed month: %v", sums)
				}
				continue
			}
			same("postings into "+month, rows(`select to_char(month at time zone 'UTC', 'YYYY-MM') || ' ' || posting_type || ' ' || "BillingCurrency" || ' ' ||
				trim_scale(sum("BilledCost")) || ' ' || trim_scale(sum("EffectiveCost")) || ' ' || count(*) from quartermaster.posted_allocations
				where books_period = $1::timestamptz and posting_type is not null group by month, posting_type, "BillingCurrency"`, month+"-01T00:00Z"),
				slices.Collect(maps.Keys(sums)))
		}
		for _, month := range []string{"2026-05", "2026-06"} {
			type amounts struct{ Currency, Billed, Effective string }
			var lines, dues []string
			dec := json.NewDecoder(strings.NewReader(do("costs statement -o json --month " + month)))
			for dec.More() {
				var st struct {
					Number, Workspace string
					Components        []struct {
						Key map[string]string
						amounts
					}
					Corrections []struct {
						Corrects string
						Type     string `json:"posting_type"`
						amounts
					}
					Due []struct{ Currency, Amount string }
				}
				if err := dec.Decode(&st); err != nil {
					t.Fatal(err)
				}
				for _, c := range st.Components {
					lines = append(lines, fmt.Sprint(st.Number, " ", st.Workspace, " ", c.Key["component"], " ", c.Currency, " ", c.Billed, " ", c.Effective))
				}
				for _, c := range st.Corrections {
					lines = append(lines, fmt.Sprint(st.Number, " ", st.Workspace, " ", c.Corrects, " ", c.Type, " ", c.Currency, " ", c.Billed, " ", c.Effective))
				}
				for _, d := range st.Due {
					dues = append(dues, fmt.Sprint(st.Number, " ", st.Workspace, " ", d.Currency, " ", trimmed(d.Amount)))
				}
			}
			at := month + "-01T00:00Z"
			same("statements of "+month, rows(`select concat_ws(' ', number, workspace, component, corrects, posting_type, currency, trim_scale(billed), trim_scale(effective))
				from quartermaster.statements where books_period = $1::timestamptz`, at), lines)
			same("what is due of "+month, rows(`select concat_ws(' ', number, workspace, currency, trim_scale(due)) from quartermaster.statements_due
				where books_period = $1::timestamptz and charged + notes = due`, at), dues)
		}
		same("months", rows(`select to_char(month at time zone 'UTC', 'YYYY-MM') || ' ' || current from quartermaster.posted_months
			where rows = (select count(*) from quartermaster.posted_allocations a where a.books_period = posted_months.month)`),
			[]string{"2026-05 true", "2026-06 true"})
	}

	do("apply -f estate.yaml")
	do("import usage usage.csv --cluster lab --zone UTC --gpu-model V100 --account 42 --sku gpu-8")
	do("import focus bill.csv invoice.csv")
	do("operator add ann --role finance --new-key ann.pem")
	do("costs close prepare --month 2026-05 --accept exceptions=known")
	do("costs close approve --month 2026-05 --key ann.pem")
	do("import focus late.csv")
	do("costs close prepare --month 2026-06 --key ann.pem --accept missing=ended --accept closed_months=late")
	do("costs close approve --month 2026-06")
	answered()

	// Deleted, they are loaded again, once.
	if _, err := db.ExecContext(t.Context(), `delete from quartermaster.closed_months`); err != nil {
		t.Fatal(err)
	}
	if out := do("parts make"); !strings.Contains(out, "2 closed months loaded into the database, from 2026-05 to 2026-06") {
		t.Errorf("parts make: %s", out)
	}
	answered()
	if out := do("parts make"); strings.Contains(out, "closed months loaded") {
		t.Errorf("parts make loads what is there: %s", out)
	}

	// They stay when other rows become active.
	do("generation rebuild b")
	do("generation status")
	answered()
	a.ends()
}
