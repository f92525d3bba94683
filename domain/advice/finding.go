package advice

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// Status is what a rule says of a figure.
type Status string

// The statuses.
const (
	Firing  Status = "firing"  // beyond the threshold
	Holding Status = "holding" // within it, but not beyond the margin that closes an incident
	Unknown Status = "unknown" // too little is known
	Clear   Status = "clear"
)

// Question is how to get the figure of a finding: the words of a command, and the path and query of the API.
type Question struct {
	Command string `json:"command"` // without the program's name
	API     string `json:"api"`
}

// Finding is a figure that a rule judged.
type Finding struct {
	ID        string              `json:"finding"` // digest of rule, version, subject and window
	Rule      RuleID              `json:"rule"`
	Version   uint32              `json:"version"`
	Subject   Subject             `json:"subject"`
	Workspace string              `json:"workspace"` // that answers for the subject
	Status    Status              `json:"status"`
	Severity  domain.Severity     `json:"severity"`
	Unit      Unit                `json:"unit"`
	Value     decimal.Decimal     `json:"value"` // to 6 decimals
	Threshold decimal.Decimal     `json:"threshold"`
	SetBy     string              `json:"threshold_set_by"` // "default", or workspace/policy
	Window    domain.Interval     `json:"window"`
	Coverage  decimal.NullDecimal `json:"coverage"` // of telemetry; null: the figure needs none
	// PerMonth is what a month (730 hours) of leaving it costs in the effective ledger; null: no bill prices it.
	PerMonth *domain.Money `json:"per_month"`
	Summary  string        `json:"summary"`
	Question Question      `json:"question"`
	// Names are the parts that the figure is about, such as interrupted nodes: at most [MostNames], of Parts.
	Names []string `json:"names,omitempty"`
	Parts int      `json:"parts,omitempty"`
}

// MostNames bounds the names that a finding or incident lists.
const MostNames = 20

// Measure is a figure before it is judged.
type measure struct {
	rule      RuleID
	subject   Subject
	workspace string
	value     decimal.Decimal
	known     bool
	coverage  decimal.NullDecimal
	perMonth  *domain.Money
	window    domain.Interval
	summary   string
	question  Question
	severity  domain.Severity     // "": the rule's
	least     decimal.NullDecimal // another threshold that follows from the rule's, such as its part of a common chance
	names     []string
	parts     int
}

// judge says what a rule says of a figure.
func judge(r *Rule, t *Threshold, m *measure) Finding {
	f := Finding{
		Rule: r.ID, Version: r.Version, Subject: m.subject, Workspace: m.workspace, Severity: cmp.Or(m.severity, r.Severity), Unit: r.Unit,
		Value: m.value.Round(6), Threshold: t.Value, SetBy: t.SetBy, Window: m.window, Coverage: m.coverage, PerMonth: m.perMonth,
		Summary: m.summary, Question: m.question, Names: m.names, Parts: m.parts,
	}
	f.ID = f.digest()
	limit := t.Value
	if m.least.Valid {
		limit, f.Threshold = m.least.Decimal, m.least.Decimal
	}
	margin := limit.Mul(r.Margin)
	beyond := func(limit decimal.Decimal) bool {
		switch r.Side {
		case Below:
			return m.value.LessThan(limit)
		case Least:
			return m.value.GreaterThanOrEqual(limit)
		}
		return m.value.GreaterThan(limit)
	}
	back := limit.Add(margin) // beyond which an incident closes
	if r.Side != Below {
		back = limit.Sub(margin)
	}
	switch {
	case !m.known, m.coverage.Valid && m.coverage.Decimal.LessThan(t.Coverage):
		f.Status, f.PerMonth = Unknown, nil
	case beyond(limit):
		f.Status = Firing
	case beyond(back):
		f.Status = Holding
	default:
		f.Status = Clear
	}
	if f.Status != Firing {
		f.PerMonth = nil
	}
	return f
}

func (f *Finding) digest() string {
	h := sha256.New()
	for _, s := range []string{string(f.Rule), decimal.NewFromInt(int64(f.Version)).String(), f.Subject.String(), f.Window.From.String(), f.Window.To.String()} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return "f-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// sortFindings orders findings by rule as [Rules] does, then subject.
func sortFindings(all []Finding) {
	order := map[RuleID]int{}
	for i, r := range Rules() {
		order[r.ID] = i
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(order[a.Rule], order[b.Rule]), a.Subject.Compare(b.Subject), strings.Compare(a.ID, b.ID))
	})
}
