package attribution

import (
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
)

// sharing divides lines without a machine of their own that a rule shares among workspaces. It is nil if no rule of the
// input shares such lines. It reads usage in whole hours and apart from matches, so that it moves no other line's money.
type sharing struct {
	rules map[string]*MeterRule
	fixed map[string][]weighted // of rules with fixed weights, by workspace
	spans []domain.Interval     // of lines that are shared by usage: whole hours
	held  grid                  // by workspace
	uses  []use                 // reused
}

// weighted is what a workspace bears of a line.
type weighted struct {
	workspace string
	weight    uint64
}

func newSharing(rules []MeterRule, b *book) (*sharing, error) {
	s := &sharing{rules: map[string]*MeterRule{}, fixed: map[string][]weighted{}}
	for i := range rules {
		r := &rules[i]
		if !r.shares() {
			continue
		}
		if r.ShareBy != "" && r.ShareBy != domain.ShareByGPUHours || r.ShareBy != "" && len(r.Shares) > 0 || r.To != "" {
			return nil, fmt.Errorf("mapping rule %q shares by %q and by %d weights, and charges %q: want one of them",
				r.Name, r.ShareBy, len(r.Shares), r.To)
		}
		if s.rules[r.Name] != nil {
			return nil, fmt.Errorf("mapping rule %q is given twice", r.Name)
		}
		s.rules[r.Name] = r
		if r.ShareBy != "" {
			continue
		}
		var all []weighted
		for _, w := range r.Shares {
			if w.Workspace == "" {
				return nil, fmt.Errorf("mapping rule %q: a weight of no workspace", r.Name)
			}
			all = append(all, weighted{w.Workspace, uint64(w.Weight)})
		}
		slices.SortFunc(all, func(a, b weighted) int { return strings.Compare(a.workspace, b.workspace) })
		for i := 1; i < len(all); i++ {
			if all[i].workspace == all[i-1].workspace {
				return nil, fmt.Errorf("mapping rule %q gives workspace %q two weights", r.Name, all[i].workspace)
			}
		}
		s.fixed[r.Name] = all
	}
	var periods []domain.Interval
	some := false
	for i := range b.records {
		rec := &b.records[i]
		if rec.basis != byRule || rec.to != 0 {
			continue
		}
		r := s.rules[b.texts[rec.toRule]]
		if r == nil {
			return nil, fmt.Errorf("line %q of account %q: mapping rule %q is not given", rec.id, b.texts[rec.account], b.texts[rec.toRule])
		}
		some = true
		if p := wholeHours(rec.charge); r.ShareBy != "" && !p.Empty() {
			periods = append(periods, p)
		}
	}
	if !some {
		return nil, nil
	}
	if len(periods) > 0 {
		slices.SortFunc(periods, byPeriod)
		s.held = newGrid(periods, false)
		s.spans = merge(periods)
	}
	return s, nil
}

// wholeHours returns the UTC hours that a charge period touches; none for a period that is divided by no usage.
func wholeHours(p domain.Interval) domain.Interval {
	if p.Empty() || p.Length() > maxPeriod {
		return domain.Interval{}
	}
	to := p.To.HourStart()
	if to < p.To {
		to += domain.Hour
	}
	return domain.Interval{From: p.From.HourStart(), To: to}
}

// with returns the spans of usage to read: those given, and those of lines that are shared by usage.
func (s *sharing) with(spans []domain.Interval) []domain.Interval {
	if s == nil || len(s.spans) == 0 {
		return spans
	}
	all := slices.Concat(spans, s.spans)
	slices.SortFunc(all, byPeriod)
	return merge(all)
}

// use adds what workspaces held of a node.
func (s *sharing) use(held domain.Interval, uses []use, r *run) {
	if s == nil || len(s.spans) == 0 {
		return
	}
	s.uses = s.uses[:0]
	for _, u := range uses {
		if k := &r.keys.all[u.key]; k.component == Allocated {
			s.uses = append(s.uses, use{key: r.keys.id(allocationKey{workspace: k.workspace, component: SharedCost}), micros: u.micros})
		}
	}
	s.held.add(held, s.uses, r.hardware, nil)
}

// shared divides the current record among the workspaces of its rule. Without any weight the platform is charged.
func (r *run) shared(rec *record) error {
	rule := r.sharing.rules[r.line.ToRule]
	of, by, in := r.sharing.fixed[rule.Name], "fixed weights", func(n uint64) Amount { return Whole(int64(n)) }
	if rule.ShareBy != "" {
		of, by, in = r.holders(rec), "the GPU time that workspaces held", ofMicros
	}
	var total, at uint64
	for _, w := range of {
		total += w.weight
	}
	if total == 0 {
		r.trace.because("mapping rule %s shares it by %s, and nobody held any in its charge period: the platform is charged",
			rule.Name, by)
		return r.all(rec, 0, ByRule, allocationKey{workspace: Platform, component: SharedCost}, 0, 0)
	}
	r.trace.because("mapping rule %s shares it by %s among %d workspaces", rule.Name, by, len(of))
	billed, effective := divisionOf(rec.cost()), divisionOf(rec.effective)
	r.out.Hour, r.out.MatchMethod, r.out.Of = 0, ByRule, in(total)
	for _, w := range of {
		if w.weight == 0 {
			continue
		}
		at += w.weight
		r.out.Weight = in(w.weight)
		key := r.keys.id(allocationKey{workspace: w.workspace, component: SharedCost})
		if err := r.give(key, 0, billed.next64(at, total), effective.next64(at, total)); err != nil {
			return err
		}
	}
	return nil
}

// holders returns the GPU time that workspaces held in the hours of a record's charge period, in microseconds.
func (r *run) holders(rec *record) (of []weighted) {
	p := wholeHours(rec.charge)
	if p.Empty() {
		return nil
	}
	for _, w := range r.weightsOf(&r.sharing.held, p, true, r.weights[:0]) {
		of = append(of, weighted{r.keys.all[w.key].workspace, uint64(w.micros)})
	}
	return of
}
