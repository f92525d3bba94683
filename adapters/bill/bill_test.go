package bill_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"quartermaster/adapters/bill"
	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/schemas"
)

// linesOf reads a file by a mapping, and describes its lines.
func linesOf(t testing.TB, m *bill.Mapping, text string) (lines []string, bad []tabular.BadRow, err error) {
	t.Helper()
	opts := focus.Options{Open: func(ctx context.Context, f io.Reader, l tabular.Limits) (tabular.Table, error) {
		return m.Open(ctx, f, l, focus.OpenCSV)
	}}
	_, err = focus.Run(context.Background(), strings.NewReader(text), strings.NewReader(text), "f", opts, func(env *domain.Envelope) error {
		l := env.Event.(*domain.BillingLineRecorded).Line
		if l.Other[bill.Column] != m.String() {
			t.Errorf("a line names the mapping %q", l.Other[bill.Column])
		}
		effective := "null"
		if l.EffectiveCost.Valid {
			effective = l.EffectiveCost.Decimal.String()
		}
		lines = append(lines, fmt.Sprintf("%s %s billed %s effective %s %s, %s to %s, period %s to %s, invoice %q of %s, account %s/%s, %q %q %q %s",
			l.ChargeCategory, l.PricingCategory, l.BilledCost, effective, l.BillingCurrency, l.ChargePeriodStart, l.ChargePeriodEnd,
			l.BillingPeriodStart, l.BillingPeriodEnd, l.InvoiceID, l.InvoiceIssuerName, l.BillingAccountID, l.SubAccountID,
			l.ServiceName, l.ResourceID, l.CommitmentDiscountID, l.CommitmentDiscountStatus))
		return nil
	}, func(b tabular.BadRow) { bad = append(bad, b) })
	return lines, bad, err
}

// give gives a mapping what its test file needs beside it: NAME.TABLE.csv in testdata, and parameters.
func give(t testing.TB, m *bill.Mapping) {
	t.Helper()
	for _, p := range m.Parameters {
		if !p.Optional || p.Name == "commitment" {
			if err := m.Set(p.Name, "my-"+p.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, of := range m.Tables {
		name := filepath.Join("testdata", m.Name+"."+of.Name+".csv")
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := m.Load(context.Background(), of.Name, name, f); err != nil {
			t.Fatal(err)
		}
	}
}

// Every mapping of the program has a file of the supplier's shape in testdata, with what becomes of
// it: the rows, and for the first the whole text.
func TestShippedMappings(t *testing.T) {
	if len(bill.Names()) < 10 {
		t.Fatalf("only %v", bill.Names())
	}
	for _, name := range bill.Names() {
		m, _, ok := bill.Named(name)
		if !ok || m.Name != name || m.Source == "" || m.About == "" {
			t.Fatalf("%s: %+v", name, m)
		}
		give(t, m)
		file := filepath.Join("testdata", name+".csv")
		if m.Rows != "" {
			file = filepath.Join("testdata", name+".json")
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines, bad, err := linesOf(t, m, string(text))
		if err != nil || len(bad) > 0 {
			t.Errorf("%s: bad %v, error %v", name, bad, err)
		}
		golden := filepath.Join("testdata", name+".golden")
		got := strings.Join(lines, "\n") + "\n"
		if os.Getenv("QM_UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil || string(want) != got {
			t.Errorf("%s: error %v\n%s", name, err, got)
		}
	}
}

const small = `mapping: small
version: 3
about: a test
source: none
required: [cost, day]
optional: [kind, n, secs, doc]
values:
  a: {column: cost}
fields:
  BilledCost: {value: a}
  BillingAccountId: acct
  BillingCurrency: USD
  BillingPeriodStart: {start_of: month, at: {column: day}, zone: UTC}
  BillingPeriodEnd: {end_of: month, at: {column: day}, zone: UTC}
  ChargeCategory: {switch: {column: kind}, cases: {"": Usage, tax: Tax}}
  ChargePeriodStart: {start_of: week, at: {column: day}, zone: UTC}
  ChargePeriodEnd: {end_of: week, at: {column: day}, zone: UTC}
  InvoiceIssuerName: Small
`

// What the parser takes, the published schema does.
func TestSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.Mapping))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mapping.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("mapping.json")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(text []byte) error {
		j, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(j))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	for _, name := range bill.Names() {
		_, text, _ := bill.Named(name)
		if err := valid(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := valid([]byte(small)); err != nil {
		t.Error(err)
	}
	if valid([]byte(strings.Replace(small, "{value: a}", "{colum: cost}", 1))) == nil || valid([]byte(strings.Replace(small, "version: 3", "version: x", 1))) == nil {
		t.Error("the schema takes a wrong mapping")
	}
}

func TestFaultsOfMappings(t *testing.T) {
	if _, err := bill.Parse("m.yaml", []byte(small)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"{value: a}", "{column: costs}", `m.yaml:10:24: column costs is unknown: declare it under required or optional; did you mean cost?`},
		{"  BillingAccountId: acct", "  BillingAccountID: acct\n  billingaccountid: other", "m.yaml:12:3: field billingaccountid has two rules; the first is in line 11"},
		{"  InvoiceIssuerName: Small", "  InvoiceIssuerName: Small\n  InvoiceIssuerName: Other", "m.yaml:19:3: field InvoiceIssuerName has two rules; the first is in line 18"},
		{"  a: {column: cost}", "  a: {sum: [{value: b}, 1]}\n  b: {first: [{value: a}]}", "value a needs itself: a → b → a"},
		{"  a: {column: cost}", "  a: {value: a}", "m.yaml:8:14: value a needs itself: a → a"},
		{"{value: a}", "{value: zz}", "m.yaml:10:23: value zz is unknown"},
		{"  BillingCurrency: USD", "  BillingCurency: USD", "m.yaml:12:3: BillingCurency is no column of FOCUS, nor a custom one, whose name begins with x_; did you mean BillingCurrency?"},
		{"  BillingCurrency: USD\n", "", "BillingCurrency has no rule, and every line needs it"},
		{"{value: a}", "{value: a, column: cost}", "a rule is either value or column"},
		{"{value: a}", "{colum: cost}", "this is no rule"},
		{"zone: UTC}\n  BillingPeriodEnd", "zone: Mars}\n  BillingPeriodEnd", `zone "Mars" is unknown`},
		{", zone: UTC}\n  BillingPeriodEnd", "}\n  BillingPeriodEnd", "start_of needs a zone"},
		{"start_of: week", "start_of: year", "start_of is one of month, week and day"},
		{"version: 3", "version: x", "m.yaml:2:10: version must be a whole number from 1"},
		{"required:", "requires:", "m.yaml:5:1: unknown key requires; did you mean required?"},
		{"cases: {\"\": Usage, tax: Tax}", "case: {\"\": Usage}", "switch has no key case; did you mean cases?"},
		{"about: a test", "about: [a", "m.yaml:"},
	} {
		text := strings.Replace(small, c.from, c.to, 1)
		if text == small {
			t.Fatalf("%q is not in the mapping", c.from)
		}
		_, err := bill.Parse("m.yaml", []byte(text))
		if !errors.Is(err, bill.ErrMapping) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n%v\nwant %s", c.to, err, c.want)
		}
	}
}

func TestRules(t *testing.T) {
	base := strings.Replace(small, "  BilledCost: {value: a}", "  BilledCost: RULE", 1)
	for rule, want := range map[string]string{
		"{column: n}":                                                                      "7",
		"{first: [{column: kind}, {column: n}]}":                                           "7",
		"{sum: [{column: cost}, {column: n}]}":                                             "8.50000000000000001",
		"{sum: [{column: cost}, {column: n}, {column: kind}]}":                             "!BilledCost is a sum with a number that is null",
		"{sum: [{column: cost}, {first: [{column: kind}, 0]}]}":                            "1.50000000000000001",
		"{difference: [{column: kind}, {column: n}]}":                                      "!BilledCost is a difference with a number that is null",
		"{difference: [{column: cost}, {column: n}]}":                                      "-5.49999999999999999",
		"{product: [{column: cost}, {column: n}]}":                                         "10.50000000000000007",
		"{product: [{column: cost}, {column: kind}]}":                                      "!BilledCost is null, but attribution needs it",
		"{sum: [{column: day}]}":                                                           "!BilledCost \"2026-05-06\" is not a number",
		"{json: {column: doc}, path: a.0.b}":                                               "2.10",
		"{json: {column: doc}, path: a.5.b}":                                               "!BilledCost is null, but attribution needs it",
		"{json: {column: day}, path: a}":                                                   "!BilledCost \"2026-05-06\" is not JSON",
		"{json_sum: {json: {column: doc}, path: a}, path: b}":                              "2.4",
		"{json_sum: {column: kind}, path: b}":                                              "0",
		"{json_sum: {column: doc}, path: b}":                                               "!is not a list in JSON",
		`{json: {json_pairs: '[{"key":"j","value":"x"},{"key":"k","value":3}]'}, path: k}`: "3",
		"{first: [{json_pairs: '[]'}, {json_pairs: {column: kind}}, 4]}":                   "4",
		"{json_pairs: {column: doc}}":                                                      "!is not a list in JSON",
		`{json_pairs: '[{"value":3}]'}`:                                                    "!is not a list of objects with a key",
		`{json_pairs: '[{"key":"k","value":3},{"key":"k","value":4}]'}`:                    `!has two values of the key "k"`,
		`{json_pairs: '[{"key":"k","value":[]}]'}`:                                         `!has a value of the key "k" that is not a text`,
		"{switch: {column: n}, cases: {7: 1}}":                                             "1",
		"{switch: {column: n}, cases: {8: 1}}":                                             "!BilledCost \"7\" is a value for which the mapping has no case",
		"{switch: {column: n}, cases: {8: 1}, default: 2}":                                 "2",
		"{join: [{column: n}, {column: kind}, {column: n}], with: .}":                      "7.7",
	} {
		m, err := bill.Parse("m.yaml", []byte(strings.Replace(base, "RULE", rule, 1)))
		if err != nil {
			t.Fatal(err)
		}
		lines, bad, err := linesOf(t, m, "cost,day,kind,n,secs,doc\n1.50000000000000001,2026-05-06,,7,1777593600.5,\"{\"\"a\"\":[{\"\"b\"\":2.10},{\"\"b\"\":\"\"0.3\"\"}]}\"\n")
		if err != nil || len(lines)+len(bad) != 1 {
			t.Fatalf("%s: %v %v %v", rule, lines, bad, err)
		}
		if text, refused := strings.CutPrefix(want, "!"); refused {
			if len(bad) == 0 || !strings.Contains(bad[0].String(), text) {
				t.Errorf("%s: %v %v, want bad %s", rule, lines, bad, text)
			}
			continue
		}
		if len(bad) > 0 || !strings.Contains(lines[0], " billed "+strings.TrimSuffix(want, "0")+" ") && !strings.Contains(lines[0], " billed "+want+" ") {
			t.Errorf("%s: %v %v, want %s", rule, lines, bad, want)
		}
	}
}

// Invoice months of the Pacific, weeks, dates of other formats and seconds since 1970.
func TestTimes(t *testing.T) {
	for rule, want := range map[string]string{
		"{start_of: month, at: \"202605\", format: \"200601\", zone: America/Los_Angeles}": "2026-05-01T07:00:00Z",
		"{start_of: month, at: \"202612\", format: \"200601\", zone: America/Los_Angeles}": "2026-12-01T08:00:00Z",
		"{start_of: week, at: 2026-05-06T00:00:00Z, zone: UTC}":                            "2026-05-04T00:00:00Z",
		"{start_of: week, at: 2026-05-10T23:59:59Z, zone: UTC}":                            "2026-05-04T00:00:00Z",
		"{time: 05/06/2026, format: 01/02/2006, zone: UTC}":                                "2026-05-06T00:00:00Z",
		"{time: 2026-05-06 10:00:00 UTC}":                                                  "2026-05-06T10:00:00Z",
		"{epoch: {column: secs}}":                                                          "2026-05-01T00:00:00.5Z",
		"{plus: 24h, at: 2026-05-06T10:00:00+02:00}":                                       "2026-05-07T08:00:00Z",
		"{time: 05/06/2026, format: 01/02/2006}":                                           "!has no time zone",
		"{time: 2026-05-06}":                                                               "!has no time zone",
		"{time: yesterday}":                                                                "!is not a time",
		"{epoch: 1e999999999}":                                                             "!is not a number of seconds",
		"{epoch: 1777593600000}":                                                           "!is not a number of seconds",
	} {
		text := strings.Replace(small, "{start_of: week, at: {column: day}, zone: UTC}", rule, 1)
		text = strings.Replace(text, "{end_of: week, at: {column: day}, zone: UTC}", "2027-01-01T00:00:00Z", 1)
		m, err := bill.Parse("m.yaml", []byte(text))
		if err != nil {
			t.Fatal(rule, err)
		}
		lines, bad, err := linesOf(t, m, "cost,day,secs\n1,2027-01-05,1777593600.5\n")
		if err != nil || len(lines)+len(bad) != 1 {
			t.Fatalf("%s: %v %v %v", rule, lines, bad, err)
		}
		if why, refused := strings.CutPrefix(want, "!"); refused {
			if len(bad) != 1 || !strings.Contains(bad[0].Reason, why) {
				t.Errorf("%s: %v %v, want %s", rule, lines, bad, want)
			}
		} else if len(lines) != 1 || !strings.Contains(lines[0], ", "+want+" to ") {
			t.Errorf("%s: %v %v, want %s", rule, lines, bad, want)
		}
	}
}

func TestFilesWithoutTheColumns(t *testing.T) {
	m, err := bill.Parse("m.yaml", []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := linesOf(t, m, "cost,n\n1,2\n"); !errors.Is(err, focus.ErrColumns) || !strings.Contains(err.Error(), "mapping small@3 needs the columns day; found cost, n") {
		t.Errorf("error %v", err)
	}
	if _, _, err := linesOf(t, m, "cost,day,cost\n"); !errors.Is(err, focus.ErrColumns) {
		t.Errorf("a column twice: error %v", err)
	}
	lines, bad, err := linesOf(t, m, "cost,day\n1\n1,2026-05-06\n")
	if err != nil || len(lines) != 1 || len(bad) != 1 || bad[0].Line != 2 || !strings.Contains(bad[0].Reason, "has 1 fields") {
		t.Errorf("a short row: %v %v %v", lines, bad, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(small)
	for _, name := range bill.Names() {
		_, text, _ := bill.Named(name)
		f.Add(string(text))
	}
	f.Add("fields: {a: {b: [c]}}\nvalues: {x: {value: x}}\n")
	f.Add("? [a]\n: b\n")
	f.Add("a: &x [*x]\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := bill.Parse("m.yaml", []byte(text))
		if err != nil {
			if !errors.Is(err, bill.ErrMapping) {
				t.Fatal(err)
			}
			return
		}
		header := strings.Join(append(append([]string{}, m.Required...), m.Optional...), ",")
		if strings.ContainsAny(header, "\"\r\n") {
			return
		}
		_, _, _ = linesOf(t, m, header+"\n"+strings.Repeat("1,", strings.Count(header, ","))+"1\n")
	})
}
