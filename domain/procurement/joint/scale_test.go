package joint_test

import (
	"context"
	"errors"
	"testing"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// dearer is a problem with all money multiplied by a factor.
func dearer(p *joint.Problem, times procurement.Nano) *joint.Problem {
	q := without(p, nil)
	for m := range q.Epochs {
		e := &q.Epochs[m]
		e.Pools = append([]joint.Supply(nil), e.Pools...)
		for i := range e.Pools {
			for _, v := range []*procurement.Nano{&e.Pools[i].OnDemand, &e.Pools[i].Spot, &e.Pools[i].SpendPrice} {
				if *v > 0 {
					*v *= times
				}
			}
		}
		all := [][]procurement.Nano{append([]procurement.Nano(nil), e.Routes...), append([]procurement.Nano(nil), e.Shortage...), append([]procurement.Nano(nil), e.Spends...)}
		for _, of := range all {
			for i := range of {
				of[i] *= times
			}
		}
		e.Routes, e.Shortage, e.Spends = all[0], all[1], all[2]
	}
	for j := range q.Choices {
		c := &q.Choices[j]
		c.Cost *= times
		c.Spend = append([]joint.SpendCover(nil), c.Spend...)
		for k := range c.Spend {
			c.Spend[k].PerHour *= times
		}
	}
	return q
}

// Spend commitments are priced alike whether they are cents or thousands an hour.
func TestMoneyOfAnySize(t *testing.T) {
	drawn := everything
	drawn.limits = false
	tried := 0
	for seed := uint64(0); tried < long.Count(25, 1000); seed++ {
		p := draw(seeded(seed), drawn)
		if len(p.Spends) == 0 {
			continue
		}
		tried++
		gap := func(p *joint.Problem) float64 {
			s, err := joint.Solve(context.Background(), p, lp(t))
			var clash *joint.Infeasible
			if errors.As(err, &clash) {
				return 0
			} else if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			judge(t, p, s)
			return (float(s.Cost) - float(s.Bound)) / max(1, float(s.Cost))
		}
		small, large := gap(p), gap(dearer(p, 1_000_000))
		if large > small+1e-4 {
			t.Errorf("seed %d: gap %.1e, %.1e where all is a million times as dear", seed, small, large)
		}
	}
}
