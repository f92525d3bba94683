package focus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/tabular"
)

// Rule is a requirement of FOCUS on a file of Cost and Usage that the file alone decides.
type Rule struct {
	ID     string `json:"rule"`            // COLUMN-kind
	Column string `json:"column"`          // the column that violates it
	Since  string `json:"since"`           // first version of FOCUS that has it
	Until  string `json:"until,omitempty"` // last version; "" for the latest
	Text   string `json:"text"`

	since, until int
	broken       func(*checked) bool // in a row; nil for rules on the header, and on single values
}

// Violation is a row, or a header, that violates a rule.
type Violation struct {
	File  string `json:"file"`
	Line  int    `json:"line"`
	Rule  string `json:"rule"`
	Value string `json:"value,omitempty"` // at most 120 bytes of it
	Text  string `json:"text"`            // what should hold
}

// String returns "file:line: rule "value": violated: text". The text says what should hold.
func (v Violation) String() string {
	value := ""
	if v.Value != "" {
		value = fmt.Sprintf(" %q", v.Value)
	}
	return fmt.Sprintf("%s:%d: %s%s: violated: %s", v.File, v.Line, v.Rule, value, v.Text)
}

// Verdict is the result of validating a file.
type Verdict struct {
	File       string         `json:"file"`
	Version    string         `json:"focus_version"`
	Rows       int            `json:"rows"`
	Rules      int            `json:"rules"`      // that were checked
	Violations int            `json:"violations"` // in all
	ByRule     map[string]int `json:"by_rule"`
	First      []Violation    `json:"first"` // the first of each rule
}

// neverNull are the columns that must have a value in every row.
// Source: FinOps Open Cost and Usage Specification 1.0 to 1.4, content constraints of the columns.
var neverNull = []string{
	"BilledCost", "BillingAccountId", "BillingAccountType", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeFrequency",
	"ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingCurrency", "PricingCurrencyEffectiveCost",
	"ServiceCategory", "ServiceName", "ServiceProviderName", "ServiceSubcategory",
}

// allowed are the values of the columns for which FOCUS lists them.
// Source: as neverNull.
var allowed = map[string][]string{
	"CapacityReservationStatus":  {"Used", "Unused"},
	"ChargeCategory":             {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
	"ChargeClass":                {"Correction"},
	"ChargeFrequency":            {"One-Time", "Recurring", "Usage-Based"},
	"CommitmentDiscountCategory": {"Spend", "Usage"},
	"CommitmentDiscountStatus":   {"Used", "Unused"},
	"PricingCategory":            {"Standard", "Dynamic", "Committed", "Other"},
	"ServiceCategory": {
		"AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases", "Developer Tools", "Multicloud", "Identity", "Integration",
		"Internet of Things", "Management and Governance", "Media", "Migration", "Mobile", "Networking", "Other", "Security", "Storage", "Web",
	},
}

// neverNegative are the columns whose numbers are at least 0.
var neverNegative = []string{"ContractedUnitPrice", "ListUnitPrice", "PricingCurrencyContractedUnitPrice", "PricingCurrencyListUnitPrice"}

// checked is a row that is being validated.
type checked struct {
	cells   map[string]string // by column, "" for null
	has     map[string]bool   // columns of the file
	numbers map[string]*decimal.Decimal
}

func (c *checked) null(column string) bool { return c.cells[column] == "" }

// is reports whether a column has one of some values.
func (c *checked) is(column string, values ...string) bool {
	return slices.Contains(values, c.cells[column])
}

// regular reports whether a row is of one of some charge categories, and corrects nothing.
func (c *checked) regular(categories ...string) bool {
	return c.is("ChargeCategory", categories...) && !c.is("ChargeClass", "Correction")
}

// between returns the rules that hold of two columns and more. Each is skipped in files that lack one
// of the columns it names.
// Source: as neverNull.
func between() []Rule {
	var all []Rule
	add := func(column, kind string, since int, text string, broken func(*checked) bool, needs ...string) {
		needs = append(needs, column)
		all = append(all, Rule{ID: column + "-" + kind, Column: column, since: since, Text: text, broken: func(c *checked) bool {
			for _, n := range needs {
				if !c.has[n] {
					return false
				}
			}
			return broken(c)
		}})
	}
	together := func(column, with string, since int) {
		add(column, "null-with-"+with, since, "is null if "+with+" is null", func(c *checked) bool { return c.null(with) && !c.null(column) }, with)
	}
	both := func(column, with string, since int) {
		together(column, with, since)
		add(column, "given-with-"+with, since, "has a value if "+with+" has one", func(c *checked) bool { return !c.null(with) && c.null(column) }, with)
	}
	for _, period := range []string{"BillingPeriod", "ChargePeriod"} {
		start, end := period+"Start", period+"End"
		add(end, "after-start", 10, "is after "+start, func(c *checked) bool {
			from, why := clock{}.parse(c.cells[start])
			to, why2 := clock{}.parse(c.cells[end])
			return why == "" && why2 == "" && to <= from
		}, start)
	}
	both("CommitmentDiscountCategory", "CommitmentDiscountId", 10)
	both("CommitmentDiscountType", "CommitmentDiscountId", 10)
	together("CommitmentDiscountName", "CommitmentDiscountId", 10)
	together("CommitmentDiscountStatus", "CommitmentDiscountId", 10)
	add("CommitmentDiscountStatus", "given-for-usage", 10, "has a value for usage with a CommitmentDiscountId", func(c *checked) bool {
		return c.null("CommitmentDiscountStatus") && !c.null("CommitmentDiscountId") && c.is("ChargeCategory", "Usage")
	}, "CommitmentDiscountId", "ChargeCategory")
	together("CommitmentDiscountQuantity", "CommitmentDiscountId", 11)
	add("CommitmentDiscountQuantity", "given-with-CommitmentDiscountId", 11, "has a value for usage and purchases with a CommitmentDiscountId that correct nothing", func(c *checked) bool {
		return c.regular("Usage", "Purchase") && !c.null("CommitmentDiscountId") && c.null("CommitmentDiscountQuantity")
	}, "CommitmentDiscountId", "ChargeCategory", "ChargeClass")
	both("CommitmentDiscountUnit", "CommitmentDiscountQuantity", 11)
	together("CapacityReservationStatus", "CapacityReservationId", 11)
	add("CapacityReservationStatus", "given-for-usage", 11, "has a value for usage with a CapacityReservationId", func(c *checked) bool {
		return c.null("CapacityReservationStatus") && !c.null("CapacityReservationId") && c.is("ChargeCategory", "Usage")
	}, "CapacityReservationId", "ChargeCategory")
	add("ChargeFrequency", "of-purchase", 10, "is not Usage-Based for a purchase", func(c *checked) bool {
		return c.is("ChargeCategory", "Purchase") && c.is("ChargeFrequency", "Usage-Based")
	}, "ChargeCategory")
	add("ConsumedQuantity", "of-usage", 10, "is null unless ChargeCategory is Usage, and where a commitment was not used", func(c *checked) bool {
		return !c.null("ConsumedQuantity") && (!c.is("ChargeCategory", "Usage") || c.is("CommitmentDiscountStatus", "Unused"))
	}, "ChargeCategory")
	add("ConsumedQuantity", "given-for-usage", 10, "has a value for usage that corrects nothing, unless a commitment was not used", func(c *checked) bool {
		return c.null("ConsumedQuantity") && c.regular("Usage") && !c.is("CommitmentDiscountStatus", "Unused")
	}, "ChargeCategory", "ChargeClass")
	both("ConsumedUnit", "ConsumedQuantity", 10)
	both("PricingUnit", "PricingQuantity", 10)
	for _, column := range []string{
		"PricingQuantity", "PricingCategory", "ListUnitPrice", "ContractedUnitPrice", "SkuId", "SkuPriceId", "PricingCurrencyListUnitPrice",
	} {
		since := 10
		if column == "PricingCurrencyListUnitPrice" {
			since = 12
		}
		add(column, "null-for-tax", since, "is null for tax", func(c *checked) bool { return c.is("ChargeCategory", "Tax") && !c.null(column) }, "ChargeCategory")
		add(column, "given-for-usage", since, "has a value for usage and purchases that correct nothing", func(c *checked) bool {
			return c.regular("Usage", "Purchase") && c.null(column)
		}, "ChargeCategory", "ChargeClass")
	}
	for _, p := range []struct{ cost, price string }{{"ListCost", "ListUnitPrice"}, {"ContractedCost", "ContractedUnitPrice"}} {
		add(p.cost, "product", 10, "is "+p.price+" times PricingQuantity, unless it corrects something", func(c *checked) bool {
			cost, price, quantity := c.numbers[p.cost], c.numbers[p.price], c.numbers["PricingQuantity"]
			return cost != nil && price != nil && quantity != nil && !c.is("ChargeClass", "Correction") && !price.Mul(*quantity).Equal(*cost)
		}, p.price, "PricingQuantity", "ChargeClass")
	}
	both("ResourceType", "ResourceId", 10)
	together("ResourceName", "ResourceId", 10)
	both("RegionName", "RegionId", 10)
	together("SkuMeter", "SkuId", 11)
	together("SkuPriceDetails", "SkuPriceId", 11)
	both("SubAccountType", "SubAccountId", 12)
	together("SubAccountName", "SubAccountId", 10)
	add("SubAccountName", "given-with-SubAccountId", 12, "has a value if SubAccountId has one", func(c *checked) bool {
		return !c.null("SubAccountId") && c.null("SubAccountName")
	}, "SubAccountId")
	together("BillingAccountType", "BillingAccountId", 12)
	add("ServiceSubcategory", "allowed", 11, "is one of the subcategories of FOCUS", func(c *checked) bool {
		return !c.null("ServiceSubcategory") && !isSubcategory(c.cells["ServiceSubcategory"], "")
	})
	add("ServiceSubcategory", "of-ServiceCategory", 11, "belongs to its ServiceCategory", func(c *checked) bool {
		name := c.cells["ServiceSubcategory"]
		return isSubcategory(name, "") && !isSubcategory(name, c.cells["ServiceCategory"])
	}, "ServiceCategory")
	together("AllocatedResourceId", "AllocatedMethodId", 13)
	together("AllocatedMethodDetails", "AllocatedMethodId", 13)
	return all
}

// allRules returns the rules of every version, by column and kind.
func allRules() []Rule {
	var all []Rule
	one := func(column, kind string, since int, text string) {
		all = append(all, Rule{ID: column + "-" + kind, Column: column, since: since, Text: text})
	}
	for i := range fields {
		f := &fields[i]
		if f.mandatory {
			one(f.name, "present", f.since, "the column is in the file")
		}
		switch {
		case f.number != nil || f.cost != nil:
			one(f.name, "type", f.since, "is a decimal without plus sign, separators or currency sign")
		case f.time != nil:
			one(f.name, "type", f.since, "is a time in UTC, such as 2026-05-01T00:00:00Z")
		case f.json:
			one(f.name, "type", f.since, "is an object in JSON")
		}
		if slices.Contains(neverNull, f.name) {
			one(f.name, "not-null", f.since, "has a value")
		}
		if values := allowed[f.name]; values != nil {
			one(f.name, "allowed", f.since, "is one of "+strings.Join(values, ", "))
		}
		if slices.Contains(neverNegative, f.name) {
			one(f.name, "not-negative", f.since, "is at least 0")
		}
		if strings.HasSuffix(f.name, "Currency") {
			one(f.name, "currency", f.since, "is a currency code of three capital letters (ISO 4217)")
		}
	}
	for _, column := range []string{columnProvider, columnPublisher} {
		all = append(all, Rule{ID: column + "-present", Column: column, since: 10, until: 13, Text: "the column is in the file"},
			Rule{ID: column + "-not-null", Column: column, since: 10, until: 13, Text: "has a value"})
	}
	all = append(all, Rule{ID: "x_-name", Column: "", since: 10, Text: "a column that FOCUS does not define has a name that begins with x_"})
	all = append(all, between()...)
	slices.SortStableFunc(all, func(a, b Rule) int { return strings.Compare(a.Column, b.Column) })
	for i := range all {
		all[i].Since = versionName(all[i].since)
		if all[i].until > 0 {
			all[i].Until = versionName(all[i].until)
		}
	}
	return all
}

// Rules returns the rules of a version of FOCUS, 1.0 to 1.4, or of all of them if it is "".
func Rules(version string) ([]Rule, error) {
	at := slices.Index(versions, version)
	if version != "" && at < 1 {
		return nil, fmt.Errorf("FOCUS version %q is not one of %s", tabular.Clip(version), strings.Join(versions[1:], ", "))
	}
	all := allRules()
	if version == "" {
		return all, nil
	}
	v := preview + at
	return slices.DeleteFunc(all, func(r Rule) bool { return r.since > v || r.until > 0 && r.until < v }), nil
}

// Validate checks a file of Cost and Usage against the rules of its version, which is detected from
// its columns unless opts names one. It calls report, which may be nil, with every violation. Rows that
// cannot be read violate the rule "row". The error is that of opening or reading the file; see [Run].
func Validate(ctx context.Context, file io.Reader, name string, opts Options, report func(Violation)) (Verdict, error) {
	if opts.Open == nil {
		opts.Open = OpenCSV
	}
	opts.Limits = opts.Limits.WithDefaults()
	r := &run{ctx: ctx, opts: opts, name: name}
	v := Verdict{File: name, ByRule: map[string]int{}, First: []Violation{}}
	rows, header, err := r.table(file)
	if err != nil {
		return v, fmt.Errorf("validate %s: %w", name, err)
	}
	known := map[string]string{}
	for _, c := range append(Columns(), columnProvider, columnPublisher, columnIssuerSource) {
		known[fold(c)] = c
	}
	row := &checked{cells: map[string]string{}, has: map[string]bool{}, numbers: map[string]*decimal.Decimal{}}
	for i, c := range header {
		if n := known[fold(c)]; n != "" {
			header[i] = n
		}
		row.has[header[i]] = true
	}
	has := func(column string) bool { return row.has[column] }
	if v.Version = versionName(max(versionOf(has), 10)); opts.FocusVersion != "" {
		v.Version = opts.FocusVersion
	}
	if set := otherDataset(has); set != "" {
		return v, fmt.Errorf("validate %s: %w: this looks like the FOCUS dataset %s, and the rules are those of %s", name, ErrColumns, set, CostAndUsage)
	}
	if !has("BilledCost") || !has("ChargeCategory") {
		return v, fmt.Errorf("validate %s: %w: it has neither BilledCost nor ChargeCategory%s", name, ErrColumns, hintOf(header, has))
	}
	rules, err := Rules(v.Version)
	if err != nil {
		return v, fmt.Errorf("validate %s: %w", name, err)
	}
	v.Rules = len(rules)
	violates := func(line int, rule, value, text string) {
		x := Violation{File: name, Line: line, Rule: rule, Value: tabular.Clip(value), Text: text}
		v.Violations++
		if v.ByRule[rule]++; v.ByRule[rule] == 1 {
			v.First = append(v.First, x)
		}
		if report != nil {
			report(x)
		}
	}
	for _, c := range header {
		if known[fold(c)] == "" && !strings.HasPrefix(c, "x_") {
			violates(r.line, "x_-name", c, "a column that FOCUS does not define has a name that begins with x_")
		}
	}
	var inRows []Rule
	for _, rule := range rules {
		switch {
		case strings.HasSuffix(rule.ID, "-present"):
			if !has(rule.Column) {
				violates(r.line, rule.ID, "", rule.Text)
			}
		case has(rule.Column):
			inRows = append(inRows, rule)
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return v, err
		}
		rec, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return v, nil
		}
		if err != nil {
			return v, fmt.Errorf("validate %s: line %d: %w", name, rec.Line, err)
		}
		v.Rows++
		if rec.Broken != nil || len(rec.Fields) != len(header) {
			why := fmt.Sprintf("it has %d fields where the header has %d", len(rec.Fields), len(header))
			if rec.Broken != nil {
				why = rec.Broken.Reason
			}
			violates(rec.Line, "row", "", why)
			continue
		}
		clear(row.numbers)
		for i, c := range header {
			row.cells[c] = notNull(rec.Fields[i])
		}
		for _, c := range []string{"ListCost", "ListUnitPrice", "ContractedCost", "ContractedUnitPrice", "PricingQuantity"} {
			if n, why := parseDecimal(row.cells[c]); row.cells[c] != "" && why == "" && n.rest.IsZero() {
				row.numbers[c] = &n.kept
			}
		}
		for i := range inRows {
			if rule := &inRows[i]; rule.violated(row) {
				violates(rec.Line, rule.ID, row.cells[rule.Column], rule.Text)
			}
		}
	}
}

// violated reports whether a row violates the rule.
func (r *Rule) violated(c *checked) bool {
	if r.broken != nil {
		return r.broken(c)
	}
	value := c.cells[r.Column]
	kind := r.ID[strings.LastIndexByte(r.ID, '-')+1:]
	if kind == "null" { // not-null
		return value == ""
	}
	if value == "" {
		return false
	}
	switch kind {
	case "allowed":
		return !slices.Contains(allowed[r.Column], value)
	case "currency":
		return len(value) != 3 || strings.Trim(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != ""
	case "negative": // not-negative
		n, why := parseDecimal(value)
		return why == "" && n.kept.IsNegative()
	case "type":
		f := &fields[slices.IndexFunc(fields, func(f field) bool { return f.name == r.Column })]
		switch {
		case f.number != nil || f.cost != nil:
			_, why := parseDecimal(value)
			return why != ""
		case f.time != nil:
			_, why := clock{}.parse(value)
			return why != "" || !strings.HasSuffix(value, "Z")
		default:
			return !strings.HasPrefix(value, "{") || !json.Valid([]byte(value))
		}
	}
	return false
}
