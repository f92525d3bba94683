package backtest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
	"quartermaster/simulations/public"
)

// The views of the same demand: each machine type of a region as a pool, and all types of a region
// together.
var views = []struct {
	name string
	of   func([]public.Series) []public.Series
}{
	{"by machine type", func(all []public.Series) []public.Series { return all }},
	{"by region", public.Together},
}

// terminals are the four terminal rules that advice is measured under: a share of the cost beyond
// the end is not charged, and the end is unknown to all, or known and worth nothing.
var terminals = []struct {
	name    string
	salvage string
	known   bool
}{
	{"1", "1", false}, {"0.5", "0.5", false}, {"0", "0", false}, {"0, end known", "0", true},
}

// blocks draws circular blocks of consecutive numbers below n, as many numbers as there are.
func blocks(r *rand.Rand, n, length int) []int {
	out := make([]int, 0, n+length)
	for len(out) < n {
		first := r.IntN(n)
		for i := range length {
			out = append(out, (first+i)%n)
		}
	}
	return out[:n]
}

// middle is the middle 90% of a statistic over bootstraps of blocks.
func middle(n, length int, statistic func(pick []int) float64) (low, high float64) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []float64
	for range 1000 {
		all = append(all, statistic(blocks(r, n, length)))
	}
	slices.Sort(all)
	return all[len(all)/20], all[len(all)-1-len(all)/20]
}

// monthly is the cost of purchases by month: what is charged for a purchase is spread over its months
// within the test.
func monthly(t testing.TB, p *procurement.Pool, bought []procurement.Purchase) []float64 {
	t.Helper()
	ev, err := procurement.Evaluate(p, bought)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, len(p.Epochs))
	for m := range ev.Epochs {
		s, e := &ev.Epochs[m], &p.Epochs[m]
		out[m] = float64(s.Spot)*max(0, float64(e.Spot)) + float64(s.OnDemand)*float64(e.OnDemand) +
			float64(s.Shortage)*float64(e.Shortage)
	}
	for _, b := range bought {
		o := &p.Offers[b.Offer]
		i := slices.IndexFunc(o.Starts, func(s procurement.Start) bool { return s.Epoch == b.Epoch })
		end := min(b.Epoch+o.Term, len(out))
		for m := b.Epoch; m < end; m++ {
			out[m] += float64(o.Starts[i].Cost) * float64(b.Units) / float64(end-b.Epoch)
		}
	}
	return out
}

// measured are the costs of an alternative by region, terminal rule and month, and those of perfect
// foresight.
type measured struct{ cost, least [][]float64 }

// TestAdvice prints the regret of every alternative under four terminal rules, with intervals that
// are block bootstraps over months.
func TestAdvice(t *testing.T) {
	long.Only(t, "regret by four terminal rules in two views")
	advise(t, public.Shavedice(t))
}

// TestExamination prints the same, and the coverage of forecasts, of the two regions that no method was
// tuned on. It needs their file ([public.ShavediceUnseenFile]).
func TestExamination(t *testing.T) {
	long.Only(t, "regret and coverage on the regions that were not seen")
	all := public.ShavediceUnseen(t)
	advise(t, all)
	cover(t, all, false)
}

// regionsOf are sorted.
func regionsOf(all []public.Series) (out []string) {
	for i := range all {
		out = append(out, all[i].Region)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func advise(t *testing.T, all []public.Series) {
	for _, view := range views {
		q := question("2021-08-01", "2024-02-01", shavedice(view.of(all)))
		q.PlanSalvage, q.Life = nil, forecast.Life
		months, err := q.check()
		if err != nil {
			t.Fatal(err)
		}
		tests, err := q.decide(context.Background(), months)
		if err != nil {
			t.Fatal(err)
		}
		regions := append(regionsOf(all), "")
		names := Alternatives()
		for _, region := range regions {
			var out strings.Builder
			fmt.Fprintf(&out, "%s, region %s:\n%-13s", view.name, region, "")
			for _, rule := range terminals {
				fmt.Fprintf(&out, "  %20s", rule.name)
			}
			fmt.Fprintf(&out, "  %20s  %s\n", "mean", "worst excess over best")
			sums := make([]measured, len(names))
			for i := range names {
				sums[i] = sum4(t, q, tests, region, i, len(months))
			}
			best := make([]float64, len(terminals))
			for k := range terminals {
				for i := range names {
					if r := ratio(sums[i].cost[k], sums[i].least[k], nil); i == 0 || r < best[k] {
						best[k] = r
					}
				}
			}
			// What the plan would have if somebody had known that nothing counts beyond the end.
			sums = append(sums, sum4(t, q, tests, region, 0, len(months)-lateMonths))
			for i, name := range append(slices.Clone(names), fmt.Sprintf("plan to %d", len(months)-lateMonths)) {
				fmt.Fprintf(&out, "%-13s", name)
				worst := 0.0
				mean := func(pick []int) float64 {
					x := 0.0
					for k := range terminals {
						x += ratio(sums[i].cost[k], sums[i].least[k], pick) / float64(len(terminals))
					}
					return x
				}
				for k := range terminals {
					at := func(pick []int) float64 { return ratio(sums[i].cost[k], sums[i].least[k], pick) }
					low, high := middle(len(months), 6, at)
					worst = max(worst, at(nil)-best[k])
					fmt.Fprintf(&out, "  %5.1f%% (%4.0f to %4.0f)", 100*at(nil), 100*low, 100*high)
				}
				low, high := middle(len(months), 6, mean)
				fmt.Fprintf(&out, "  %5.1f%% (%4.0f to %4.0f)  %5.1f\n", 100*mean(nil), 100*low, 100*high, 100*worst)
			}
			t.Log(out.String())
		}
	}
}

// lateMonths are those at the end in which hardly a one-year term pays if all of it is charged.
const lateMonths = 8

// sum4 adds up an alternative over the pools of a region, all if it is "". Without a known end, what it
// buys from a month on is left out.
func sum4(t *testing.T, q *Question, tests []*test, region string, alternative, until int) measured {
	var out measured
	for _, rule := range terminals {
		i := slices.IndexFunc(q.salvages(), decimal.RequireFromString(rule.salvage).Equal)
		set := 0
		if rule.known {
			set = 1 + i
		}
		var cost, least []float64
		for _, x := range tests {
			if region != "" && x.pool.Region != region {
				continue
			}
			add := func(to []float64, more []float64) []float64 {
				if to == nil {
					return more
				}
				for m := range to {
					to[m] += more[m]
				}
				return to
			}
			p := x.books[i].past
			bought := x.sets[set].bought[alternative]
			if !rule.known {
				bought = slices.DeleteFunc(slices.Clone(bought), func(b procurement.Purchase) bool { return b.Epoch >= until })
			}
			cost = add(cost, monthly(t, p, bought))
			least = add(least, monthly(t, p, x.books[i].foresight.Purchases))
		}
		out.cost, out.least = append(out.cost, cost), append(out.least, least)
	}
	return out
}

// ratio is the regret over the picked months, all if nil.
func ratio(cost, least []float64, pick []int) float64 {
	a, b := 0.0, 0.0
	for m := range cost {
		if pick != nil {
			m = pick[m]
		}
		a, b = a+cost[m], b+least[m]
	}
	return a/b - 1
}

func mean(v []int64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x)
	}
	return sum / float64(len(v))
}

// added is demand hour by hour.
func added(series [][]int64) []int64 {
	out := slices.Clone(series[0])
	for _, s := range series[1:] {
		for h, v := range s {
			out[h] += v
		}
	}
	return out
}

// TestCoverage prints how often demand lies in the intervals of forecasts made at starts of months,
// with a block bootstrap over them, and the error of the forecasts: of pools, of their sums by region and of
// the total. A pool counts from when it has a unit of demand. CI_LONG=1 takes every month instead of every
// fourth.
func TestCoverage(t *testing.T) { cover(t, public.Shavedice(t), true) }

// cover fails if it is judged and a quantile does not hold.
func cover(t *testing.T, all []public.Series, judged bool) {
	months, err := Months(at("2021-08-01"), at("2024-02-01"))
	if err != nil {
		t.Fatal(err)
	}
	type counted struct{ hours, within, below, width, level, error float64 }
	const near, far = 4 * forecast.Week, 13 * forecast.Week
	for _, view := range views {
		regions := map[string][]public.Series{}
		for _, s := range view.of(all) {
			regions[s.Region] = append(regions[s.Region], s)
		}
		sums := map[string][]counted{} // by region and horizon
		count := func(name string, m, from int, f *forecast.Forecast, milli []int64) {
			low, p90, high := f.At(50), f.At(900), f.At(950)
			for _, part := range [][2]int{{0, near}, {near, far}} {
				key := fmt.Sprintf("%-9s weeks %2d to %2d", name, part[0]/forecast.Week+1, part[1]/forecast.Week)
				if sums[key] == nil {
					sums[key] = make([]counted, len(months))
				}
				c := &sums[key][m]
				for h := part[0]; h < part[1]; h++ {
					a := milli[from+h]
					c.hours++
					c.level += float64(a)
					c.width += float64(high[h]-low[h]) / 2
					if low[h] <= a && a <= high[h] {
						c.within++
					}
					if a <= p90[h] {
						c.below++
					}
					c.error += math.Abs(float64(f.Point[h] - a))
				}
			}
		}
		for m, span := range months {
			from := int((span.From - public.ShavediceFrom) / domain.Hour)
			if from+far > public.ShavediceHours || !long.Run() && m%4 != 0 {
				continue
			}
			var forecasts []*forecast.Forecast
			var actual [][]int64
			for _, region := range regionsOf(all) {
				var parts []*forecast.Question
				for _, s := range regions[region] {
					parts = append(parts, &forecast.Question{From: public.ShavediceFrom, History: s.Milli()[:from], Weeks: 13})
				}
				made, errs := forecast.Together(parts)
				for i, f := range made {
					if errs[i] != nil {
						t.Fatal(errs[i])
					}
					milli := regions[region][i].Milli()
					forecasts, actual = append(forecasts, f), append(actual, milli)
					if mean(milli[from-near:from]) >= 1000 {
						count(region, m, from, f, milli)
						count("both", m, from, f, milli)
					}
				}
				sum := forecast.Sum(forecasts[len(forecasts)-len(made):])
				count(region+", sum", m, from, sum, added(actual[len(actual)-len(made):]))
				count("both, sum", m, from, sum, added(actual[len(actual)-len(made):]))
			}
			count("total", m, from, forecast.Sum(forecasts), added(actual))
		}
		for _, key := range slices.Sorted(maps.Keys(sums)) {
			x := slices.DeleteFunc(sums[key], func(c counted) bool { return c.hours == 0 })
			share := func(of func(*counted) (float64, float64)) func([]int) float64 {
				return func(pick []int) float64 {
					a, b := 0.0, 0.0
					for m := range x {
						if pick != nil {
							m = pick[m]
						}
						n, d := of(&x[m])
						a, b = a+n, b+d
					}
					return a / b
				}
			}
			within := share(func(c *counted) (float64, float64) { return c.within, c.hours })
			below := share(func(c *counted) (float64, float64) { return c.below, c.hours })
			width := share(func(c *counted) (float64, float64) { return c.width, c.level })
			off := share(func(c *counted) (float64, float64) { return c.error, c.level })
			l1, h1 := middle(len(x), 4, within)
			l2, h2 := middle(len(x), 4, below)
			t.Logf("%-15s %s: 5%% to 95%% covers %.1f%% (%.1f to %.1f), P90 %.1f%% (%.1f to %.1f), half-width %.1f%% of demand; "+
				"error %.2f%%", view.name, key, 100*within(nil), 100*l1, 100*h1, 100*below(nil), 100*l2, 100*h2,
				100*width(nil), 100*off(nil))
			if !judged {
				continue
			}
			if p := below(nil); p < 0.82 || p > 0.98 {
				t.Errorf("%s, %s: P90 covers %.1f%%", view.name, key, 100*p)
			}
			if strings.Contains(key, "both") && long.Run() && (l2 > 0.9 || h2 < 0.9) {
				t.Errorf("%s, %s: P90 covers %.1f to %.1f%%, which 90%% is not within", view.name, key, 100*l2, 100*h2)
			}
		}
	}
}
