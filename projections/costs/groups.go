package costs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/dimension"
)

// Group is the cost of one group. Key has a value for each requested dimension.
type Group struct {
	Key map[Dimension]string `json:"key"`
	Cost
	Allocations int `json:"allocations"` // number of allocations in the sum
	// Largest are the largest of them, as many as were requested.
	Largest []Allocation `json:"largest,omitempty"`
}

// sums adds up allocations by group. Its size grows with groups.
type sums struct {
	query  *Query
	by     []*dimension.Of[part, costKey]
	picker *dimension.Picker[part, costKey]
	groups map[costKey]*groupSum
	totals map[string]*Cost

	key   costKey // of the current allocation
	last  costKey // of sum and total
	sum   *groupSum
	total *Cost

	ofTargets bool // all dimensions are of [targetDimensions]
	targets   map[targetKey]targetSum

	byHolder bool // allocations are divided among units and machines
	added    int  // allocations
}

// targetKey are the allocations of a division that have a group in common if all dimensions are of [targetDimensions].
type targetKey struct {
	place    *place // of its target
	currency string
	month    domain.Instant
}

type targetSum struct {
	sum   *groupSum
	total *Cost
}

// targetDimensions are the dimensions in which allocations with one target have one value.
var targetDimensions = map[Dimension]bool{
	ByWorkspace: true, ByComponent: true, ByCluster: true, ByDeployment: true, ByWorkloadClass: true, ByModel: true,
	ByGPUModel: true, ByBillingModel: true, ByProvider: true, ByProviderClass: true, ByRegion: true, ByOwner: true, ByCostCentre: true,
	ByEntity: true, ByMatchMethod: true, ByMonth: true, ByQuarter: true,
}

type groupSum struct {
	Cost
	allocations int
	last        int          // the last of all allocations that it has a part of
	largest     []Allocation // largest first
}

func newSums(q *Query) (*sums, error) {
	s := &sums{query: q, groups: map[costKey]*groupSum{}, totals: map[string]*Cost{}}
	var err error
	if s.by, err = dimensions.By(q.By); err != nil {
		return nil, fmt.Errorf("costs by %v: %w", q.By, err)
	}
	if s.picker, err = dimensions.Picker(q.Where); err != nil {
		return nil, fmt.Errorf("costs where %v: %w", q.Where, err)
	}
	s.ofTargets, s.targets = byTargets(q.By), map[targetKey]targetSum{}
	s.byHolder = byHolder(q.By, q.Where)
	switch q.LargestBy {
	case "", Effective, Billed:
		return s, nil
	}
	return nil, fmt.Errorf("largest by ledger %q: want %s or %s", q.LargestBy, Effective, Billed)
}

func (s *sums) add(p *part) {
	if s.query.Workspace != "" && s.query.Workspace != p.allocation.Workspace {
		return
	}
	s.added++
	if !s.byHolder {
		s.addPart(p)
		return
	}
	_ = p.divide(func(p *part) error {
		s.addPart(p)
		return nil
	})
}

func (s *sums) addPart(p *part) {
	if !s.picker.Picks(p) {
		return
	}
	sum, total := s.of(p)
	sum.add(p)
	total.add(p)
	if sum.last != s.added { // several parts of one allocation may be in a group
		sum.allocations, sum.last = sum.allocations+1, s.added
	}
	sum.keep(p, s.query)
}

// addSum adds what allocations cost that have a target in common.
func (s *sums) addSum(p *part, c *Cost, allocations int) {
	if s.query.Workspace != "" && s.query.Workspace != p.allocation.Workspace || !s.picker.Picks(p) {
		return
	}
	sum, total := s.of(p)
	sum.sum(c)
	total.sum(c)
	sum.allocations += allocations
}

// of returns the group and the total that an allocation belongs to.
func (s *sums) of(p *part) (*groupSum, *Cost) {
	if !s.ofTargets || p.kept == nil {
		return s.find(p)
	}
	k := targetKey{p.kept, p.allocation.Line.Currency, p.month}
	of, known := s.targets[k]
	if !known {
		of.sum, of.total = s.find(p)
		s.targets[k] = of
	}
	return of.sum, of.total
}

func (s *sums) find(p *part) (*groupSum, *Cost) {
	s.key = costKey{currency: p.allocation.Line.Currency}
	for _, d := range s.by {
		d.Read(p, &s.key)
	}
	if s.sum == nil || s.key != s.last {
		if s.sum = s.groups[s.key]; s.sum == nil {
			s.sum = &groupSum{Cost: Cost{Currency: s.key.currency}}
			s.groups[s.key] = s.sum
		}
		if s.total = s.totals[s.key.currency]; s.total == nil {
			s.total = &Cost{Currency: s.key.currency}
			s.totals[s.key.currency] = s.total
		}
		s.last = s.key
	}
	return s.sum, s.total
}

// keep records an allocation if it is among the largest of its group by magnitude. Ties go to the
// first in the order of [attribution.Run].
func (g *groupSum) keep(p *part, q *Query) {
	l := p.allocation
	if q.Largest <= 0 {
		return
	}
	of := func(billed, effective attribution.Amount) attribution.Amount {
		if q.LargestBy == Billed {
			return billed.Abs()
		}
		return effective.Abs()
	}
	size := of(l.Billed, l.Effective)
	n := len(g.largest)
	if n == q.Largest && of(g.largest[n-1].Billed, g.largest[n-1].Effective).Cmp(size) >= 0 {
		return
	}
	at := n
	for at > 0 && of(g.largest[at-1].Billed, g.largest[at-1].Effective).Cmp(size) < 0 {
		at--
	}
	if n == q.Largest {
		g.largest = g.largest[:n-1]
	}
	g.largest = slices.Insert(g.largest, at, newAllocation(p))
}

// each calls yield with every group, sorted, and its key.
func (s *sums) each(yield func(*costKey, Group)) {
	keys := make([]costKey, 0, len(s.groups))
	for k := range s.groups {
		keys = append(keys, k)
	}
	for _, of := range dimension.Groups(s.by, keys, func(a, b *costKey) int { return strings.Compare(a.currency, b.currency) }) {
		sum := s.groups[*of.Key]
		g := Group{Key: dimension.Named(s.by, of), Cost: sum.Cost, Allocations: sum.allocations, Largest: sum.largest}
		g.finish()
		yield(of.Key, g)
	}
}

// report adds the sums to the report, sorted, and rounds them to minor units.
func (s *sums) report(r *Report) {
	r.Groups = make([]Group, 0, len(s.groups))
	s.each(func(_ *costKey, g Group) { r.Groups = append(r.Groups, g) })
	for _, currency := range slices.Sorted(maps.Keys(s.totals)) {
		s.totals[currency].finish()
		r.Totals = append(r.Totals, *s.totals[currency])
	}
	r.roundMinor()
}
