package advice

import (
	"fmt"
	"math/big"

	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// commitments judges what is not used of commitments, when they end, and when notice is due. What an unused one costs is
// its unused part; what is about to end costs nothing yet.
func (e *evaluation) commitments() {
	for i := range e.f.Commitments {
		c := &e.f.Commitments[i]
		s := Subject{Workspace: c.Workspace, Name: c.Commitment}
		if all := c.Used.Amount.Add(c.Unused.Amount); !c.Window.Empty() && all.IsPositive() {
			value := c.Unused.Amount.DivRound(all, 18)
			e.judge(measure{
				rule: UnusedCommitment, workspace: c.Workspace, subject: s, value: value, known: true, window: c.Window,
				perMonth: &domain.Money{
					Amount: c.Unused.Amount.Mul(decimal.NewFromInt(domain.MonthHours)).Mul(decimal.NewFromInt(int64(domain.Hour))).
						DivRound(decimal.NewFromInt(int64(c.Window.Length())), 18),
					Currency: c.Unused.Currency,
				},
				summary:  fmt.Sprintf("%s of commitment %s is not used", percent(value), c.Commitment),
				question: Ask("costs commitments", "period", month(c.Window)),
			})
		}
		e.due(CommitmentEnds, c, c.Ends, "ends")
		e.due(NoticeDue, c, c.NoticeBy, "needs notice")
	}
}

// due judges the days until a date: within 30 it is a warning, and within 7 critical.
func (e *evaluation) due(rule RuleID, c *Commitment, at domain.Instant, what string) {
	if at <= e.f.At {
		return
	}
	left := decimal.NewFromInt(int64(at-e.f.At)).DivRound(decimal.NewFromInt(int64(domain.Day)), 6)
	severity := domain.SeverityInfo
	if left.LessThanOrEqual(decimal.NewFromInt(7)) {
		severity = domain.SeverityCritical
	} else if left.LessThanOrEqual(decimal.NewFromInt(30)) {
		severity = domain.SeverityWarning
	}
	e.judge(measure{
		rule: rule, workspace: c.Workspace, subject: Subject{Workspace: c.Workspace, Name: c.Commitment}, value: left, known: true, severity: severity,
		window:   domain.Interval{From: e.f.At, To: at},
		summary:  fmt.Sprintf("commitment %s %s by %s", c.Commitment, what, at.Time().Format("2006-01-02")),
		question: AskFor("get", "kind", "commitments"),
	})
}

// limits judges quotas and budgets, actual and forecast. Use of a limit of 0 counts as ten times the limit.
func (e *evaluation) limits() {
	hundred := decimal.NewFromInt(100)
	of := func(used, limit decimal.Decimal) decimal.Decimal {
		switch {
		case limit.IsPositive():
			return used.Mul(hundred).DivRound(limit, 18)
		case used.IsPositive():
			return decimal.NewFromInt(1000)
		}
		return decimal.Decimal{}
	}
	for i := range e.f.Limits {
		l := &e.f.Limits[i]
		s := Subject{Workspace: l.Workspace, Name: l.Name, Region: l.Region, GPUModel: l.GPUModel}
		ask := AskFor("get", "kind", "quotas")
		if l.Rule == Budget {
			ask = Ask("costs budget", "period", month(domain.Interval{From: l.Window.To - domain.Second}))
		}
		value, what := of(l.Used, l.Limit), "is used"
		if l.Forecast.Valid {
			if later := of(l.Forecast.Decimal, l.Limit); value.LessThan(hundred) && later.GreaterThanOrEqual(hundred) {
				value, what = later, "will be used at the end of its period"
			}
		}
		severity := domain.SeverityInfo
		switch over := value.GreaterThanOrEqual(hundred); {
		case over && l.Hard && what == "is used":
			severity = domain.SeverityCritical
		case over || l.Hard:
			severity = domain.SeverityWarning
		}
		kind := "soft"
		if l.Hard {
			kind = "hard"
		}
		e.judge(measure{
			rule: l.Rule, workspace: l.Workspace, subject: s, value: value, known: true, severity: severity, window: l.Window, question: ask,
			summary: fmt.Sprintf("%s%% of %s %s %s (%s %s) of workspace %s %s", value.StringFixed(1), kind, l.Rule, l.Name,
				l.Limit.StringFixed(0), l.Unit, l.Workspace, what),
		})
	}
}

// failures judges interruptions of nodes, GPU models, clusters and providers against what the rate known before allows. The
// subjects of one level share the rule's chance.
func (e *evaluation) failures() {
	levels := map[string]int{}
	for i := range e.f.Failed {
		levels[e.f.Failed[i].Level]++
	}
	for i := range e.f.Failed {
		x := &e.f.Failed[i]
		if x.Interruptions == 0 {
			continue
		}
		names := make([]string, len(x.Of))
		for k, s := range x.Of {
			names[k] = s.Cluster + "/" + s.Node
		}
		s := e.place(x.Subject)
		e.judge(measure{
			rule: Failures, subject: s, known: x.GPUHours.IsPositive(), window: x.Window, names: named(names), parts: len(names),
			value: tail(x.Interruptions, x.PriorShape, x.PriorPerGPUHour.Mul(x.GPUHours)), least: e.part(Failures, "", s, levels[x.Level]),
			summary: fmt.Sprintf("%s of %s in %s GPU-hours, where %s were to be expected", Many(int(x.Interruptions), "interruption"),
				s, x.GPUHours.StringFixed(0), x.PriorPerGPUHour.Mul(x.GPUHours).StringFixed(2)),
			question: Ask("fleet", "cluster", s.Cluster, "region", s.Region, "at", x.Window.To.String()),
		})
	}
}

// spot judges interruptions of spot machines against the rate that the plan for that time assumed.
func (e *evaluation) spot() {
	for i := range e.f.Spot {
		x := &e.f.Spot[i]
		if x.Interrupted == 0 {
			continue
		}
		s := Subject{Provider: x.Provider, Region: x.Region, GPUModel: x.GPUModel}
		mean := x.AssumedPerHour.Mul(x.UnitHours)
		e.judge(measure{
			rule: SpotLosses, subject: s, known: x.UnitHours.IsPositive(), window: x.Window, value: tail(x.Interrupted, knownRate, mean),
			least: e.part(SpotLosses, "", s, len(e.f.Spot)),
			summary: fmt.Sprintf("%s took back %s of model %s on spot in region %s, where plan %s assumed %s", x.Provider,
				Many(int(x.Interrupted), "machine"), x.GPUModel, x.Region, x.Plan, mean.StringFixed(2)),
			question: AskFor("plan show", "plan", x.Plan),
		})
	}
}

// knownRate is a shape of the posterior at which the rate is as good as known.
const knownRate = 1_000_000

// tail is the chance of at least n interruptions, to 12 decimals; 1 for a count that is not above its mean. Their rate has a Gamma posterior of a shape, and mean is
// what it expects: the count is negative binomial (Gelman et al.: Bayesian Data Analysis, section 2.6).
func tail(n, shape int64, mean decimal.Decimal) decimal.Decimal {
	if !mean.IsPositive() {
		return decimal.Decimal{}
	}
	if decimal.NewFromInt(n).LessThanOrEqual(mean) {
		return decimal.NewFromInt(1) // no finding, whatever it is exactly
	}
	r := new(big.Float).SetPrec(precision).SetInt64(max(shape, 1))
	m := bigFloat(mean)
	sum := new(big.Float).SetPrec(precision).Add(r, m)
	p, q := new(big.Float).SetPrec(precision).Quo(r, sum), new(big.Float).SetPrec(precision).Quo(m, sum)
	term := power(p, max(shape, 1))
	below := new(big.Float).SetPrec(precision)
	rest := new(big.Float).SetPrec(precision)
	one := new(big.Float).SetPrec(precision).SetInt64(1)
	for k := range n {
		below.Add(below, term)
		if k%256 == 255 && rest.Sub(one, below).Cmp(nothing) < 0 && decimal.NewFromInt(k).GreaterThan(mean) {
			return decimal.Decimal{}
		}
		term.Mul(term, q)
		term.Mul(term, rest.SetInt64(k+max(shape, 1)))
		term.Quo(term, rest.SetInt64(k+1))
	}
	return rounded(rest.Sub(one, below))
}

// nothing is a chance that is shown as 0.
var nothing = big.NewFloat(1e-15)

// power returns x to a whole power.
func power(x *big.Float, n int64) *big.Float {
	result, square := new(big.Float).SetPrec(precision).SetInt64(1), new(big.Float).SetPrec(precision).Set(x)
	for ; n > 0; n /= 2 {
		if n%2 == 1 {
			result.Mul(result, square)
		}
		square.Mul(square, square)
	}
	return result
}

// gaps passes on what is not known.
func (e *evaluation) gaps() {
	for i := range e.f.Gaps {
		g := &e.f.Gaps[i]
		s := e.place(g.Subject)
		s.Component = g.Kind
		e.judge(measure{
			rule: Evidence, workspace: g.Subject.Workspace, subject: s, value: decimal.NewFromInt(max(g.Count, 1)), known: true, window: g.Window,
			summary: g.Kind + ": " + g.Detail, question: g.Question,
		})
	}
}
