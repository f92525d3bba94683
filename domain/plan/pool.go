package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/instance"
	"quartermaster/domain/packing"
)

// candidate is a pool being planned.
type candidate struct {
	*Pool
	shelf      *shelf
	seen       *history
	fit        *fit
	future     *future
	held       []holding
	notes      []string
	left, next string // why it is not in the plan, "" if it is, and what to do
}

// refusal says why a pool cannot be planned, and what the user can do about it.
type refusal struct{ why, next string }

func (r *refusal) Error() string { return r.why }

// refuse records why a pool is not in the plan. An error that is neither a refusal nor about a rule
// that the pool's problem violates is about amounts: prices or demand too large to count.
func (k *candidate) refuse(why error) {
	k.left, k.next = why.Error(), "check the prices and the demand of the pool: one of them is larger than a plan can count"
	var r *refusal
	var rules *instance.Faults
	switch {
	case errors.As(why, &r):
		k.next = r.next
	case errors.As(why, &rules) && rules.Unwrap() == nil:
		k.left = "its problem breaks a rule: " + strings.ReplaceAll(k.left, "\n", "; ")
		k.next = "correct what the rule names in what was imported or registered for the pool"
	}
}

// prepare gathers what is for sale to a pool and what is known of its demand.
func (c *composer) prepare(p *Pool) *candidate {
	k := &candidate{Pool: p, notes: []string{}}
	if err := c.fill(k); err != nil {
		k.refuse(err)
	}
	return k
}

func (c *composer) fill(k *candidate) (err error) {
	p := k.Pool
	if k.shelf, err = c.stock(p); err != nil {
		return err
	}
	if k.seen, err = observe(p, c.a.Weeks, c.q.At); err != nil {
		return err
	}
	h := k.seen
	h.limit(p, c.q.Limits, k.shelf.gpus)
	h.separate(p)
	if k.fit, err = perMachine(p, k.shelf, c.region(p.Region).Country); err != nil {
		return err
	}
	if c.a.Demand == Forecast && !p.Idle {
		return c.foresee(k, h)
	}
	k.future = &future{summary: DemandSummary{
		ObservedFrom: h.from, ObservedTo: h.to, MissingHours: h.missing, Sources: h.sources,
	}}
	return nil
}

// finish counts the machines that a pool wants, and says what they are.
func (c *composer) finish(k *candidate) error {
	p, h, forecasts, quotas := k.Pool, k.seen, k.future.made != nil, k.notes
	var cases [][]int
	var err error
	if k.notes = []string{}; forecasts {
		cases, err = c.cases(k)
	} else {
		cases = make([][]int, 1)
		cases[0], err = c.hourly(k)
	}
	if err != nil {
		return err
	}
	if p.Note != "" {
		k.notes = append(k.notes, p.Note)
	}
	k.notes = append(append(k.notes, h.notes...), quotas...)
	if forecasts {
		if h.kept != nil && len(h.kept.caps) > 0 && h.everything() < 0 {
			k.notes = append(k.notes, "the forecast is of the pool's demand as a whole, and so no hard quota of some of its workspaces bounds it")
		}
		if h.tenants > 1 {
			k.notes = append(k.notes, fmt.Sprintf("the forecast is of all workspaces together: that they share no machine "+
				"takes at most %d machines more, which are added to every hour with demand", h.tenants-1))
		}
		k.notes = append(k.notes,
			fmt.Sprintf("demand is %d scenarios of a forecast by %s, equally likely, each of the same weeks of "+
				"past errors in all pools; beyond %d weeks its level grows as assumed",
				c.a.Scenarios, k.future.summary.Range.Candidate, forecast.MaxHorizon))
		if n := k.Observed.parts; n > 1 {
			k.notes = append(k.notes, fmt.Sprintf("it is forecast together with the %d other pools of its region that count "+
				"in %s: they add up to a forecast of the region", n-1, p.Unit))
		}
		if c.a.Life > 0 {
			k.notes = append(k.notes, fmt.Sprintf("in scenarios its demand ends when a successor replaces the "+
				"machine type, after %d months on average from its beginning; demand for the successor is not planned",
				c.a.Life))
		}
	} else if p.Idle {
		k.notes = append(k.notes, "no demand of its own was observed: it may do the work of others")
	} else {
		k.notes = append(k.notes, h.repeats...)
	}
	if err := c.spares(k, cases); err != nil {
		return err
	}
	c.summarize(k, cases)
	return nil
}

// longLead is the lead time in hours, about a month, from which a plan mentions it.
const longLead = 720

// note adds the remarks that a reader of the pool's plan needs.
func (c *composer) note(k *candidate) {
	s := k.shelf
	note := func(text string, args ...any) { k.notes = append(k.notes, fmt.Sprintf(text, args...)) }
	switch {
	case len(s.terms)+len(s.spends) == 0 && len(s.left) == 0:
		note("no commitment is offered for it there")
	case len(s.terms)+len(s.spends) == 0:
		note("no commitment that could be considered is offered for it there")
	}
	if s.others > 0 {
		note("%d other on-demand suppliers are not used, so the bound is for %s alone", s.others, s.onDemand.Market.Provider)
	}
	if s.quota == nil {
		note("no quota set; on-demand is assumed unlimited")
	} else if s.quota.Shared {
		var with []string
		for _, other := range c.pools {
			if q := other.quota(); other != k && other.Region == k.Region && q != nil && q.Shared &&
				q.Provider == s.quota.Provider && !sharesQuota(k, other) {
				with = append(with, other.Kind)
			}
		}
		if len(with) > 0 {
			note("the on-demand quota of %s is for all models together, shared with %s, and another one bounds "+
				"one of them, too; each is planned as if it had all of its own", s.quota.Provider, listed(with))
		}
	}
	owned := 0
	var parts []string
	for i := range k.held {
		h := &k.held[i]
		if h.of.Kind == domain.OfferOwned {
			owned += h.terms[0].units
		}
		for _, t := range h.terms {
			for _, day := range []domain.Instant{t.From, t.To} {
				if c.within(day) && !slices.ContainsFunc(h.terms, func(x heldTerm) bool { return x.From == day && day == t.To || x.To == day && day == t.From }) {
					parts = append(parts, fmt.Sprintf("%s (%s)", h.of.Commitment, day.Time().Format("2006-01-02")))
				}
			}
		}
	}
	if len(parts) > 0 {
		note("begins or ends within a month, and counts as capacity in it only where another continues it: %s", listed(parts))
	}
	if owned > 0 {
		note("%d owned machines serve it for the whole horizon", owned)
	}
	if n, latest := 0, ""; len(s.terms) > 0 {
		var last domain.Instant
		for i := range s.terms {
			t := &s.terms[i]
			if from := c.span[t.starts[0]].From; t.LeadTimeHours >= longLead && from > c.span[0].From {
				n++
				if from > last {
					last, latest = from, fmt.Sprintf("%s %s (%d days), from %s on", t.Market.Provider, t.Offer,
						t.LeadTimeHours/24, from.Time().Format("2006-01-02"))
				}
			}
		}
		if n > 0 {
			note("%d of %d commitments offered take a month or more to come and cannot be there when the horizon "+
				"begins; the last of them: %s", n, len(s.terms), latest)
		}
	}
	bound := 0
	for i := range k.Mix {
		if w := &k.Mix[i]; len(w.Countries)+len(w.Certifications)+len(w.Clusters)+len(w.ApartCluster) > 0 ||
			apartInClusters(w) {
			bound++
		}
	}
	if bound > 0 {
		note("the plan takes the %d workloads that residency, certifications or placement bind to be allowed here", bound)
	}
}

// notesOf are the remarks on a pool in a group.
func (c *composer) notesOf(g *group, k *candidate) []string {
	out := slices.Clone(k.notes)
	for _, note := range []string{c.protection(g, k), c.immovable(k)} {
		if note != "" {
			out = append(out, note)
		}
	}
	return out
}

// within reports whether a time lies in the horizon and does not begin a month.
func (c *composer) within(t domain.Instant) bool {
	return t > c.span[0].From && t < c.end() && !slices.ContainsFunc(c.span, func(m domain.Interval) bool { return m.From == t })
}

// apartInClusters reports whether some workload in ApartIn excludes w from whole clusters.
func apartInClusters(w *packing.Workload) bool {
	return slices.ContainsFunc(w.ApartIn, func(x packing.Apart) bool { return x.Cluster })
}

func (k *candidate) quota() *Quota {
	if k.left != "" {
		return nil
	}
	return k.shelf.quota
}
