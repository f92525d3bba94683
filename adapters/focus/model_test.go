package focus_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/focus"
)

// The model of FOCUS 1.2 is data of the FinOps Foundation's validator. This file has an interpreter of
// its checks, to find rows that break a rule, and asks Validate about them.

type modelCheck struct {
	Function    string `json:"CheckFunction"`
	Items       []modelCheck
	Rule        string `json:"ModelRuleId"`
	Column      string `json:"ColumnName"`
	A           string `json:"ColumnAName"`
	B           string `json:"ColumnBName"`
	Result      string `json:"ResultColumnName"`
	Value       any
	ExpectCount int `json:"ExpectedCount"`
}

// UnmarshalJSON reads a check. Some conditions of the model have AND as a key, with one check or a list.
func (c *modelCheck) UnmarshalJSON(b []byte) error {
	type plain modelCheck
	if err := json.Unmarshal(b, (*plain)(c)); err != nil {
		return err
	}
	var other struct{ AND json.RawMessage }
	if err := json.Unmarshal(b, &other); err != nil || c.Function != "" || len(other.AND) == 0 {
		return err
	}
	c.Function = "AND"
	if other.AND[0] == '[' {
		return json.Unmarshal(other.AND, &c.Items)
	}
	c.Items = make([]modelCheck, 1)
	return json.Unmarshal(other.AND, &c.Items[0])
}

type modelRule struct {
	Function      string
	Reference     string
	Type          string
	Applicability []string `json:"ApplicabilityCriteria"`
	Criteria      struct {
		MustSatisfy, Keyword   string
		Requirement, Condition modelCheck
	} `json:"ValidationCriteria"`
}

type model map[string]*modelRule

// parents returns the composites that have each rule as a part. The conditions of a composite hold for
// its parts too.
func (m model) parents() map[string][]string {
	all := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(m)) {
		var walk func(c *modelCheck)
		walk = func(c *modelCheck) {
			if c.Rule != "" {
				all[c.Rule] = append(all[c.Rule], id)
			}
			for i := range c.Items {
				walk(&c.Items[i])
			}
		}
		if m[id].Function == "Composite" {
			walk(&m[id].Criteria.Requirement)
		}
	}
	return all
}

// violated reports whether a row breaks a rule and, if the rule is a part of composites, one of those.
func (m model) violated(id string, row map[string]string, parents map[string][]string) bool {
	if !m.broken(m[id], row) {
		return false
	}
	return len(parents[id]) == 0 || slices.ContainsFunc(parents[id], func(p string) bool { return m.violated(p, row, parents) })
}

// columns adds the columns that a check reads, and the values with which it compares each.
func (m model) columns(c *modelCheck, into map[string][]string) {
	for _, name := range []string{c.Column, c.A, c.B, c.Result} {
		if name != "" && into[name] == nil {
			into[name] = []string{}
		}
	}
	if c.Column != "" && c.Value != nil {
		into[c.Column] = append(into[c.Column], fmt.Sprint(c.Value))
	}
	for i := range c.Items {
		m.columns(&c.Items[i], into)
	}
	if r := m[c.Rule]; r != nil {
		m.columns(&r.Criteria.Requirement, into)
		m.columns(&r.Criteria.Condition, into)
	}
}

func (m model) columnsOf(id string) map[string][]string {
	values := map[string][]string{}
	m.columns(&m[id].Criteria.Requirement, values)
	m.columns(&m[id].Criteria.Condition, values)
	return values
}

// broken reports whether a row breaks a rule: its condition holds and its requirement does not.
func (m model) broken(r *modelRule, row map[string]string) bool {
	return (r.Criteria.Condition.Function == "" || m.holds(&r.Criteria.Condition, row)) && !m.holds(&r.Criteria.Requirement, row)
}

func (m model) holds(c *modelCheck, row map[string]string) bool {
	cell, there := row[c.Column]
	number := func(column string) (decimal.Decimal, bool) {
		d, err := decimal.NewFromString(row[column])
		return d, err == nil
	}
	value := ""
	if c.Value != nil {
		value = fmt.Sprint(c.Value)
	}
	switch c.Function {
	case "AND":
		return !slices.ContainsFunc(c.Items, func(i modelCheck) bool { return !m.holds(&i, row) })
	case "OR":
		return slices.ContainsFunc(c.Items, func(i modelCheck) bool { return m.holds(&i, row) })
	case "CheckModelRule":
		return m[c.Rule] == nil || !m.broken(m[c.Rule], row)
	case "ColumnPresent":
		return there
	case "CheckValue":
		return cell == value
	case "CheckNotValue":
		return cell != value
	case "CheckSameValue":
		return row[c.A] == row[c.B]
	case "CheckNotSameValue":
		return row[c.A] != row[c.B]
	case "CheckGreaterOrEqualThanValue":
		d, ok := number(c.Column)
		return !ok || d.GreaterThanOrEqual(decimal.RequireFromString(value))
	case "ColumnByColumnEqualsColumnValue":
		a, okA := number(c.A)
		b, okB := number(c.B)
		product, ok := number(c.Result)
		return !okA || !okB || !ok || a.Mul(b).Equal(product)
	case "TypeDecimal", "FormatNumeric", "CheckDecimalValue":
		_, ok := number(c.Column)
		return cell == "" || ok && !strings.Contains(cell, "+")
	case "TypeDateTime", "FormatDateTime":
		_, err := time.Parse("2006-01-02T15:04:05Z", cell)
		return cell == "" || err == nil
	case "FormatCurrency", "CheckNationalCurrency":
		return cell == "" || len(cell) == 3 && strings.ToUpper(cell) == cell && strings.Trim(cell, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
	case "FormatKeyValue":
		var pairs map[string]any
		return cell == "" || json.Unmarshal([]byte(cell), &pairs) == nil
	case "FormatUnit":
		return cell == "" || !strings.ContainsAny(cell, "!")
	}
	return true // TypeString and FormatString hold of every text, and CheckDistinctCount of one row
}

// fitting is a row of every column of 1.2, without violations.
func fitting(changes ...string) map[string]string {
	row := map[string]string{}
	for _, c := range strings.Fields("AvailabilityZone BillingAccountName CapacityReservationId CapacityReservationStatus ChargeClass " +
		"CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName CommitmentDiscountQuantity CommitmentDiscountStatus " +
		"CommitmentDiscountType CommitmentDiscountUnit RegionId RegionName ResourceName ServiceSubcategory SubAccountName SubAccountType Tags") {
		row[c] = ""
	}
	for _, pair := range append([]string{
		"BilledCost=10", "BillingAccountId=a", "BillingAccountName=A", "BillingAccountType=account", "BillingCurrency=USD", "BillingPeriodEnd=2026-06-01T00:00:00Z",
		"BillingPeriodStart=2026-05-01T00:00:00Z", "ChargeCategory=Usage", "ChargeDescription=machine", "ChargeFrequency=Usage-Based",
		"ChargePeriodEnd=2026-05-02T00:00:00Z", "ChargePeriodStart=2026-05-01T00:00:00Z", "ConsumedQuantity=4", "ConsumedUnit=Hours", "ContractedCost=10",
		"ContractedUnitPrice=2.5", "EffectiveCost=10", "InvoiceId=I-1", "InvoiceIssuerName=Example", "ListCost=12", "ListUnitPrice=3",
		"PricingCategory=Standard", "PricingCurrency=USD", "PricingCurrencyContractedUnitPrice=2.5", "PricingCurrencyEffectiveCost=10",
		"PricingCurrencyListUnitPrice=3", "PricingQuantity=4", "PricingUnit=Hours", "ProviderName=Example", "PublisherName=Example", "RegionId=r", "RegionName=Region",
		"ResourceId=i-1", "ResourceName=one", "ResourceType=Machine", "ServiceCategory=Compute", "ServiceName=Machines", "ServiceSubcategory=Virtual Machines",
		"SkuId=s", "SkuMeter=m", "SkuPriceDetails={\"x_A\":\"b\"}", "SkuPriceId=s-1", "SubAccountId=sub", "SubAccountName=Sub", "SubAccountType=project",
		"Tags={\"a\":\"b\"}",
	}, changes...) {
		name, value, _ := strings.Cut(pair, "=")
		row[name] = value
	}
	return row
}

// modelBases are rows from which rows that break a rule are made.
func modelBases() []map[string]string {
	return []map[string]string{
		fitting(),
		fitting("CommitmentDiscountId=c", "CommitmentDiscountCategory=Usage", "CommitmentDiscountStatus=Used", "CommitmentDiscountType=Plan",
			"CommitmentDiscountName=n", "CommitmentDiscountQuantity=4", "CommitmentDiscountUnit=Hours", "PricingCategory=Committed"),
		fitting("CapacityReservationId=cr", "CapacityReservationStatus=Used"),
		fitting("ChargeCategory=Tax", "ChargeFrequency=Recurring", "ConsumedQuantity=", "ConsumedUnit=", "PricingQuantity=", "PricingUnit=", "PricingCategory=",
			"ListUnitPrice=", "ContractedUnitPrice=", "PricingCurrencyContractedUnitPrice=", "PricingCurrencyListUnitPrice=", "SkuId=", "SkuMeter=",
			"SkuPriceId=", "SkuPriceDetails=", "ResourceId=", "ResourceName=", "ResourceType=", "ListCost=10", "ServiceCategory=Other", "ServiceSubcategory=Other (Other)"),
		fitting("ChargeCategory=Purchase", "ChargeFrequency=One-Time", "ConsumedQuantity=", "ConsumedUnit="),
		fitting("ChargeClass=Correction"),
	}
}

// reports returns the columns of which Validate reports something in a file of one row.
func reports(t *testing.T, row map[string]string) map[string]bool {
	t.Helper()
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	names := slices.Sorted(maps.Keys(row))
	var cells []string
	for _, name := range names {
		cells = append(cells, row[name])
	}
	if err := w.WriteAll([][]string{names, cells}); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	v, err := focus.Validate(context.Background(), &b, "f.csv", focus.Options{FocusVersion: "1.2"}, nil)
	switch {
	case errors.Is(err, focus.ErrColumns): // without these columns a file is no bill
		found["BilledCost"], found["ChargeCategory"] = true, true
	case err != nil:
		t.Fatalf("%v: %v", row, err)
	}
	for rule := range v.ByRule {
		column, _, _ := strings.Cut(rule, "-")
		found[column] = true
		found[rule] = true
	}
	return found
}

// breaking returns rows that break a rule, and as few others of its column as possible.
func (m model) breaking(id string, leaves []string, parents map[string][]string) (rows []map[string]string) {
	r := m[id]
	values := m.columnsOf(id)
	for _, p := range parents[id] {
		m.columns(&m[p].Criteria.Condition, values)
	}
	names := slices.Sorted(maps.Keys(values))
	fewest := 1 << 30
	for _, base := range modelBases() {
		var try func(i int, row map[string]string)
		tries := 0
		try = func(i int, row map[string]string) {
			if tries++; tries > 4000 {
				return
			}
			if i == len(names) {
				if !m.violated(id, row, parents) {
					return
				}
				others := 0
				for _, o := range leaves {
					if o != id && m[o].Reference == r.Reference && m.violated(o, row, parents) {
						others++
					}
				}
				if others < fewest {
					fewest, rows = others, nil
				}
				if others == fewest && len(rows) < 8 {
					rows = append(rows, maps.Clone(row))
				}
				return
			}
			was, there := row[names[i]]
			choices := append([]string{was, "", "x!", "-1", "7", "1+1"}, values[names[i]]...)
			for _, v := range choices {
				row[names[i]] = v
				try(i+1, row)
			}
			if delete(row, names[i]); r.Function == "Presence" {
				try(i+1, row)
			}
			if there {
				row[names[i]] = was
			} else {
				delete(row, names[i])
			}
		}
		try(0, maps.Clone(base))
	}
	return rows
}

// Of the 621 rules of the model, how many does the table decide? docs/reference/focus.md says so.
func TestRulesOfTheModel(t *testing.T) {
	dir := os.Getenv("QUARTERMASTER_DATA")
	if dir == "" {
		t.Skip("QUARTERMASTER_DATA is not set")
	}
	text, err := os.ReadFile(filepath.Join(dir, "focus", "validator-rules", "model-1.2.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ ModelRules model }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	m := file.ModelRules
	for i, base := range modelBases() {
		if found := reports(t, base); len(found) > 0 {
			t.Fatalf("base %d is not without violations: %v", i, found)
		}
	}
	var leaves []string
	for _, id := range slices.Sorted(maps.Keys(m)) {
		if r := m[id]; r.Type == "Static" && r.Function != "Composite" {
			leaves = append(leaves, id)
		}
	}
	const (
		decided   = "decided"
		free      = "every text satisfies it"
		advice    = "recommendation or permission, not decided"
		provider  = "depends on what the provider supports"
		defect    = "the model's check is not what its text says"
		undecided = "not decided"
	)
	// Rules of which the table decides the text, while the model's check says something else: why, and a
	// change to a commitment's row of usage that breaks the text, with the rule that reports it.
	defects := map[string][3]string{
		"CommitmentDiscountCategory-C-005-M":   {"it refuses null", "CommitmentDiscountCategory=x", "CommitmentDiscountCategory-allowed"},
		"CommitmentDiscountStatus-C-003-C":     {"inverted", "CommitmentDiscountId=", "CommitmentDiscountStatus-null-with-CommitmentDiscountId"},
		"CommitmentDiscountStatus-C-004-C":     {"inverted condition", "CommitmentDiscountStatus=", "CommitmentDiscountStatus-given-for-usage"},
		"CommitmentDiscountStatus-C-005-M":     {"values of another column", "CommitmentDiscountStatus=Active", "CommitmentDiscountStatus-allowed"},
		"ConsumedQuantity-C-006-C":             {"inverted condition", "ConsumedQuantity=", "ConsumedQuantity-given-for-usage"},
		"PricingCurrencyEffectiveCost-C-004-M": {"another column", "PricingCurrencyEffectiveCost=x", "PricingCurrencyEffectiveCost-type"},
		"PricingQuantity-C-008-M":              {"it checks null", "PricingQuantity=x", "PricingQuantity-type"},
		"ResourceType-C-005-C":                 {"no column in its condition", "ResourceType=", "ResourceType-given-with-ResourceId"},
		"SubAccountType-C-004-C":               {"or instead of and", "SubAccountId=", "SubAccountType-null-with-SubAccountId"},
		"SubAccountType-C-005-C":               {"or instead of and", "SubAccountType=", "SubAccountType-given-with-SubAccountId"},
	}
	for id, d := range defects {
		row := modelBases()[1]
		name, value, _ := strings.Cut(d[1], "=")
		row[name] = value
		if !reports(t, row)[d[2]] {
			t.Errorf("%s: %s is not reported as %s", id, d[1], d[2])
		}
	}
	// Rules that the table does not decide.
	open := map[string]string{
		"BilledCost-C-005-C":         "who receives the payment is in no column; the model takes every issuer that is not the provider for one",
		"BillingAccountName-C-003-C": "what the provider supports is in no column",
		"EffectiveCost-C-005-C":      "what a purchase is meant for is in no column",
		"InvoiceId-C-004-C":          "whether a charge has an invoice is in no other column",
		"InvoiceId-C-005-C":          "whether a charge has an invoice is in no other column",
		"ServiceName-C-005-C":        "it is about several rows",
		"SkuPriceId-C-008-M":         "it is about several rows",
	}
	parents := m.parents()
	state := map[string]string{}
	for _, id := range leaves {
		r := m[id]
		must := r.Criteria.Keyword == "MUST" || r.Criteria.Keyword == "MUST NOT"
		rows := m.breaking(id, leaves, parents)
		found := 0
		var missed map[string]string // the columns of the first row in which it is missed
		for _, row := range rows {
			said := reports(t, row)
			if slices.ContainsFunc(append(slices.Collect(maps.Keys(m.columnsOf(id))), r.Reference), func(c string) bool { return said[c] }) {
				found++
			} else if missed == nil {
				missed = map[string]string{}
				for c := range m.columnsOf(id) {
					missed[c] = row[c]
				}
			}
		}
		function := r.Criteria.Requirement.Function
		switch {
		case defects[id][0] != "":
			state[id] = defect
		case function == "TypeString" || function == "FormatString":
			state[id] = free
		case len(rows) > 0 && found == len(rows):
			state[id] = decided
		case !must:
			state[id] = advice
		case r.Function == "Presence" && len(r.Applicability) > 0:
			state[id] = provider
		default:
			state[id] = undecided
			if open[id] == "" {
				t.Errorf("not decided: %s: %s (%d of %d rows; %s %v) %v", id, r.Criteria.MustSatisfy, found, len(rows), function, r.Applicability, missed)
			}
		}
	}
	// A composite is decided if none of its parts is left.
	var whole func(id string, seen map[string]bool) bool
	whole = func(id string, seen map[string]bool) bool {
		if s, leaf := state[id]; leaf {
			return s != undecided && s != provider
		}
		if m[id] == nil || m[id].Function != "Composite" || seen[id] {
			return m[id] == nil || m[id].Type == "Dynamic" || seen[id]
		}
		seen[id] = true
		var parts func(c *modelCheck) bool
		parts = func(c *modelCheck) bool {
			return (c.Rule == "" || whole(c.Rule, seen)) && !slices.ContainsFunc(c.Items, func(i modelCheck) bool { return !parts(&i) })
		}
		return parts(&m[id].Criteria.Requirement)
	}
	counts := map[string]int{"rules": len(m), "leaves": len(leaves)}
	for _, s := range state {
		counts[s]++
	}
	for id, r := range m {
		switch {
		case r.Type == "Dynamic":
			counts["without a check"]++
		case r.Function == "Composite":
			counts["composites"]++
			if whole(id, map[string]bool{}) {
				counts["whole composites"]++
			}
		}
	}
	// docs/reference/focus.md has these numbers: see TestReference.
	want := map[string]int{
		"rules": 621, "without a check": 201, "composites": 143, "whole composites": 128, "leaves": 277,
		decided: 137, free: 69, defect: 10, advice: 22, provider: 32, undecided: 7,
	}
	if !maps.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
}
