package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/recommend"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"

	"github.com/shopspring/decimal"
)

// OutcomeAfter is how long after it was carried out a recommendation is measured: over that time, and the same time before
// it was proposed. A bill that is not there yet is waited for, up to [OutcomeLatest].
const (
	OutcomeAfter  = 30 * domain.Day
	OutcomeLatest = 60 * domain.Day
)

// MeasureOutcomes records what came of the recommendations that were carried out long enough ago. It may be called at any
// time and by several at once: each outcome has a stream of its own with one event, so the log counts it once.
func (c *Caller) MeasureOutcomes(ctx context.Context, now domain.Instant) (outcome string, err error) {
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return "", err
	}
	var due []registry.Proposal
	var errs []error // of one recommendation; the others do not wait for it
	found := map[string]*domain.OutcomeRecorded{}
	if err := h.View(ctx, func(v projections.View) error {
		all, err := registry.Proposals(v, now)
		if err != nil {
			return err
		}
		for i := range all {
			p := &all[i]
			if p.Stage != registry.StageActuated || now < lastDone(p)+OutcomeAfter {
				continue
			}
			ev, err := c.measure(ctx, v, p, now)
			if err != nil {
				errs = append(errs, fmt.Errorf("measure %s: %w", p.Recommendation, err))
				continue
			}
			if ev != nil {
				due, found[p.Recommendation] = append(due, *p), ev
			}
		}
		return nil
	}); err != nil {
		return "", err
	}
	for i := range due {
		p := &due[i]
		env := &domain.Envelope{Time: lastDone(p) + OutcomeAfter, Subject: p.Recommendation, Workspace: p.Workspace, Event: found[p.Recommendation]}
		// What is proposed and carried out again is measured again.
		source := fmt.Sprintf("quartermaster/outcome/%s/%d", p.Recommendation, lastDone(p))
		err := domain.Validate(env)
		if err == nil {
			err = h.StreamOf(source, 1).Append(ctx, env)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("append the outcome of %s to the log: %w", p.Recommendation, err))
		}
	}
	if len(due) > 0 {
		outcome = fmt.Sprintf("%d outcomes", len(due))
		errs = append(errs, h.CatchUp(ctx))
	}
	return outcome, errors.Join(errs...)
}

// lastDone returns when a recommendation was carried out.
func lastDone(p *registry.Proposal) (at domain.Instant) {
	for _, a := range p.Actuations {
		at = max(at, a.Time)
	}
	return at
}

// measured is the document of an outcome.
type measured struct {
	Realised *recommend.Realised `json:"realised,omitempty"`
	Subject  advice.Subject      `json:"subject"`
	Again    bool                `json:"recommended_again"` // the same is recommended at the end of the window
}

// measure returns what came of a recommendation, nil if that cannot be said yet.
func (c *Caller) measure(ctx context.Context, v projections.View, p *registry.Proposal, now domain.Instant) (*domain.OutcomeRecorded, error) {
	did := lastDone(p).DayStart() + domain.Day
	after := domain.Interval{From: did, To: did + OutcomeAfter}
	// Figures from before it was proposed: what was done since is not in them.
	proposed := p.Proposed.DayStart()
	before := domain.Interval{From: proposed - OutcomeAfter, To: proposed}
	ev := &domain.OutcomeRecorded{Recommendation: p.Recommendation, Window: after, Position: v.Position().String(), Method: recommend.OutcomeMethod}
	if !slices.ContainsFunc(p.Actuations, func(a registry.Actuation) bool { return a.Result == "done" }) {
		ev.Outcome, ev.Detail, ev.Window = "failed", "nobody carried it out", domain.Interval{}
		return ev, nil
	}
	if now < after.To {
		return nil, nil
	}
	r, _ := recommend.Parse(p.Made.Document)
	m := measured{Subject: r.Subject}
	if m.Subject == (advice.Subject{}) && len(p.Clusters) == 1 {
		m.Subject.Cluster = p.Clusters[0]
	}
	if p.Saving != nil {
		x, err := c.spent(ctx, v, m.Subject, before, p.Saving.Currency)
		if err != nil {
			return nil, err
		}
		y, err := c.spent(ctx, v, m.Subject, after, p.Saving.Currency)
		if err != nil {
			return nil, err
		}
		if x.Paid == 0 && x.Cost.IsZero() || y.Paid == 0 && y.Cost.IsZero() && p.Kind != "retire" {
			if now < lastDone(p)+OutcomeLatest {
				return nil, nil
			}
			ev.Outcome, ev.Detail = "partial", "it was carried out, and no costs before and after are known to measure it by"
			return ev, nil
		}
		realised := recommend.Realise(x, y, p.Saving.Currency)
		m.Realised = &realised
		ev.Measured = domain.Money{Amount: realised.Saved, Currency: p.Saving.Currency}
		switch {
		case realised.Saved.GreaterThanOrEqual(p.SavingLow.Amount):
			ev.Outcome = "succeeded"
		case realised.Saved.Sign() > 0:
			ev.Outcome = "partial"
		default:
			ev.Outcome = "failed"
		}
		ev.Detail = fmt.Sprintf("saved %s a month, of %s predicted", ev.Measured, p.Saving)
	}
	if strings.HasPrefix(p.Method, "recommend/") {
		again, err := c.recommend(ctx, v, after.To)
		if err != nil {
			return nil, err
		}
		m.Again = slices.ContainsFunc(again.Made, func(r recommend.Recommendation) bool { return r.ID == p.Recommendation }) ||
			slices.ContainsFunc(again.Refused, func(r recommend.Refused) bool { return r.ID == p.Recommendation })
	} else if p.Saving == nil {
		return nil, nil // a person wrote it, without a figure: a person says what came of it
	}
	if p.Saving == nil {
		ev.Outcome, ev.Detail = "succeeded", "its finding is gone"
		if m.Again {
			ev.Outcome, ev.Detail = "failed", "the same is recommended again"
		}
	}
	document, err := domain.CanonicalJSON(&m)
	ev.Document = document
	return ev, err
}

// spent returns what a subject cost in whole days. A line that is not spread over days counts by its part of the month.
func (c *Caller) spent(ctx context.Context, v projections.View, s advice.Subject, window domain.Interval, currency string) (recommend.Spent, error) {
	sum := recommend.Spent{Window: window}
	var words []string
	for _, w := range [][2]string{
		{"cluster", s.Cluster}, {"deployment", s.Deployment}, {"gpu_model", s.GPUModel}, {"model", s.Model}, {"provider", s.Provider},
		{"region", s.Region}, {"workspace", s.Workspace}, {"component", s.Component},
	} {
		// A cluster is paid for whoever holds it: the workspace that answers for it may hold nothing.
		if w[1] != "" && (w[0] != "workspace" || s.Cluster == "" || s.Deployment != "") {
			words = append(words, w[0]+"="+w[1])
		}
	}
	where, err := costs.ParseConditions(words)
	if err != nil {
		return sum, err
	}
	for month := projections.BillingMonth(window.From); month.From < window.To; month = projections.BillingMonth(month.To) {
		report, err := c.costs(ctx, v, costs.Query{Month: month, By: []costs.Dimension{costs.ByDay}, Where: where})
		if err != nil {
			return sum, err
		}
		for i := range report.Groups {
			g := &report.Groups[i]
			if g.Currency != currency {
				continue
			}
			part := domain.Interval{From: max(month.From, window.From), To: min(month.To, window.To)}
			share := decimal.NewFromInt(int64(part.Length())).DivRound(decimal.NewFromInt(int64(month.Length())), 18)
			if day, err := time.Parse(time.DateOnly, g.Key[costs.ByDay]); err == nil {
				if at := domain.InstantOf(day); at < window.From || at >= window.To {
					continue
				}
				share = decimal.NewFromInt(1)
			}
			sum.Cost = sum.Cost.Add(g.Effective.Decimal().Mul(share))
			sum.Paid += decimal.NewFromInt(g.Bought).Mul(share).IntPart()
			if g.Useful != nil {
				sum.Useful += decimal.NewFromInt(*g.Useful).Mul(share).IntPart()
			}
		}
	}
	sum.Cost = sum.Cost.Round(6)
	return sum, nil
}

// AdviceScore says what recommendations were worth.
type AdviceScore struct {
	Position string         `json:"position"`
	At       domain.Instant `json:"at"`
	Scores   []Score        `json:"scores"` // by rule, kind and currency
}

// Score counts the recommendations of one kind that cite findings of one rule.
type Score struct {
	Rule      string          `json:"rule"` // none: it cites no finding
	Kind      string          `json:"kind"`
	Currency  string          `json:"currency"` // of the sums; none: they save no money
	Made      int             `json:"made"`
	Approved  int             `json:"approved"`
	Done      int             `json:"done"`      // carried out, all of it
	Measured  int             `json:"measured"`  // with an outcome
	CameTrue  int             `json:"came_true"` // of those measured: at least the low end of the interval, or the finding is gone
	Predicted decimal.Decimal `json:"predicted"` // a month, of those with a measured saving
	Realised  decimal.Decimal `json:"realised"`
	Covered   int             `json:"covered"` // measured savings within their interval
	Of        int             `json:"of"`      // measured savings
}

// Score returns what recommendations were worth, per rule and kind.
func (c *Caller) Score(ctx context.Context, at At, workspace string) (ans *AdviceScore, err error) {
	err = c.readFrom(ctx, at, 0, func(v projections.View, about domain.Instant) error {
		ans = &AdviceScore{Position: v.Position().String(), At: about, Scores: []Score{}}
		all, err := registry.Proposals(v, about)
		if err != nil {
			return err
		}
		type key struct{ rule, kind, currency string }
		sums := map[key]*Score{}
		for i := range all {
			p := &all[i]
			if workspace != "" && p.Workspace != workspace {
				continue
			}
			var cited struct {
				Rules []string `json:"rules"`
			}
			if json.Unmarshal(p.Made.Document, &cited) != nil || len(cited.Rules) == 0 {
				cited.Rules = []string{""}
			}
			k := key{kind: p.Kind, rule: cited.Rules[0]}
			if p.Saving != nil {
				k.currency = p.Saving.Currency
			}
			if sums[k] == nil {
				sums[k] = &Score{Rule: k.rule, Kind: k.kind, Currency: k.currency}
			}
			sums[k].add(p)
		}
		for _, s := range sums {
			ans.Scores = append(ans.Scores, *s)
		}
		slices.SortFunc(ans.Scores, func(a, b Score) int {
			return cmp.Or(strings.Compare(a.Rule, b.Rule), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Currency, b.Currency))
		})
		if len(all) == 0 {
			return (narrowed{workspace: workspace}).empty(v)
		}
		return nil
	})
	return ans, err
}

func (s *Score) add(p *registry.Proposal) {
	s.Made++
	if p.Last != 0 {
		s.Approved++
	}
	if p.Carried() && !slices.ContainsFunc(p.Actuations, func(a registry.Actuation) bool { return a.Result != "done" }) {
		s.Done++
	}
	o := p.Outcome
	if o == nil || o.Actor != "" {
		return // what somebody says came of it is not measured
	}
	s.Measured++
	if o.Outcome == "succeeded" {
		s.CameTrue++
	}
	if o.Measured != nil && p.Saving != nil && o.Measured.Currency == p.Saving.Currency {
		s.Of++
		s.Predicted, s.Realised = s.Predicted.Add(p.Saving.Amount), s.Realised.Add(o.Measured.Amount)
		if o.Measured.Amount.GreaterThanOrEqual(p.SavingLow.Amount) && o.Measured.Amount.LessThanOrEqual(p.SavingHigh.Amount) {
			s.Covered++
		}
	}
}
