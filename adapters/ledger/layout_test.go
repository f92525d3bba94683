package ledger

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

var update = flag.Bool("update", false, "write golden files anew")

func minor(t *testing.T, s string) (m attribution.Minor) {
	t.Helper()
	if err := m.UnmarshalText([]byte(s)); err != nil {
		t.Fatal(err)
	}
	return m
}

// Each shipped layout has a golden file. No text of a supplier begins a formula there.
func TestShippedLayouts(t *testing.T) {
	day, err := domain.ParseInstant("2026-05-31T00:00:00Z")
	if err != nil {
		t.Fatal(err)
	}
	entries := []costs.JournalEntry{
		{
			Document: "QM202605-0123456789", Line: 1, ID: strings.Repeat("a", 32), Entity: "us", Date: day, Account: "6100", CostCenter: "CC-10",
			Debit: minor(t, "1234567.89"), Credit: minor(t, "0.00"), Currency: "USD", Issuer: "=cmd|' /C calc'!A0",
			Invoice: "1", Statement: "2026-05/search/71d334df", Text: "=cmd|' /C calc'!A0; \"late\", of 2026-04",
		},
		{
			Document: "QM202605-0123456789", Line: 2, ID: strings.Repeat("b", 32), Entity: "us", Date: day, Account: "2000",
			Debit: minor(t, "0"), Credit: minor(t, "1234567"), Currency: "JPY", Statement: "-1", Text: "@SUM(1)",
		},
		{
			Document: "QM202605-1123456789", Line: 1, ID: strings.Repeat("c", 32), Entity: "us", Date: day, Account: "2100",
			Debit: minor(t, "0.00"), Credit: minor(t, "5.00"), Currency: "USD", Statement: "s", Text: "accrued", ReversalDate: day + domain.Day,
		},
		{
			Document: "QM202605-2123456789", Line: 1, ID: strings.Repeat("d", 32), Entity: "us", Date: day - 30*domain.Day, Account: "2100",
			Debit: minor(t, "4.00"), Credit: minor(t, "0.00"), Currency: "USD", Statement: "s", Text: "accrual reversal", Reverses: "QM202604-0123456789",
		},
	}
	if len(Names()) != 2 {
		t.Errorf("layouts %v, want two", Names())
	}
	for _, name := range Names() {
		l, ok := Named(name)
		if !ok || l.Name != name || l.About == "" || l.Source == "" {
			t.Fatalf("layout %s is %+v", name, l)
		}
		var b bytes.Buffer
		if err := Write(&b, l, entries); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".csv")
		if *update {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if b.String() != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", path, &b, want)
		}
		for _, cell := range strings.FieldsFunc(b.String(), func(r rune) bool { return strings.ContainsRune(",;\n\"", r) }) {
			if strings.HasPrefix(cell, "=") || strings.HasPrefix(cell, "@") || strings.HasPrefix(cell, "-") && cell != "-1234567" && cell != "-5.00" {
				t.Errorf("%s has the formula %q", path, cell)
			}
		}
	}
}

const sound = `layout: own
version: 1
date: DD.MM.YYYY
decimal: ","
delimiter: "|"
columns:
  - {name: a, value: "{date}"}
  - {name: b, value: "{amount}"}
  - {name: c, value: "{account}"}
  - {name: d, value: "{currency} {issuer}"}
`

// Faults are named with file, line and column.
func TestLayoutFaults(t *testing.T) {
	if _, err := Parse("own.yaml", []byte(sound)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"layout: own", "layout: ''", "own.yaml:1:9: layout: is missing"},
		{"version: 1", "version: 0", "own.yaml:2:10: version: want a whole number from 1"},
		{"DD.MM.YYYY", "DD.MM", `own.yaml:3:7: date: "DD.MM" is not made of`},
		{`decimal: ","`, `decimal: "'"`, `own.yaml:4:10: decimal: "'": want . or ,`},
		{`"|"`, `"||"`, `own.yaml:5:12: delimiter: "||": want`},
		{"{name: c,", "{name: a,", `own.yaml:9:12: columns[2].name: "a" is empty or there already`},
		{"{account}", "{acount}", "own.yaml:9:22: columns[2].value: {acount} is not a field; did you mean account"},
		{"{amount}", "EUR {amount}", "own.yaml:8:22: columns[1].value: {amount} is an amount, a number or a date, and stands alone"},
		{"{amount}", "{debit}", "own.yaml:7:3: columns: no column has {amount}, nor are there both"},
		{"{currency} ", "{currency ", "has a brace without its other"},
		{"{currency} ", "", "columns: no column has {currency}"},
		{"version: 1", "version: 1\nmood: good", "mood"},
		{"layout: own", "layout: [", "own.yaml"},
	} {
		_, err := Parse("own.yaml", []byte(strings.Replace(sound, c.old, c.new, 1)))
		if !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.new, err, c.want)
		}
	}
}
