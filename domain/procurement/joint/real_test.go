package joint_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"quartermaster/domain"
	"quartermaster/domain/linear"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
	"quartermaster/simulations/public"
)

const (
	months        = 36
	hoursAMonth   = 730
	regionsToTest = 4
)

// shavedice reads three years of hourly demand of the most used machine types. Without the file it
// generates similar demand.
func shavedice(t testing.TB) [][]int {
	t.Helper()
	if !public.Has(t, public.ShavediceFile) {
		return made()
	}
	all := public.Shavedice(t)
	slices.SortStableFunc(all, func(a, b public.Series) int { return total(b.Units) - total(a.Units) })
	var out [][]int
	for _, s := range all[:regionsToTest] {
		out = append(out, s.Units)
	}
	return out
}

func total(units []int) int {
	sum := 0
	for _, u := range units {
		sum += u
	}
	return sum
}

func made() [][]int {
	n := seeded(4)
	var out [][]int
	for k := range regionsToTest {
		var d []int
		for h := range months * hoursAMonth {
			day := 1 + 0.3*math.Sin(2*math.Pi*float64(h+6*k)/24)
			week := 1 - 0.2*float64(h/24%7/5)
			grows := 1 + float64(h)/float64(months*hoursAMonth)
			d = append(d, int(300*day*week*grows*(0.85+0.3*float64(n(0, 1000))/1000)))
		}
		out = append(out, d)
	}
	return out
}

// regions is four pools that may serve each other's demand, with purchases for 1 to 36 months from
// any month on.
func regions(demand [][]int) *joint.Problem {
	p := &joint.Problem{ID: "regions", Weight: 1}
	const price = 1_000_000_000
	for k := range demand {
		p.Pools = append(p.Pools, fmt.Sprintf("region %d", k))
		p.Demands = append(p.Demands, joint.Demand{ID: fmt.Sprintf("demand %d", k)})
		for to := range demand {
			p.Routes = append(p.Routes, joint.Route{Demand: k, Pool: to, Num: 1, Den: 1})
		}
	}
	discount := func(m int) float64 { return math.Pow(1.08, -float64(m)/12) }
	at := func(v, d float64) procurement.Nano { return procurement.Nano(math.Round(v * d * price)) }
	local := []float64{1, 1.04, 0.97, 1.1}
	for m := range months {
		d := discount(m)
		e := joint.Epoch{Span: domain.Interval{From: domain.Instant(m) * hoursAMonth * domain.Hour, To: domain.Instant(m+1) * hoursAMonth * domain.Hour}}
		for k := range demand {
			e.Pools = append(e.Pools, joint.Supply{OnDemand: at(local[k%len(local)], d), Spot: -1, Quota: -1, Spend: -1})
			e.Shortage = append(e.Shortage, at(10, d))
		}
		for _, r := range p.Routes {
			extra := 0.0
			if r.Demand != r.Pool {
				extra = 0.05 + 0.03*math.Abs(float64(r.Demand-r.Pool))
			}
			e.Routes = append(e.Routes, at(extra, d))
		}
		c := joint.Case{Weight: 1, Spot: slices.Repeat([]int{procurement.Unlimited}, len(demand))}
		for h := range hoursAMonth {
			s := joint.Slot{Hours: 1}
			for k := range demand {
				s.Units = append(s.Units, demand[k][m*hoursAMonth+h])
			}
			c.Slots = append(c.Slots, s)
		}
		slices.SortFunc(c.Slots, func(a, b joint.Slot) int { return slices.Compare(a.Units, b.Units) })
		slots := c.Slots[:0]
		for _, s := range c.Slots {
			if n := len(slots); n > 0 && slices.Equal(slots[n-1].Units, s.Units) {
				slots[n-1].Hours += s.Hours
			} else {
				slots = append(slots, s)
			}
		}
		c.Slots = slots
		e.Cases = []joint.Case{c}
		p.Epochs = append(p.Epochs, e)
	}
	for k := range demand {
		for _, o := range []struct {
			months int
			price  float64
		}{{1, .85}, {3, .78}, {6, .72}, {12, .644}, {36, .445}} {
			for from := range months {
				to := min(months, from+o.months)
				cost := 0.0
				for m := from; m < to; m++ {
					cost += discount(m) * o.price * local[k%len(local)] * hoursAMonth
				}
				p.Choices = append(p.Choices, joint.Choice{
					ID: fmt.Sprintf("region %d, %d months from %d", k, o.months, from), Cost: at(cost, 1), Max: procurement.Unlimited, Lot: 1,
					Cover: []joint.Cover{{Pool: k, From: from, To: to, Units: 1, Guaranteed: true}},
				})
			}
		}
	}
	return p
}

func gap(s *joint.Solution) float64 { return float(s.Gap()) / float(s.Cost) }

// Four regions with overflow, three years by the hour, are solved to a proven hundredth of a
// percent.
func TestRegions(t *testing.T) {
	p := regions(shavedice(t))
	start := time.Now()
	s, err := joint.Solve(context.Background(), p, lp(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: gap %.4f%%, %+v", time.Since(start), 100*gap(s), s.Work)
	if gap(s) > 1e-4 {
		t.Errorf("cost %s, bound %s: a gap of %g", s.Cost, s.Bound, gap(s))
	}
	judge(t, p, s)
}

// BenchmarkSolve solves four coupled regions of 26,280 hours, and for comparison the same as one
// linear program over bucketed hours with the same solver.
func BenchmarkSolve(b *testing.B) {
	p := regions(shavedice(b))
	warm := lp(b)
	if _, err := warm.Solve(context.Background(), &linear.Program{Start: []int{0}}, linear.Limits{}); err != nil {
		b.Log(err)
	}
	b.Run("4_regions", func(b *testing.B) {
		for b.Loop() {
			s, err := joint.Solve(context.Background(), p, warm)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(gap(s), "gap")
		}
	})
	best, err := joint.Solve(context.Background(), p, warm)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("4_regions_as_one_program_of_1080_buckets", func(b *testing.B) {
		for b.Loop() {
			g := extensive(bucketed(p, 30), nil, false)
			s, err := warm.Solve(context.Background(), g, linear.Limits{})
			if err != nil || s.Status != linear.Optimal {
				b.Fatalf("%v: %v", s, err)
			}
			units := make([]int, len(p.Choices))
			for j := range units {
				units[j] = int(math.Round(s.X[j]))
			}
			ev, err := joint.Evaluate(p, units)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float(ev.Cost)/float(best.Bound)-1, "gap")
		}
	})
}

// bucketed is a problem with at most n slots in each epoch, the means of consecutive slots.
func bucketed(p *joint.Problem, n int) *joint.Problem {
	q := *p
	q.Epochs = slices.Clone(p.Epochs)
	for m := range q.Epochs {
		e := &q.Epochs[m]
		e.Cases = slices.Clone(e.Cases)
		for c := range e.Cases {
			slots := e.Cases[c].Slots
			size := (len(slots) + n - 1) / n
			var out []joint.Slot
			for of := range slices.Chunk(slots, size) {
				s := joint.Slot{Units: make([]int, len(p.Demands))}
				for _, v := range of {
					s.Hours += v.Hours
					for d, u := range v.Units {
						s.Units[d] += u * v.Hours
					}
				}
				for d := range s.Units {
					s.Units[d] = (s.Units[d] + s.Hours/2) / s.Hours
				}
				out = append(out, s)
			}
			e.Cases[c].Slots = out
		}
	}
	return &q
}

// The four regions with every kind of coupling, one after the other. Gaps are measured values,
// rounded up: under a budget that leaves demand unserved, purchases in whole units waste some of
// it.
func TestRegionsOfAllKinds(t *testing.T) {
	long.Only(t, "takes minutes")
	demand := shavedice(t)
	const price = 1_000_000_000
	all := func(v int64) []int64 {
		out := make([]int64, months)
		for m := range out {
			out[m] = v
		}
		return out
	}
	account := func(p *joint.Problem, most int) {
		p.Quotas = []string{"account"}
		for m := range p.Epochs {
			e := &p.Epochs[m]
			e.Quotas = []int{most}
			for i := range e.Pools {
				e.Pools[i].Quota, e.Pools[i].QuotaPerUnit = 0, 1
			}
		}
	}
	for _, kind := range []struct {
		name   string
		gap    float64
		change func(*joint.Problem)
	}{
		{"loss of a region", 1e-4, func(p *joint.Problem) {
			for k := range p.Pools {
				n := joint.Need{ID: "without " + p.Pools[k], Least: 800}
				for m := range months {
					n.Epochs = append(n.Epochs, m)
				}
				for i := range p.Pools {
					if i != k {
						n.Terms = append(n.Terms, joint.NeedTerm{Pool: i, PerUnit: 1})
					}
				}
				p.Needs = append(p.Needs, n)
			}
		}},
		{"quota, spot and prices without capacity", 1e-5, func(p *joint.Problem) {
			account(p, 400)
			for m := range p.Epochs {
				e := &p.Epochs[m]
				for i := range e.Pools {
					p.Demands[i].Interruptible = 300
					e.Pools[i].Spot, e.Cases[0].Spot[i] = e.Pools[i].OnDemand*4/10, 50
				}
			}
			for j := range p.Choices {
				if c := &p.Choices[j]; j%3 == 0 {
					c.Cover[0].Guaranteed, c.Cost = false, c.Cost*8/10
				}
			}
		}},
		{"substitution", 1e-5, func(p *joint.Problem) {
			for i := range p.Routes {
				if r := &p.Routes[i]; r.Demand != r.Pool {
					r.Num, r.Den = 21+r.Demand, 20+r.Pool
				}
			}
		}},
		{"commitment to spend", 1e-5, func(p *joint.Problem) {
			p.Spends = []string{"plan"}
			for m := range p.Epochs {
				e := &p.Epochs[m]
				e.Spends = []procurement.Nano{0}
				for i := range e.Pools {
					e.Pools[i].Spend, e.Pools[i].SpendPrice = 0, e.Pools[i].OnDemand*7/10
				}
			}
			for from := range months {
				c := joint.Choice{ID: "plan", Max: procurement.Unlimited, Lot: 1, Spend: []joint.SpendCover{{Spend: 0, From: from, To: min(months, from+12), PerHour: price}}}
				for m := from; m < c.Spend[0].To; m++ {
					c.Cost += p.Epochs[m].Pools[0].OnDemand * hoursAMonth
				}
				p.Choices = append(p.Choices, c)
			}
		}},
		{"budget", 1e-3, func(p *joint.Problem) {
			p.Limits = []joint.Limit{{ID: "budget", Most: 8_000_000 * price, Serving: all(1000)}}
			for j := range p.Choices {
				p.Choices[j].Spent = []procurement.Nano{p.Choices[j].Cost}
			}
		}},
		{"little unserved", 1e-5, func(p *joint.Problem) {
			account(p, 100)
			for m := range p.Epochs {
				for i := range p.Epochs[m].Shortage {
					p.Epochs[m].Shortage[i] = p.Epochs[m].Pools[i].OnDemand * 2
				}
			}
			p.Limits = []joint.Limit{{ID: "unserved", Unserved: true, Most: 1000, Serving: all(1000)}}
		}},
		{"least orders", 1e-5, func(p *joint.Problem) {
			for j := range p.Choices {
				if j%5 == 4 {
					p.Choices[j].Least = 300
				}
			}
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			p := regions(demand)
			kind.change(p)
			start := time.Now()
			s, err := joint.Solve(context.Background(), p, lp(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: gap %.1e, %+v", time.Since(start), gap(s), s.Work)
			if gap(s) > kind.gap {
				t.Errorf("cost %s, bound %s: a gap of %g", s.Cost, s.Bound, gap(s))
			}
			judge(t, p, s)
		})
	}
}
