package cli

import (
	"encoding/csv"
	"io"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"quartermaster/cmd/quartermaster/internal/app"
)

// wideTable has more than fits a line: a column that may go, a long text, one that is
// copied, and a sum.
func wideTable(a *Program) *grid {
	g := a.table("cluster", "account", "detail", "plan", "cost")
	g.SetColumnConfigs(rightFrom(5, 5))
	g.AppendRow(table.Row{"lab", strings.Repeat("1", 30), strings.Repeat("words ", 20), "plan-0f3a9c81d2e4", cell{"1,234.50", "1234.5"}})
	g.AppendRow(table.Row{named("a,b"), "2", "short", "plan-77aa01b2c3d4", cell{"0.50", "0.5"}})
	g.AppendNote("and %d more", 3)
	g.AppendSeparator()
	g.AppendRow(table.Row{"total", "", "", "", "1,235.00"})
	return g
}

func TestTableFits(t *testing.T) {
	var out strings.Builder
	a := New(&app.App{}, &out, io.Discard)
	wideTable(a).Render()
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	for _, l := range lines[:len(lines)-1] {
		if n := text.StringWidthWithoutEscSequences(l); n > usualWidth {
			t.Errorf("%d characters in %q", n, l)
		}
	}
	for _, want := range []string{"plan-0f3a9c81d2e4", "1,234.50", "words wo", "…", "not shown: account, the ends of clipped texts; -o wide shows all"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	out.Reset()
	a.output = asWide
	wideTable(a).Render()
	if got := out.String(); !strings.Contains(got, strings.Repeat("words ", 20)) || !strings.Contains(got, strings.Repeat("1", 30)) || strings.Contains(got, "not shown") {
		t.Errorf("wide is\n%s", got)
	}
}

// What tells rows apart is shown, and whole, however narrow the table must be.
func TestTableNamesRows(t *testing.T) {
	var out strings.Builder
	g := New(&app.App{}, &out, io.Discard).table("workspace", "provider", "account", "text")
	g.names = 2
	name := strings.Repeat("p", 60)
	g.AppendRow(table.Row{"research", name, "42", strings.Repeat("words ", 20)})
	g.Render()
	if got := out.String(); !strings.Contains(got, name) || !strings.Contains(got, "research") || !strings.Contains(got, "not shown: account") {
		t.Errorf("it shows\n%s", got)
	}
}

// Vital columns stay, and others make room for them.
func TestTableKeepsVitalColumns(t *testing.T) {
	var out strings.Builder
	g := New(&app.App{}, &out, io.Discard).table("invoice", "issuer", "lines", "attributed", "received", "difference", "status")
	g.spare, g.vital = []string{"lines"}, []string{"attributed", "received", "difference"}
	alignRight(g, 3, 6)
	g.AppendRow(table.Row{strings.Repeat("i", 40), strings.Repeat("s", 40), "4", "1,234,567.89 USD", "1,234,567.88", "-0.01", "differs"})
	g.Render()
	for _, want := range []string{strings.Repeat("i", 40), "1,234,567.89 USD", "1,234,567.88", "-0.01", "differs", "not shown: issuer, lines; -o wide"} {
		if got := out.String(); !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestTableAsCSV(t *testing.T) {
	var out strings.Builder
	a := New(&app.App{}, &out, io.Discard)
	a.output = asCSV
	a.table("first").Render()
	g := wideTable(a)
	g.main = true
	g.Render()
	if err := a.writeCSV(&out); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	if err != nil || len(rows) != 3 || strings.Join(rows[0], " ") != "cluster account detail plan cost" || rows[2][0] != "a,b" || rows[1][4] != "1234.5" {
		t.Errorf("%v %q", err, rows)
	}
	a.csv = nil
	if err := a.writeCSV(&out); err == nil {
		t.Error("an answer without a table is CSV")
	}
}

// Every title has a key that no other title of its table has.
func TestKeysOfColumns(t *testing.T) {
	for title, want := range map[string]string{"last telemetry": "last_telemetry", "GPU-hours": "gpu_hours", "95 % interval": "95_p_interval", "incl. penalty": "penalty", "incl. held": "of_it_held"} {
		if got := keyOf(title); got != want {
			t.Errorf("%q is %q, want %q", title, got, want)
		}
	}
}
