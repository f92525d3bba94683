package check_test

import (
	"fmt"
	"math/big"
	"slices"
	"syscall"
	"testing"
	"time"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/check"
	"quartermaster/simulations/public"
)

// BenchmarkThousandPools goes from hourly demand to checked solutions: 1,000
// pools, 3 years of 26,280 hours, 50 offers that can begin in each month. Every
// answer is exact.
func BenchmarkThousandPools(b *testing.B) {
	demand := shavedice(b)
	const pools = 1000
	for b.Loop() {
		var spent, checking time.Duration
		pushes := 0
		gap := new(big.Rat)
		for k := range pools {
			hours := varied(demand, k)
			before := cpu(b)
			p := offered(hours, k)
			s := solve(b, p)
			solved := cpu(b)
			r, err := check.Check(p, s)
			if err != nil {
				b.Fatal(err)
			}
			after := cpu(b)
			spent += after - before
			checking += after - solved
			pushes += s.Work.Pushes
			if g := r.Ratio(); g.Cmp(gap) > 0 {
				gap = g
			}
		}
		widest, _ := gap.Float64()
		b.ReportMetric(spent.Seconds(), "cpu-s")
		b.ReportMetric(checking.Seconds(), "check-cpu-s")
		b.ReportMetric(float64(pushes)/pools, "pushes/pool")
		b.ReportMetric(widest, "widest-gap")
		if gap.Sign() != 0 {
			b.Errorf("a gap of %g", widest)
		}
	}
}

// BenchmarkScenarios is one pool with 200 scenarios of three years, from hourly demand in each to
// the checked solution.
func BenchmarkScenarios(b *testing.B) {
	demand := shavedice(b)
	for b.Loop() {
		ways := make([][]int, 200)
		for i := range ways {
			ways[i] = varied(demand, i*len(demand))
		}
		before := cpu(b)
		p := offered(ways[0], 0)
		for m := range p.Epochs {
			p.Epochs[m].Demand = nil
			for i := range ways {
				p.Epochs[m].Cases = append(p.Epochs[m].Cases, procurement.Case{Demand: procurement.Steps(ways[i][m*730 : (m+1)*730]), SpotUnits: 20 + i})
			}
		}
		for range ways {
			p.Weights = append(p.Weights, 1)
		}
		s := solve(b, p)
		solved := cpu(b)
		if _, err := check.Check(p, s); err != nil {
			b.Fatal(err)
		}
		after := cpu(b)
		b.ReportMetric((after - before).Seconds(), "cpu-s")
		b.ReportMetric((after - solved).Seconds(), "check-cpu-s")
		b.ReportMetric(float64(s.Work.Pushes), "pushes")
		if !s.Exact {
			b.Errorf("cost %d, bound %d", s.Cost, s.Bound)
		}
	}
}

// cpu is the processor time that this process has used.
func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// varied is demand like that of another pool: the sum of two series, each starting at a different
// point of the three years, with a peak of 100 to 2,000 units and a few units of noise.
func varied(demand [][]int, k int) []int {
	a, b := demand[k%len(demand)], demand[(k/len(demand)+k)%len(demand)]
	want := 100 + k*7919%1901
	share := want * (20 + k%3*25) / 100
	topA, topB := slices.Max(a), slices.Max(b)
	out := make([]int, len(a))
	noise := uint64(k)
	for i := range out {
		noise = noise*6364136223846793005 + 1442695040888963407
		out[i] = a[(i+k*37)%len(a)]*(want-share)/topA + b[(i+k*53)%len(b)]*share/topB + int(noise>>60)
	}
	return out
}

// offered is the pool of some demand: ten terms of 1 to 36 months from each of
// five suppliers, with leads of 0 to 4 months and prices that decline, some
// limited.
func offered(hours []int, k int) *procurement.Pool {
	const months, month = 36, 730
	p := &procurement.Pool{ID: fmt.Sprintf("pool-%04d", k)}
	for m := range months {
		p.Epochs = append(p.Epochs, procurement.Epoch{
			Span:     domain.Interval{From: domain.Instant(m*month) * domain.Hour, To: domain.Instant((m+1)*month) * domain.Hour},
			Demand:   procurement.Steps(hours[m*month : (m+1)*month]),
			OnDemand: procurement.Nano(2_500_000_000 - 5_000_000*m), Spot: 1_300_000_000, Shortage: 20_000_000_000,
			SpotPermille: 50 * (k % 5), Quota: 100 + k%400, HeldGuaranteed: max(0, 40-2*m),
		})
	}
	for supplier := range 5 {
		for _, term := range []struct{ months, permille int }{
			{1, 900}, {2, 870}, {3, 840}, {6, 760}, {9, 700}, {12, 640}, {18, 550}, {24, 480}, {30, 460}, {36, 445},
		} {
			o := procurement.Offer{ID: fmt.Sprintf("supplier-%d %d months", supplier, term.months), Guaranteed: true, Term: term.months}
			hourly := 2_500_000*procurement.Nano(term.permille) + procurement.Nano((supplier*31+k*17+term.months*7)%41-20)*4_000_000
			for m := supplier; m < months; m++ {
				s := procurement.Start{Epoch: m, Max: procurement.Unlimited}
				if supplier%2 == 1 {
					s.Max = 20 + 10*term.months
				}
				s.Cost = (hourly - hourly/200*procurement.Nano(m)) * procurement.Nano(month*min(term.months, months-m))
				o.Starts = append(o.Starts, s)
			}
			p.Offers = append(p.Offers, o)
		}
	}
	return p
}

// shavedice reads three years of hourly demand of some 24 machine types. Without the
// data, series with a trend, a day, a week and noise stand in for them.
func shavedice(t testing.TB) (demand [][]int) {
	t.Helper()
	if public.Has(t, public.ShavediceFile) {
		for _, s := range public.Shavedice(t) {
			demand = append(demand, s.Units)
		}
		return demand
	}
	for k := range 24 {
		series, noise := make([]int, public.ShavediceHours), uint64(k)
		for h := range series {
			noise = noise*6364136223846793005 + 1442695040888963407
			series[h] = 300 + h*(k%7)/60 + 20*(k%5)*(h/24%7/5) + 5*(12-max(h%24, 24-h%24)) + int(noise>>57)
		}
		demand = append(demand, series)
	}
	return demand
}
