package instance

import (
	"cmp"
	"slices"
	"strings"
)

// places maps the sorted lists back to indexes in the document.
type places struct {
	regions, pools, demands, offers, commitments, quotas, budgets, overflow, substitutes, scenarios []int
}

// sorted returns a copy with sorted lists, and the original indexes. It does not modify what it
// shares with the instance.
func (in *Instance) sorted() (*Instance, places) {
	out := *in
	var at places
	out.Regions, at.regions = ordered(in.Regions, func(a, b *Region) int { return cmp.Compare(a.ID, b.ID) })
	out.Pools, at.pools = ordered(in.Pools, func(a, b *Pool) int { return cmp.Compare(a.ID, b.ID) })
	for i := range out.Pools {
		out.Pools[i].Certifications = set(out.Pools[i].Certifications)
	}
	out.Demands, at.demands = ordered(in.Demands, func(a, b *Demand) int { return cmp.Compare(a.ID, b.ID) })
	for i := range out.Demands {
		d := &out.Demands[i]
		d.Countries, d.Certifications = set(d.Countries), set(d.Certifications)
	}
	out.Offers, at.offers = ordered(in.Offers, func(a, b *Offer) int { return cmp.Compare(a.ID, b.ID) })
	out.Commitments, at.commitments = ordered(in.Commitments, func(a, b *Commitment) int { return cmp.Compare(a.ID, b.ID) })
	out.Quotas, at.quotas = ordered(in.Quotas, func(a, b *Quota) int { return cmp.Compare(a.ID, b.ID) })
	out.Budgets, at.budgets = ordered(in.Budgets, func(a, b *Budget) int { return cmp.Compare(a.ID, b.ID) })
	out.Overflow, at.overflow = ordered(in.Overflow, func(a, b *Overflow) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	substitutes := slices.Clone(in.Substitutes)
	for i := range substitutes {
		substitutes[i].Demands = set(substitutes[i].Demands)
	}
	out.Substitutes, at.substitutes = ordered(substitutes, func(a, b *Substitute) int {
		return cmp.Or(cmp.Compare(a.For, b.For), cmp.Compare(a.Class, b.Class),
			strings.Compare(strings.Join(a.Demands, "\x00"), strings.Join(b.Demands, "\x00")))
	})
	out.Scenarios, at.scenarios = ordered(in.Scenarios, func(a, b *Scenario) int { return cmp.Compare(a.ID, b.ID) })
	if in.Posture != nil {
		p := *in.Posture
		p.Demands = set(p.Demands)
		out.Posture = &p
	}
	return &out, at
}

func ordered[T any](list []T, compare func(a, b *T) int) ([]T, []int) {
	at := make([]int, len(list))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(i, j int) int { return compare(&list[i], &list[j]) })
	if len(list) == 0 {
		return nil, nil
	}
	out := make([]T, len(list))
	for i, j := range at {
		out[i] = list[j]
	}
	return out, at
}

// set sorts names and removes duplicates.
func set(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}
