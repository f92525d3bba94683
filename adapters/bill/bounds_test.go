package bill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"quartermaster/adapters/bill"
	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
)

// parsed parses small with its field BilledCost replaced, and with more before its values.
func parsed(t testing.TB, cost, more string) *bill.Mapping {
	t.Helper()
	text := strings.Replace(small, "BilledCost: {value: a}", "BilledCost: "+cost, 1)
	text = strings.Replace(text, "values:\n", more+"values:\n", 1)
	m, err := bill.Parse("m.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// first returns the first row of a table that a mapping made.
func first(t testing.TB, m *bill.Mapping, text string) (map[string]string, *tabular.Fault, error) {
	t.Helper()
	table, err := m.Open(context.Background(), strings.NewReader(text), tabular.Limits{}, focus.OpenCSV)
	if err != nil {
		return nil, nil, err
	}
	header, err := table.Next()
	if err != nil {
		t.Fatal(err)
	}
	names := append([]string{}, header.Fields...)
	row, err := table.Next()
	if err != nil || row.Broken != nil {
		return nil, row.Broken, err
	}
	cells := map[string]string{}
	for i, name := range names {
		cells[name] = row.Fields[i]
	}
	return cells, nil, nil
}

// A value that joins a value twice is 2^60 times as long after 60 values.
func TestJoinIsBounded(t *testing.T) {
	values := "  v0: {column: cost}\n"
	for i := range 60 {
		values += fmt.Sprintf("  v%d: {join: [{value: v%d}, {value: v%d}]}\n", i+1, i, i)
	}
	m, err := bill.Parse("m.yaml", []byte(strings.Replace(small, "  a: {column: cost}\n", "  a: {value: v60}\n"+values, 1)))
	if err != nil {
		t.Fatal(err)
	}
	_, fault, err := first(t, m, "cost,day\n12345678,2026-05-06\n")
	if err != nil || fault == nil || fault.Field != "BilledCost" || !strings.Contains(fault.Reason, "joined texts of more than 1048576 bytes") {
		t.Errorf("fault %+v, error %v", fault, err)
	}
}

// Nanoseconds since 1970 do not fit 64 bits after 2262.
func TestEpochAfter2262(t *testing.T) {
	for secs, want := range map[string]string{
		"9223372037":     "2262-04-11T23:47:17Z",
		"99999999999.25": "5138-11-16T09:46:39.25Z",
		"-0.5":           "1969-12-31T23:59:59.5Z",
		"1777593600.5":   "2026-05-01T00:00:00.5Z",
	} {
		text := strings.Replace(small, "{start_of: week, at: {column: day}, zone: UTC}", "{epoch: {column: secs}}", 1)
		m, err := bill.Parse("m.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		cells, fault, err := first(t, m, "cost,day,secs\n1,2026-05-06,"+secs+"\n")
		if err != nil || fault != nil || cells["ChargePeriodStart"] != want {
			t.Errorf("%s: %s, fault %v, error %v, want %s", secs, cells["ChargePeriodStart"], fault, err, want)
		}
	}
}

const withRates = "tables:\n  rates: {about: prices, key: [sku, plan]}\nparameters:\n  account: {about: the account}\n  plan: {default: spot}\n"

const rateRule = "{product: [{column: n}, {lookup: rates, key: [{column: doc}, {parameter: plan}], at: {column: day}}]}"

func TestLookup(t *testing.T) {
	rates := "plan,sku,value,from\nspot,h100,2,2026-01-01\nspot,h100,2.5,2026-05-06T00:00:00Z\nspot,h100,9,2026-06-01\n,h100,7,2026-01-01\n"
	m := parsed(t, rateRule, withRates)
	if _, _, err := first(t, m, "cost,day\n"); !errors.Is(err, bill.ErrGiven) || !strings.Contains(err.Error(), "needs the parameter account (the account)") {
		t.Errorf("without the parameter: %v", err)
	}
	if err := m.Set("acount", "x"); !errors.Is(err, bill.ErrGiven) || !strings.Contains(err.Error(), "did you mean account") {
		t.Errorf("a wrong parameter: %v", err)
	}
	if err := m.Set("account", "x"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := first(t, m, "cost,day\n"); !errors.Is(err, bill.ErrGiven) || !strings.Contains(err.Error(), "as CSV with the columns sku, plan, from, value") {
		t.Errorf("without the table: %v", err)
	}
	if err := m.Load(context.Background(), "rates", "r.csv", strings.NewReader(rates)); err != nil {
		t.Fatal(err)
	}
	if got := m.Given(); len(got) != 1 || got[0] != "account=x" {
		t.Errorf("given %v", got)
	}
	for row, want := range map[string]string{
		"4,2026-05-05,h100":           "8",
		"4,2026-05-06,h100":           "10",
		"4,2026-05-31T23:59:59Z,h100": "10",
		"4,2027-01-01,h100":           "36",
		"4,2025-12-31,h100":           "!has no row in table rates at 2025-12-31",
		"4,2026-05-06,h200":           "!has no row in table rates",
		"4,tomorrow,h100":             "!is not a time",
	} {
		cells, fault, err := first(t, m, "cost,n,day,doc\n1,"+row+"\n")
		why, refused := strings.CutPrefix(want, "!")
		switch {
		case err != nil:
			t.Error(row, err)
		case refused && (fault == nil || !strings.Contains(fault.Reason, why)):
			t.Errorf("%s: fault %+v, want %s", row, fault, why)
		case !refused && (fault != nil || cells["BilledCost"] != want || !strings.HasPrefix(cells["x_Mapping"], "small@3+rates:")):
			t.Errorf("%s: %v, fault %+v, want %s", row, cells, fault, want)
		}
	}
	for text, want := range map[string]string{
		"":                                       "r.csv is empty",
		"sku,from,value\n":                       "r.csv:1: column plan is missing; the columns are sku, plan, from, value",
		"sku,plan,from,value,to\n":               "and no others",
		"sku,plan,from,value,SKU\n":              "column SKU is in the header twice",
		"sku,plan,from,value\na,b,2026-01-01\n":  "r.csv:2: has 3 fields where the header has 4",
		"sku,plan,from,value\na,b,soon,1\n":      `r.csv:2: from "soon" is not a time`,
		"sku,plan,from,value\na,b,2026-01-01,\n": "r.csv:2: value is empty",
		"sku,plan,from,value\na,b,2026-01-01,1\na,b,2026-01-01T00:00:00Z,2\n": "r.csv:3: the key a, b has two rows from 2026-01-01T00:00:00Z",
	} {
		err := m.Load(context.Background(), "rates", "r.csv", strings.NewReader(text))
		if !errors.Is(err, bill.ErrGiven) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if err := m.Load(context.Background(), "rate", "r.csv", strings.NewReader(rates)); !errors.Is(err, bill.ErrGiven) {
		t.Errorf("an unknown table: %v", err)
	}
}

func TestFaultsOfTables(t *testing.T) {
	for rule, want := range map[string]string{
		"{lookup: prices, key: [1, 2], at: 2026-01-01}": "table prices is unknown",
		"{lookup: rates, key: [1], at: 2026-01-01}":     "table rates has a key of 2 columns: sku, plan",
		"{lookup: rates, key: [1, 2]}":                  "lookup needs key, a list of rules, and at, a time",
		"{lookup: rates, at: 2026-01-01}":               "lookup needs key, a list of rules, and at, a time",
		"{parameter: acct}":                             "parameter acct is unknown",
	} {
		text := strings.Replace(small, "BilledCost: {value: a}", "BilledCost: "+rule, 1)
		_, err := bill.Parse("m.yaml", []byte(strings.Replace(text, "values:\n", withRates+"values:\n", 1)))
		if !errors.Is(err, bill.ErrMapping) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", rule, err, want)
		}
	}
	for more, want := range map[string]string{
		"tables: {rates: {about: x}}\n":               "table rates needs key",
		"tables: {rates: {key: [a], columns: [b]}}\n": "a table has no key columns",
		"parameters: {a b: {about: x}}\n":             "a parameter must have a name without blanks",
		"parameters: {a: {abut: x}}\n":                "a parameter has no key abut; did you mean about?",
		"tables: {\"ra:tes\": {key: [a]}}\n":          "a table must have a name without blanks",
	} {
		_, err := bill.Parse("m.yaml", []byte(strings.Replace(small, "values:\n", more+"values:\n", 1)))
		if !errors.Is(err, bill.ErrMapping) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", more, err, want)
		}
	}
}
