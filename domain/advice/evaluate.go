package advice

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// Platform is the workspace that answers for what belongs to no other.
const Platform = "platform"

// PerMonth is what GPU time of a window costs in [domain.MonthHours] at a price of a GPU-hour:
// price × ms ÷ 3,600,000 × 730 h ÷ window, to 18 decimals; 0 for an empty window.
func PerMonth(price decimal.Decimal, ms int64, window domain.Interval) decimal.Decimal {
	if window.Empty() {
		return decimal.Decimal{}
	}
	return price.Mul(decimal.NewFromInt(ms)).Mul(decimal.NewFromInt(domain.MonthHours*int64(domain.Hour)/3600000)).
		DivRound(decimal.NewFromInt(int64(window.Length())), 18)
}

// evaluation judges figures.
type evaluation struct {
	f          *Figures
	thresholds *Thresholds
	rules      map[RuleID]Rule
	clusters   map[string]*Cluster
	prices     map[[2]string]domain.Money
	found      []Finding
}

// Evaluate judges figures: it returns every finding that is firing, holding or unknown, by rule and subject. What it
// does not return is clear.
func Evaluate(f *Figures, t *Thresholds) []Finding {
	e := &evaluation{
		f: f, thresholds: t, rules: map[RuleID]Rule{}, clusters: map[string]*Cluster{}, prices: map[[2]string]domain.Money{},
	}
	for _, r := range Rules() {
		e.rules[r.ID] = r
	}
	for i := range f.Clusters {
		e.clusters[f.Clusters[i].ID] = &f.Clusters[i]
	}
	for _, p := range f.Prices {
		e.prices[[2]string{p.Cluster, p.GPUModel}] = p.PerGPUHour
	}
	e.utilization(UtilizationDay)
	e.utilization(UtilizationWeek)
	e.providerCosts()
	e.tiers()
	e.routing()
	e.sightings()
	e.saturation()
	e.oversized()
	e.owning()
	e.commitments()
	e.limits()
	e.failures()
	e.spot()
	e.courses()
	e.weeks()
	e.gaps()
	sortFindings(e.found)
	return e.found
}

// judge judges a figure and keeps the finding unless it is clear. It returns its status.
func (e *evaluation) judge(m measure) Status {
	r := e.rules[m.rule]
	m.workspace = cmp.Or(m.workspace, e.owner(m.subject.Cluster))
	t := e.thresholds.Of(&r, m.workspace, &m.subject)
	if t.Off {
		return Clear
	}
	f := judge(&r, &t, &m)
	if f.Status != Clear {
		e.found = append(e.found, f)
	}
	return f.Status
}

// threshold is what a rule uses for a subject.
func (e *evaluation) threshold(id RuleID, workspace string, s Subject) decimal.Decimal {
	r := e.rules[id]
	return e.thresholds.Of(&r, cmp.Or(workspace, e.owner(s.Cluster)), &s).Value
}

// owner is the workspace that answers for a cluster.
func (e *evaluation) owner(cluster string) string {
	if c := e.clusters[cluster]; c != nil && c.Workspace != "" {
		return c.Workspace
	}
	return Platform
}

// place completes a subject by what is known of its cluster.
func (e *evaluation) place(s Subject) Subject {
	if c := e.clusters[s.Cluster]; c != nil {
		s.Provider, s.Region = cmp.Or(s.Provider, c.Provider), cmp.Or(s.Region, c.Region)
	}
	return s
}

// share returns a ÷ b to 18 decimals, 0 for nothing.
func share(a, b int64) decimal.Decimal {
	if b == 0 {
		return decimal.Decimal{}
	}
	return decimal.NewFromInt(a).DivRound(decimal.NewFromInt(b), 18)
}

// covered is a share of telemetry.
func covered(known, all int64) decimal.NullDecimal {
	return decimal.NullDecimal{Decimal: share(min(known, all), all), Valid: all > 0}
}

// perMonth prices GPU time of a window as a month of 730 hours has of it: amounts of one currency, or none.
func (e *evaluation) perMonth(sum *domain.Money, cluster, model string, ms int64, window domain.Interval) {
	price, ok := e.prices[[2]string{cluster, model}]
	if !ok || window.Empty() || ms <= 0 || sum.Currency == mixed || sum.Currency != "" && sum.Currency != price.Currency {
		if ok && sum.Currency != "" && sum.Currency != price.Currency {
			sum.Currency = mixed
		}
		return
	}
	sum.Currency = price.Currency
	sum.Amount = sum.Amount.Add(PerMonth(price.Amount, ms, window))
}

// mixed marks a sum of several currencies, which is none.
const mixed = "*"

// priced returns a sum of [evaluation.perMonth], nil if nothing priced it.
func priced(sum domain.Money) *domain.Money {
	if sum.Currency == "" || sum.Currency == mixed {
		return nil
	}
	return &sum
}

// times multiplies a sum, to 18 decimals.
func times(m domain.Money, by decimal.Decimal) domain.Money {
	m.Amount = m.Amount.Mul(by).Round(18)
	return m
}

// percent shows a share with one decimal.
func percent(d decimal.Decimal) string { return d.Mul(decimal.NewFromInt(100)).StringFixed(1) + "%" }

// named returns at most [MostNames] of some names, sorted.
func named(all []string) []string {
	all = slices.Clone(all)
	slices.Sort(all)
	return all[:min(len(all), MostNames)]
}

// Many says how many of something there are: "1 cluster", "2 clusters".
func Many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
