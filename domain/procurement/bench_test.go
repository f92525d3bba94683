package procurement_test

import (
	"fmt"
	"math"
	"math/big"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// realistic is the hourly demand of three years, cut into epochs, and a pool for
// it: growth from hundreds to some 2,000 units, a day and a week, and noise from
// a fixed congruence. Twelve offers have terms of 1 to 36 months at several
// levels of payment, and begin in any epoch after a lead of up to two months. In
// a pool that mixes, every other offer is discount-only at 88% of the price, and the
// quota is well below demand.
func realistic(seed uint64, epochs int, mixes bool) (hours [][]int, pool func([][]procurement.Step) *procurement.Pool) {
	const days = 1095
	hours = make([][]int, epochs)
	noise := seed
	for d := range days {
		e := &hours[d*epochs/days]
		for h := range 24 {
			noise = noise*6364136223846793005 + 1442695040888963407
			level := 400 + 1000*float64(d)/days + 200*math.Sin(float64(d)/60)
			day := 1 + 0.25*math.Sin(float64(h-9)*math.Pi/12)
			if d%7 >= 5 {
				day *= 0.85
			}
			*e = append(*e, int(level*day)+int(noise>>58))
		}
	}
	pool = func(steps [][]procurement.Step) *procurement.Pool {
		p := &procurement.Pool{ID: fmt.Sprintf("realistic-%d", seed)}
		month := len(steps) / 36
		at := domain.Instant(0)
		for m, st := range steps {
			end := at + domain.Instant(len(hours[m]))*domain.Hour
			e := procurement.Epoch{
				Span: domain.Interval{From: at, To: end}, Demand: st,
				OnDemand: 2_500_000_000 - procurement.Nano(5_000_000*m/month), Spot: 1_300_000_000, Shortage: 20_000_000_000,
				SpotPermille: 150, Quota: 600, HeldGuaranteed: max(0, 200-10*m/month),
			}
			if mixes {
				e.Quota, e.HeldDiscountOnly = 300+m/month*11%150, 50
			}
			p.Epochs = append(p.Epochs, e)
			at = end
		}
		for i, o := range []struct{ months, permille int }{
			{1, 900}, {1, 950}, {3, 850}, {3, 820}, {6, 760}, {6, 740}, {12, 644}, {12, 550}, {12, 539}, {24, 480}, {36, 445}, {36, 357},
		} {
			offer := procurement.Offer{ID: fmt.Sprintf("offer-%02d", i), Guaranteed: true, Term: o.months * month}
			price := procurement.Nano(2_500_000 * o.permille)
			if mixes && i%2 == 1 {
				offer.Guaranteed = false
				price = price * 88 / 100
			}
			for e := i % 3 * month; e < len(steps); e++ {
				span := p.Epochs[min(e+offer.Term, len(steps))-1].Span.To - p.Epochs[e].Span.From
				offer.Starts = append(offer.Starts, procurement.Start{Epoch: e, Cost: procurement.Nano(span/domain.Hour) * price, Max: procurement.Unlimited})
			}
			p.Offers = append(p.Offers, offer)
		}
		return p
	}
	return hours, pool
}

func steps(hours [][]int) [][]procurement.Step {
	out := make([][]procurement.Step, len(hours))
	for i, h := range hours {
		out[i] = procurement.Steps(h)
	}
	return out
}

// BenchmarkSolve takes hourly demand, compresses it and solves.
func BenchmarkSolve(b *testing.B) {
	for _, z := range []struct {
		name   string
		epochs int
		mixes  bool
	}{{"36 months", 36, false}, {"1095 days", 1095, false}, {"36 months, mixed", 36, true}, {"156 weeks, mixed", 156, true}, {"1095 days, mixed", 1095, true}} {
		b.Run(z.name, func(b *testing.B) {
			hours, pool := realistic(1, z.epochs, z.mixes)
			b.ReportAllocs()
			var s *procurement.Solution
			for b.Loop() {
				s = solve(b, pool(steps(hours)))
			}
			b.ReportMetric(100*ratio(s.Gap(), s.Cost), "gap-%")
			b.ReportMetric(ratio(constant(b, pool(steps(hours))), s.Cost), "constant/cost")
			b.ReportMetric(float64(s.Work.Pushes), "pushes")
			b.ReportMetric(float64(s.Work.Pivots), "pivots")
		})
	}
}

func ratio(a, b *big.Int) float64 {
	q, _ := new(big.Rat).SetFrac(a, b).Float64()
	return q
}

// constant is the cost of the usual rule: the best number of units of one offer, bought as early as
// possible and again whenever it ends.
func constant(t rapid.TB, p *procurement.Pool) *big.Int {
	var best *big.Int
	top := 0
	for _, e := range p.Epochs {
		if n := len(e.Demand); n > 0 {
			top = max(top, e.Demand[n-1].Units)
		}
	}
	for i, o := range p.Offers {
		cost := func(units int) *big.Int {
			var purchases []procurement.Purchase
			for m := o.Starts[0].Epoch; m < len(p.Epochs) && units > 0; m += o.Term {
				purchases = append(purchases, procurement.Purchase{Offer: i, Epoch: m, Units: units})
			}
			ev, err := procurement.Evaluate(p, purchases)
			if err != nil {
				t.Fatal(err)
			}
			if best == nil || ev.Cost.Cmp(best) < 0 {
				best = ev.Cost
			}
			return ev.Cost
		}
		// The cost is convex in the units.
		cost(sort.Search(top, func(units int) bool { return cost(units+1).Cmp(cost(units)) >= 0 }))
	}
	return best
}

// BenchmarkBeside solves the same pool by a flow and by a general linear solver, process and file
// included, and compares the results. Demand is rounded up to lots of 20 units to help the linear
// solver.
func BenchmarkBeside(b *testing.B) {
	hours, pool := realistic(1, 36, false)
	for _, h := range hours {
		for i := range h {
			h[i] = (h[i] + 19) / 20 * 20
		}
	}
	p := pool(steps(hours))
	s := solve(b, p)
	var ours time.Duration
	b.Run("flow", func(b *testing.B) {
		for b.Loop() {
			s = solve(b, p)
		}
		ours = b.Elapsed() / time.Duration(b.N)
	})
	b.Run("glpsol", func(b *testing.B) {
		var cost float64
		for b.Loop() {
			cost = glpsol(b, []*procurement.Pool{p})[0]
		}
		b.ReportMetric(float64(b.Elapsed()/time.Duration(b.N))/float64(max(ours, 1)), "times-flow")
		exact, _ := s.Cost.Float64()
		if d := cost*million/exact - 1; d > 1e-9 || d < -1e-9 {
			b.Errorf("a flow costs %d, the linear program %.9f millions: apart by %g", s.Cost, cost, d)
		}
	})
}
