package joint_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// without is a problem without some members' constraints.
func without(p *joint.Problem, members []joint.Member) *joint.Problem {
	q := *p
	q.Needs, q.Limits, q.Choices, q.Epochs = slices.Clone(p.Needs), slices.Clone(p.Limits), slices.Clone(p.Choices), slices.Clone(p.Epochs)
	for m := range q.Epochs {
		q.Epochs[m].Quotas = slices.Clone(q.Epochs[m].Quotas)
	}
	for _, x := range members {
		switch x.Kind {
		case "need":
			q.Needs[x.Index].Least = 0
		case "limit":
			q.Limits[x.Index].Most = 9 * joint.MaxCost
		case "choice":
			c := &q.Choices[x.Index]
			c.Max, c.Least, c.Lot, c.Group = procurement.Unlimited, 0, 1, ""
		case "quota":
			for m := range q.Epochs {
				q.Epochs[m].Quotas[x.Index] = procurement.Unlimited
			}
		case "demand":
			for m := range q.Epochs {
				e := &q.Epochs[m]
				e.Cases = slices.Clone(e.Cases)
				for c := range e.Cases {
					e.Cases[c].Slots = slices.Clone(e.Cases[c].Slots)
					for s := range e.Cases[c].Slots {
						slot := &e.Cases[c].Slots[s]
						slot.Units = slices.Clone(slot.Units)
						slot.Units[x.Index] = 0
					}
				}
			}
		}
	}
	return &q
}

// everyMember lists all possible members of a conflict.
func everyMember(p *joint.Problem) (out []joint.Member) {
	for i := range p.Needs {
		out = append(out, joint.Member{Kind: "need", ID: p.Needs[i].ID, Index: i})
	}
	for i := range p.Limits {
		out = append(out, joint.Member{Kind: "limit", ID: p.Limits[i].ID, Index: i})
	}
	for i := range p.Quotas {
		out = append(out, joint.Member{Kind: "quota", ID: p.Quotas[i], Index: i})
	}
	for i := range p.Demands {
		out = append(out, joint.Member{Kind: "demand", ID: p.Demands[i].ID, Index: i})
	}
	for i := range p.Choices {
		out = append(out, joint.Member{Kind: "choice", ID: p.Choices[i].ID, Index: i})
	}
	return out
}

// tight makes a drawn problem stricter than most can satisfy.
func tight(seed uint64) *joint.Problem {
	n := seeded(seed)
	p := draw(n, everything)
	serving := slices.Repeat([]int64{1000}, len(p.Epochs))
	limit := func(l joint.Limit, spent func(*joint.Choice) procurement.Nano) {
		p.Limits = append(p.Limits, l)
		for j := range p.Choices {
			c := &p.Choices[j]
			c.Spent = slices.Clone(c.Spent)
			for len(c.Spent) < len(p.Limits) {
				c.Spent = append(c.Spent, 0)
			}
			c.Spent[len(p.Limits)-1] = spent(c)
		}
	}
	limit(joint.Limit{ID: "served", Unserved: true, Most: procurement.Nano(n(0, 3)), Serving: serving}, func(*joint.Choice) procurement.Nano { return 0 })
	if seed%2 == 0 {
		limit(joint.Limit{ID: "paid", Most: procurement.Nano(n(20, 400)) * million, Serving: serving}, func(c *joint.Choice) procurement.Nano { return c.Cost })
		return p
	}
	// Little can be bought, and little is sold on demand.
	for j := range p.Choices {
		p.Choices[j].Max = n(0, 3)
	}
	p.Quotas = []string{"one", "other"}
	for m := range p.Epochs {
		e := &p.Epochs[m]
		e.Quotas = []int{n(0, 4), n(0, 4)}
		for i := range e.Pools {
			e.Pools[i].Quota, e.Pools[i].QuotaPerUnit = i%2, 1
		}
	}
	return p
}

// The reported members conflict by themselves, and after dropping any one of them the others are
// feasible: checked by the whole integer program.
func TestClashIsIrreducible(t *testing.T) {
	kinds, sizes, undecided := map[string]int{}, map[int]int{}, 0
	for seed := range uint64(long.Count(30, 600)) {
		p := tight(seed)
		_, err := joint.Solve(context.Background(), p, lp(t))
		var clash *joint.Infeasible
		if !errors.As(err, &clash) {
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
			} else if _, ok := optimum(t, p, nil, true); !ok {
				t.Errorf("seed %d: solved, and the whole program says that nothing does", seed)
			}
			continue
		}
		if clash.Undecided {
			undecided++
			continue
		}
		var others []joint.Member
		for _, m := range everyMember(p) {
			if !slices.Contains(clash.Clash, m) {
				others = append(others, m)
			}
		}
		alone := without(p, others)
		if _, ok := optimum(t, alone, nil, true); ok {
			t.Errorf("seed %d: %v, and something keeps these alone", seed, clash)
		}
		for _, m := range clash.Clash {
			kinds[m.Kind]++
			if _, ok := optimum(t, without(alone, []joint.Member{m}), nil, true); !ok {
				t.Errorf("seed %d: %v, and nothing keeps them without %s %q either", seed, clash, m.Kind, m.ID)
			}
		}
		sizes[len(clash.Clash)]++
	}
	t.Logf("members by kind %v, clashes by size %v, %d undecided", kinds, sizes, undecided)
	if undecided > 0 || len(kinds) < 5 {
		t.Errorf("%d undecided; members of kinds %v, of five there are", undecided, kinds)
	}
}

// A budget that no serving takes from, because all of it is free, does not hide a conflict with
// another limit.
func TestClashWhereServingIsFree(t *testing.T) {
	p := draw(seeded(2510), everything)
	_, err := joint.Solve(context.Background(), p, lp(t))
	var clash *joint.Infeasible
	if !errors.As(err, &clash) {
		t.Fatalf("%v, want what clashes", err)
	}
	want := []joint.Member{{Kind: "limit", ID: "limit 1", Index: 1}, {Kind: "demand", ID: "demand 1", Index: 1}}
	if !slices.Equal(clash.Clash, want) {
		t.Errorf("clash of %v, want %v", clash.Clash, want)
	}
}
