package focus

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// Contract is a row of Contract Commitment: what a supplier says of a commitment.
type Contract struct {
	Line         int
	ID           string // ContractCommitmentId
	ContractID   string
	Issuer       string // InvoiceIssuerName
	Provider     string // ServiceProviderName
	Category     string // Spend, Usage
	Lifecycle    string // ContractCommitmentLifecycleStatus
	PaymentModel string // No Upfront, Partial Upfront, All Upfront
	Currency     string
	Cost         domain.NullDecimal
	Term         domain.Interval // ContractCommitmentPeriodStart to End
}

// contractColumn is a column of Contract Commitment.
type contractColumn struct {
	name    string
	since   int
	kind    byte // s text, $ decimal, @ time, { JSON
	null    bool // may be null
	allowed []string
}

// contractColumns are the columns of Contract Commitment in the order of FOCUS 1.4. All are mandatory
// except the last three.
// Source: FinOps Open Cost and Usage Specification 1.4, Contract Commitment.
var contractColumns = []contractColumn{
	{"BillingCurrency", 13, 's', true, nil},
	{"ContractCommitmentApplicability", 14, '{', false, nil},
	{"ContractCommitmentBenefitCategory", 14, 's', false, []string{"Discount", "Entitlement", "Availability", "Other"}},
	{"ContractCommitmentCategory", 13, 's', false, []string{"Spend", "Usage"}},
	{"ContractCommitmentCost", 13, '$', true, nil},
	{"ContractCommitmentCreated", 14, '@', false, nil},
	{"ContractCommitmentDescription", 13, 's', true, nil},
	{"ContractCommitmentDiscountPercentage", 14, '$', true, nil},
	{"ContractCommitmentDurationType", 14, 's', false, nil},
	{"ContractCommitmentFulfillmentInterval", 14, 's', false, []string{
		"Hourly", "Daily", "Weekly", "Monthly", "Quarterly", "Semi-Annual", "Annual", "Full Period", "Transactional", "Custom",
	}},
	{"ContractCommitmentId", 13, 's', false, nil},
	{"ContractCommitmentLastUpdated", 14, '@', false, nil},
	{"ContractCommitmentLifecycleStatus", 14, 's', false, []string{"Proposed", "Pending", "Active", "Exhausted", "Expired", "Canceled", "Superseded"}},
	{"ContractCommitmentModel", 14, 's', false, []string{"Continuous", "Discontinuous"}},
	{"ContractCommitmentOfferCategory", 14, 's', false, []string{"Negotiated", "Public"}},
	{"ContractCommitmentPaymentInterval", 14, 's', false, []string{"One-Time", "Monthly", "Quarterly", "Semi-Annual", "Annual", "Custom"}},
	{"ContractCommitmentPaymentModel", 14, 's', false, []string{"No Upfront", "Partial Upfront", "All Upfront"}},
	{"ContractCommitmentPeriodEnd", 13, '@', false, nil},
	{"ContractCommitmentPeriodStart", 13, '@', false, nil},
	{"ContractCommitmentQuantity", 13, '$', true, nil},
	{"ContractCommitmentType", 13, 's', false, nil},
	{"ContractCommitmentUnit", 13, 's', true, nil},
	{"ContractId", 13, 's', false, nil},
	{"ContractPeriodEnd", 13, '@', false, nil},
	{"ContractPeriodStart", 13, '@', false, nil},
	{"InvoiceIssuerName", 14, 's', false, nil},
	{"ServiceProviderName", 14, 's', false, nil},
	{"ContractCommitmentPaymentUpfrontPercentage", 14, '$', false, nil},
	{"PricingCurrency", 14, 's', false, nil},
	{"PricingCurrencyContractCommitmentCost", 14, '$', true, nil},
}

// conditional is how many columns at the end of contractColumns a file may lack.
const conditional = 3

// maxContracts bounds the rows of Contract Commitment, which are held until the end of the file.
const maxContracts = 1 << 16

// contracts reads Contract Commitment. It emits nothing: a commitment is a decision that someone signs.
type contracts struct {
	sheet
	seen map[string]int // line of each commitment
}

func (r *run) openContracts(header []string, has func(string) bool) (dataset, error) {
	version := 13
	for _, c := range contractColumns {
		if has(c.name) {
			version = max(version, c.since)
		}
	}
	for i, name := range versions {
		if name == r.opts.FocusVersion {
			version = preview + i
		}
	}
	if version < 13 {
		return nil, fmt.Errorf("this is Contract Commitment, which FOCUS %s does not have: it came with 1.3", versionName(version))
	}
	r.sum.FocusVersion = versionName(version)
	var wanted, known []string
	for i, c := range contractColumns {
		known = append(known, c.name)
		if c.since <= version && i < len(contractColumns)-conditional {
			wanted = append(wanted, c.name)
		}
	}
	needed := []string{"ContractCommitmentCategory", "ContractCommitmentId", "ContractCommitmentPeriodEnd", "ContractCommitmentPeriodStart", "ContractId"}
	s, err := r.openSheet(header, has, ContractCommitments, needed, wanted, known)
	if err != nil {
		return nil, err
	}
	return &contracts{sheet: s, seen: map[string]int{}}, nil
}

func (c *contracts) row(rec tabular.Row) error {
	c.take(rec.Fields)
	times, numbers := map[string]domain.Instant{}, map[string]domain.NullDecimal{}
	for i := range contractColumns {
		col := &contractColumns[i]
		at, there := c.index[fold(col.name)]
		if !there {
			continue
		}
		v := c.cells[at]
		wrong := func(reason string) error { return &refusal{field: col.name, value: v, reason: reason} }
		if v == "" {
			if !col.null {
				return wrong("is null")
			}
			continue
		}
		switch col.kind {
		case '@':
			t, reason := c.clock.parse(v)
			if reason != "" {
				return wrong(reason)
			}
			times[col.name] = t
		case '$':
			n, reason := parseDecimal(v)
			if reason != "" {
				return wrong(reason)
			}
			numbers[col.name] = domain.NullDecimal{Decimal: n.kept, Valid: true}
		case '{':
			var object map[string]any
			if json.Unmarshal([]byte(v), &object) != nil {
				return wrong("is no object of JSON")
			}
		}
		if col.allowed != nil && !slices.Contains(col.allowed, v) {
			return wrong("is not one of " + strings.Join(col.allowed, ", "))
		}
	}
	for _, of := range []string{"ContractCommitmentPeriod", "ContractPeriod"} {
		from, begun := times[of+"Start"]
		to, ended := times[of+"End"]
		if begun && ended && to <= from {
			return &refusal{field: of + "End", value: c.value(of + "End"), reason: "is not after " + of + "Start"}
		}
	}
	id := strings.Clone(c.value("ContractCommitmentId"))
	if first, twice := c.seen[id]; twice {
		return &refusal{field: "ContractCommitmentId", value: id, reason: fmt.Sprintf("is also the commitment of line %d", first)}
	}
	c.seen[id] = c.line
	if len(c.sum.Contracts) == maxContracts {
		return fmt.Errorf("%w: more than %d commitments", tabular.ErrTooLarge, maxContracts)
	}
	text := func(column string) string { return strings.Clone(c.value(column)) }
	c.sum.Contracts = append(c.sum.Contracts, Contract{
		Line: c.line, ID: id, ContractID: text("ContractId"), Issuer: text("InvoiceIssuerName"), Provider: text("ServiceProviderName"),
		Category: text("ContractCommitmentCategory"), Lifecycle: text("ContractCommitmentLifecycleStatus"),
		PaymentModel: text("ContractCommitmentPaymentModel"), Currency: text("BillingCurrency"), Cost: numbers["ContractCommitmentCost"],
		Term: domain.Interval{From: times["ContractCommitmentPeriodStart"], To: times["ContractCommitmentPeriodEnd"]},
	})
	return nil
}

func (c *contracts) end() error { return nil }
