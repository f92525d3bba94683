package postgres

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// bookMonth is a closed month of rows that a test makes up: by column, the others are null.
func bookMonth(rows ...map[string]string) *BooksContent {
	return &BooksContent{Units: func(yield func(domain.Interval, string, []string) error) error {
		for _, posting := range []string{"", "", "late"} {
			row := make([]string, len(costs.UnitColumns()))
			for i, c := range costs.UnitColumns() {
				row[i] = map[string]string{
					"x_WorkspaceId": "acme", "x_UnitId": "team/pod\t0", "x_NodeId": "c/n1", "BillingCurrency": "USD", "BilledCost": "0.000000000000000001",
				}[c.Name]
			}
			if err := yield(projections.BillingMonth(storetest.MayBill.From), posting, row); err != nil {
				return err
			}
		}
		return nil
	}, Rows: func(yield func(domain.Interval, []string) error) error {
		for _, cells := range rows {
			row := make([]string, len(costs.ExportedColumns()))
			for i, c := range costs.ExportedColumns() {
				row[i] = cells[c.Name]
			}
			about, err := projections.ParseMonth(cells["x_BooksPeriod"])
			if err != nil {
				return err
			}
			if err := yield(about, row); err != nil {
				return err
			}
		}
		return nil
	}}
}

func digestOf(b byte) []byte { return slices.Repeat([]byte{b}, 32) }

// Closed months are loaded once, survive the generations that they were closed under, and can be deleted and loaded again.
func TestBooksInSQL(t *testing.T) {
	db := opened(t)
	g := generation(t, db)
	activate(t, db, g)
	may, err := projections.ParseMonth("2026-05")
	if err != nil {
		t.Fatal(err)
	}
	hostile := "né\t\\N\r\n\"'{},"
	content := bookMonth(
		map[string]string{
			"x_WorkspaceId": "acme", "x_BooksPeriod": "2026-05", "BilledCost": "12345678901234567890.123456789012345678",
			"EffectiveCost": "-0.000000000000000001", "BillingCurrency": "USD", "Tags": hostile, "x_Generated": "true",
			"ChargePeriodStart": "2026-05-01T00:00:00Z", "ResourceId": "a\x00b",
		},
		map[string]string{"x_BooksPeriod": "2026-04", "x_PostingType": "late", "BilledCost": "1.50", "BillingCurrency": "USD"},
	)
	content.Statements = []StatementRow{{
		Workspace: "acme", Number: "2026-05/acme/0101", About: may, Component: "idle", Currency: "USD", Billed: "1.5", Effective: "1.5", SecondsBought: "0",
	}}
	content.Due = []StatementDue{{Workspace: "acme", Number: "2026-05/acme/0101", Currency: "USD", Charged: "1.50", Notes: "-0.25", Due: "1.25"}}
	is := func(query string, want ...string) {
		t.Helper()
		if got := texts(t, db, query); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s\n%q, want %q", query, got, want)
		}
	}
	shown := func() {
		t.Helper()
		is(`select concat_ws('|', workspace, to_char(month, 'YYYY-MM'), to_char(books_period, 'YYYY-MM'), posting_type, "BilledCost", "EffectiveCost")
			from quartermaster.posted_allocations order by month desc`,
			"acme|2026-05|2026-05|12345678901234567890.123456789012345678|-0.000000000000000001", "|2026-04|2026-05|late|1.50")
		is(`select "Tags" from quartermaster.posted_allocations where "x_Generated" and "ResourceId" = 'a'||chr(65533)||'b'
			and "ChargePeriodStart" = '2026-05-01' and "ServiceName" is null`, hostile)
		is(`select concat_ws('|', workspace, number, component, billed, gpu_seconds_bought, gpu_seconds_useful) from quartermaster.statements`,
			"acme|2026-05/acme/0101|idle|1.5|0")
		is(`select concat_ws('|', workspace, to_char(month, 'YYYY-MM'), to_char(books_period, 'YYYY-MM'), posting_type, "x_UnitId", "x_NodeId", "BilledCost",
			"x_ClusterId") from quartermaster.posted_units order by posting_type`,
			"acme|2026-05|2026-05|late|team/pod\t0|c/n1|0.000000000000000001", "acme|2026-05|2026-05|team/pod\t0|c/n1|0.000000000000000002")
		is(`select concat_ws('|', workspace, charged, notes, due) from quartermaster.statements_due`, "acme|1.50|-0.25|1.25")
		is(`select to_char(month, 'YYYY-MM') || ' ' || rows || ' ' || current from quartermaster.posted_months`, "2026-05 2 false")
	}
	of := Books{Month: may, Allocations: digestOf(1)}
	missing := func(all ...Books) (months []string) {
		t.Helper()
		list, err := db.BooksMissing(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range list {
			months = append(months, fmt.Sprintf("%s %x", b.Month.From.Time().Format("2006-01"), b.Allocations[:1]))
		}
		return months
	}
	if got := missing(of); len(got) != 1 {
		t.Errorf("of an empty database is missing %v", got)
	}
	for range 2 {
		if err := db.PutBooks(t.Context(), of, content); err != nil {
			t.Fatal(err)
		}
		shown()
	}
	if got := missing(of); len(got) != 0 {
		t.Errorf("missing is %v, which was loaded", got)
	}

	// Another generation has the same closed months.
	other := generation(t, db)
	activate(t, db, other)
	if err := db.Drop(t.Context(), g, false); err != nil {
		t.Fatal(err)
	}
	shown()

	// What fails leaves nothing behind, and the connection can be used again.
	april := Books{Month: projections.BillingMonth(may.From - 1), Allocations: digestOf(2), Postings: digestOf(3)}
	cut := errors.New("cut")
	for _, broken := range []*BooksContent{
		{Rows: func(func(domain.Interval, []string) error) error { return cut }},
		bookMonth(map[string]string{"x_BooksPeriod": "2026-04", "BilledCost": "ten"}),
	} {
		if err := db.PutBooks(t.Context(), april, broken); err == nil || !strings.Contains(err.Error(), "2026-04") {
			t.Errorf("a month that cannot be loaded: %v", err)
		}
		shown()
	}

	// A deleted month is loaded again. One under another digest, and one that is not closed, are removed.
	if _, err := db.ExecContext(t.Context(), `delete from quartermaster.closed_months`); err != nil {
		t.Fatal(err)
	}
	is(`select count(*)::text from quartermaster.closed_allocations`, "0")
	if got := missing(of, april); len(got) != 2 {
		t.Errorf("missing is %v after all was deleted", got)
	}
	for _, b := range []Books{of, april} {
		if err := db.PutBooks(t.Context(), b, content); err != nil {
			t.Fatal(err)
		}
	}
	again := of
	again.Postings = digestOf(9)
	if got := missing(again); fmt.Sprint(got) != "[2026-05 01]" {
		t.Errorf("missing is %v", got)
	}
	is(`select count(*)::text from quartermaster.closed_months`, "0")
	is(`select count(*)::text from quartermaster.closed_statements`, "0")
}

// SQL says of what units cost what the registry of columns says.
func TestUnitsHaveTheirColumns(t *testing.T) {
	for _, c := range costs.UnitColumns() {
		name := `"` + c.Name + `"`
		if c.Name == exportedWorkspace {
			name = "workspace"
		}
		if want := "comment on column quartermaster.posted_units." + name + " is '" + c.Doc + "'"; !slices.Contains(statements, want) {
			t.Errorf("views.sql has no statement %q", want)
		}
	}
}

// SQL has the columns of exports with the same descriptions, but for those that [notInSQL] names.
func TestBooksHaveExportedColumns(t *testing.T) {
	want := map[string]string{}
	for _, c := range costs.ExportedColumns() {
		if !notInSQL[c.Name] {
			want[c.Name] = c.Doc
		}
	}
	view := statementOf("posted_allocations")
	have := map[string]string{}
	for _, m := range regexp.MustCompile(`a\."(\w+)"`).FindAllStringSubmatch(view, -1) {
		have[m[1]] = ""
	}
	comment := regexp.MustCompile(`^comment on column quartermaster\.posted_allocations\."(\w+)" is '(.*)'$`)
	for _, s := range statements {
		if m := comment.FindStringSubmatch(s); m != nil {
			have[m[1]] = strings.ReplaceAll(m[2], "''", "'")
		}
	}
	for name, doc := range want {
		if got, ok := have[name]; !ok || got != doc {
			t.Errorf("column %s: %q, in exports %q", name, got, doc)
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			t.Errorf("column %s is not one of exports", name)
		}
	}
}
