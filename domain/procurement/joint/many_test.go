package joint_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// many is regions that may all serve each other's demand, three years by the hour, with 12 offers
// each: four terms, each in three forms of payment or price.
func many(n int) *joint.Problem {
	var demand [][]int
	for len(demand) < n {
		for _, d := range made() {
			shift := 5 * len(demand)
			moved := append(append([]int{}, d[shift:]...), d[:shift]...)
			demand = append(demand, moved)
		}
	}
	p := regions(demand[:n])
	p.Choices = nil
	local := func(k int) float64 { return 1 + 0.04*float64(k%5) - 0.02*float64(k%3) }
	for m := range p.Epochs {
		for k := range p.Pools {
			s := &p.Epochs[m].Pools[k]
			s.OnDemand = procurement.Nano(float64(s.OnDemand) * local(k))
		}
	}
	for k := range p.Pools {
		for i, o := range []struct {
			months int
			price  float64
		}{
			{1, .9}, {1, .87}, {1, .85}, {6, .74}, {6, .73}, {6, .72}, {12, .66}, {12, .65}, {12, .644}, {36, .47}, {36, .455}, {36, .445},
		} {
			for from := range months {
				if from%3 < i%3 {
					continue // not sold every month
				}
				to := min(months, from+o.months)
				cost := 0.0
				for m := from; m < to; m++ {
					cost += float64(p.Epochs[m].Pools[k].OnDemand) * o.price * hoursAMonth
				}
				p.Choices = append(p.Choices, joint.Choice{
					ID: fmt.Sprintf("region %d, offer %d from %d", k, i, from), Cost: procurement.Nano(math.Round(cost)),
					Max: procurement.Unlimited, Lot: 1, Cover: []joint.Cover{{Pool: k, From: from, To: to, Units: 1, Guaranteed: true}},
				})
			}
		}
	}
	return p
}

// Eight and twelve regions are solved to a tenth of a percent.
func TestManyRegions(t *testing.T) {
	long.Only(t, "takes minutes")
	for _, n := range []int{8, 12} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,quota=%t", n, shared), func(t *testing.T) {
				p := many(n)
				if shared {
					p.Quotas = []string{"account"}
					for m := range p.Epochs {
						e := &p.Epochs[m]
						e.Quotas = []int{100 * n}
						for i := range e.Pools {
							e.Pools[i].Quota, e.Pools[i].QuotaPerUnit = 0, 1
						}
					}
				}
				start := long.CPUTime(t)
				s, err := joint.Solve(context.Background(), p, lp(t))
				if err != nil {
					t.Fatal(err)
				}
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				t.Logf("gap %.4f%%, %s of processors, %d MiB from the system, %+v", 100*gap(s), long.CPUTime(t)-start, m.Sys>>20, s.Work)
				judge(t, p, s)
				if gap(s) > 1e-3 {
					t.Errorf("cost %s, bound %s: a gap of %g", s.Cost, s.Bound, gap(s))
				}
			})
		}
	}
}
