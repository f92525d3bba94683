package baseline_test

import (
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/baseline"
)

const none = procurement.Unlimited

// pool has epochs of 10 hours, on-demand at 100 an hour, nothing held and no
// demand.
func pool(epochs int, offers ...procurement.Offer) *procurement.Pool {
	p := &procurement.Pool{ID: "p", Offers: offers}
	for m := range epochs {
		p.Epochs = append(p.Epochs, procurement.Epoch{
			Span:     domain.Interval{From: domain.Instant(m) * 10 * domain.Hour, To: domain.Instant(m+1) * 10 * domain.Hour},
			OnDemand: 100, Spot: -1, Shortage: 1000, Quota: none,
		})
	}
	return p
}

// offer can begin in the epochs from first on, at a given cost for each epoch.
func offer(id string, guaranteed bool, term, first, epochs int, each procurement.Nano) procurement.Offer {
	o := procurement.Offer{ID: id, Guaranteed: guaranteed, Term: term}
	for m := first; m < epochs; m++ {
		o.Starts = append(o.Starts, procurement.Start{Epoch: m, Cost: each * procurement.Nano(min(term, epochs-m)), Max: none})
	}
	return o
}

func show(c baseline.Baseline) string {
	return fmt.Sprintf("%s: %d hours, offer %d, %d units, %v", c.Name(), c.Hours, c.Offer, c.Units, c.Purchases)
}

func want(t *testing.T, c baseline.Baseline, want string) {
	t.Helper()
	if got := show(c); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

// A day of usage, by hand: 10 hours of 8 units, 8 of 5, 6 of 2. On-demand is 100 an hour, a
// commitment of two epochs 60. A unit pays if used in more than 60% of 24 hours, 14.4. That holds
// for the lower 5: 18 hours use 5 or more.
func TestLookBackByHand(t *testing.T) {
	past := slices.Concat(slices.Repeat([]int{8}, 10), slices.Repeat([]int{5}, 8), slices.Repeat([]int{2}, 6))
	p := pool(6, offer("two", true, 2, 1, 6, 600))
	want(t, baseline.LookBack(p, past, 7), "lookback_7d: 24 hours, offer 0, 5 units, [{0 1 5} {0 3 5} {0 5 5}]")

	// What is held at the start covers 3 of each hour: 5, 2 and 0 are left.
	p.Epochs[1].HeldGuaranteed, p.Epochs[1].HeldDiscountOnly = 1, 2
	want(t, baseline.LookBack(p, past, 7), "lookback_7d: 24 hours, offer 0, 2 units, [{0 1 2} {0 3 2} {0 5 2}]")
	p.Epochs[1].HeldGuaranteed, p.Epochs[1].HeldDiscountOnly = 0, 0

	// Spot at 40 carries half of each hour, rounded down: 4, 3 and 1 are left. At 100
	// it is not cheaper and carries none.
	p.Epochs[1].Spot, p.Epochs[1].SpotPermille = 40, 500
	want(t, baseline.LookBack(p, past, 7), "lookback_7d: 24 hours, offer 0, 3 units, [{0 1 3} {0 3 3} {0 5 3}]")
	p.Epochs[1].Spot = 100
	want(t, baseline.LookBack(p, past, 7), "lookback_7d: 24 hours, offer 0, 5 units, [{0 1 5} {0 3 5} {0 5 5}]")

	// At exactly 75%, 18 of 24 hours, a unit used in 18 hours makes no difference
	// and is not bought: 2 units are used in all hours.
	for i := range p.Offers[0].Starts {
		p.Offers[0].Starts[i].Cost = p.Offers[0].Starts[i].Cost / 600 * 750
	}
	want(t, baseline.LookBack(p, past, 7), "lookback_7d: 24 hours, offer 0, 2 units, [{0 1 2} {0 3 2} {0 5 2}]")

	// A start sells 1, the next ones all that is wanted.
	p.Offers[0].Starts[0].Max = 1
	want(t, baseline.LookBack(p, past, 7), "lookback_7d: 24 hours, offer 0, 1 units, [{0 1 1} {0 3 1} {0 5 1}]")

	// Unobserved days do not count, and seven days reach back no further.
	old := slices.Concat(slices.Repeat([]int{99}, 24), slices.Repeat([]int{-1}, 6*24), past)
	want(t, baseline.LookBack(p, old, 7), "lookback_7d: 24 hours, offer 0, 1 units, [{0 1 1} {0 3 1} {0 5 1}]")
	want(t, baseline.LookBack(p, nil, 30), "lookback_30d: 0 hours, offer -1, 0 units, []")
	want(t, baseline.LookBack(pool(3), past, 60), "lookback_60d: 24 hours, offer -1, 0 units, []")
}

// lookBackOf has one offer to choose.
func lookBackOf(p *procurement.Pool, past []int, days, offer int) baseline.Baseline {
	only := *p
	only.Offers = p.Offers[offer : offer+1]
	return baseline.LookBack(&only, past, days)
}

// Of two offers the one that saves more per hour is taken, at its own level. The short one at 90
// pays if used in more than 21.6 hours, which 2 units are, and saves 2·10 an hour. The long one at
// 60 saves (100·(18·5 + 6·2) − 24·60·5)/24 = 125.
func TestLookBackTakesTheBestOffer(t *testing.T) {
	past := slices.Concat(slices.Repeat([]int{8}, 10), slices.Repeat([]int{5}, 8), slices.Repeat([]int{2}, 6))
	short, long := offer("short", true, 1, 0, 4, 900), offer("long", false, 4, 0, 4, 600)
	want(t, baseline.LookBack(pool(4, short, long), past, 7), "lookback_7d: 24 hours, offer 1, 5 units, [{1 0 5}]")
	want(t, baseline.LookBack(pool(4, long, short), past, 7), "lookback_7d: 24 hours, offer 0, 5 units, [{0 0 5}]")
	want(t, lookBackOf(pool(4, short, long), past, 7, 0), "lookback_7d: 24 hours, offer 0, 2 units, [{0 0 2} {0 1 2} {0 2 2} {0 3 2}]")
	// If on-demand gets cheaper over the term, the long one saves less: 100, 50, 0 and none are
	// 37.5 on average, below its 60.
	p := pool(4, short, long)
	p.Epochs[1].OnDemand, p.Epochs[2].OnDemand, p.Epochs[3].OnDemand = 50, 0, -1
	want(t, baseline.LookBack(p, past, 7), "lookback_7d: 24 hours, offer 0, 2 units, [{0 0 2} {0 1 2} {0 2 2} {0 3 2}]")
	// The same price for longer: the shorter term, whatever the order.
	even := []procurement.Offer{offer("a", true, 2, 0, 4, 600), offer("b", true, 1, 0, 4, 600), offer("c", true, 1, 0, 4, 600)}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		p := pool(4, even[order[0]], even[order[1]], even[order[2]])
		if c := baseline.LookBack(p, past, 7); p.Offers[c.Offer].ID != "b" {
			t.Errorf("of %v %s was taken", order, p.Offers[c.Offer].ID)
		}
	}
}

// Seven units of a term of four epochs in three parts: three at once, two after
// 4/3 and two after 8/3 epochs, and each again after four.
func TestLadderByHand(t *testing.T) {
	p := pool(10, offer("o", true, 4, 1, 10, 500))
	past := slices.Repeat([]int{7}, 48)
	want(t, baseline.Ladders(p, past, 60, 3), "ladder_60d: 48 hours, offer 0, 7 units, [{0 1 3} {0 2 2} {0 3 2} {0 5 3} {0 6 2} {0 7 2} {0 9 3}]")
	// No more parts than epochs of the term, nor than units.
	if c := baseline.Ladders(p, past, 60, 12); c.Parts != 4 {
		t.Errorf("%d parts", c.Parts)
	}
	if c := baseline.Ladders(p, []int{2}, 60, 12); c.Parts != 2 {
		t.Errorf("%d parts", c.Parts)
	}
	want(t, baseline.Ladders(p, nil, 60, 3), "ladder_60d: 0 hours, offer -1, 0 units, []")
	// A term far beyond the horizon: its later parts are not bought.
	long := pool(3, offer("long", true, 1<<62, 0, 3, 500))
	want(t, baseline.Ladders(long, past, 60, 7), "ladder_60d: 48 hours, offer 0, 7 units, [{0 0 1}]")
}

// The peak of 9 with 4 held in the first two epochs, from epoch 1 on: 5 of the cheaper offer, which
// sells 3 per start, and of the dearer; then again.
func TestPeakByHand(t *testing.T) {
	cheap, dear := offer("cheap", true, 2, 1, 4, 500), offer("dear", true, 3, 1, 4, 700)
	for i := range cheap.Starts {
		cheap.Starts[i].Max = 3
	}
	p := pool(4, dear, offer("discount-only", false, 1, 0, 4, 1), cheap)
	p.Epochs[0].HeldGuaranteed, p.Epochs[1].HeldGuaranteed, p.Epochs[1].HeldDiscountOnly = 4, 4, 9
	past := []int{100, 3, 9, -1, 5}
	past = append(slices.Repeat([]int{1}, 60*24-4), past[1:]...)
	// Epoch 1: 5 are missing, 3 cheap and 2 dear, to epochs 2 and 3. Epoch 2: 4 more,
	// 3 cheap and 1 dear. Epoch 3: 3 cheap have ended, and come again.
	want(t, baseline.PeakReserved(p, past, 60), "peak_60d: 1439 hours, offer -1, 9 units, [{0 1 2} {0 2 1} {2 1 3} {2 2 3} {2 3 3}]")
	// Without guaranteed offers discount-only commitments are bought, in addition to all that is
	// held.
	p.Offers = p.Offers[1:2]
	want(t, baseline.PeakReserved(p, past, 60), "peak_60d: 1439 hours, offer -1, 9 units, [{0 0 5} {0 2 9} {0 3 9}]")
	want(t, baseline.PeakReserved(p, nil, 60), "peak_60d: 0 hours, offer -1, 0 units, []")
}

// Two epochs of 10 units over 10 hours, 4 held in the first, half on spot at 40.
func TestCurrentAndOnDemandByHand(t *testing.T) {
	p := pool(2)
	for m := range p.Epochs {
		e := &p.Epochs[m]
		e.Demand, e.Spot, e.SpotPermille = []procurement.Step{{Units: 10, Hours: 10}}, 40, 500
	}
	p.Epochs[0].HeldGuaranteed, p.Epochs[1].Quota = 4, 7
	for i, cost := range []int64{
		// 5 on spot and 1 on demand; 5 on spot and 5 on demand.
		10*(5*40+1*100) + 10*(5*40+5*100),
		// 10 on demand; 7 on demand and 3 short.
		10*10*100 + 10*(7*100+3*1000),
	} {
		c := all(p, nil)[i]
		ev, err := c.Evaluate(p)
		if err != nil || ev.Cost.Int64() != cost {
			t.Errorf("%s costs %v, want %d: %v", c.Name(), ev, cost, err)
		}
	}
	if p.Epochs[0].HeldGuaranteed != 4 || p.Epochs[0].Spot != 40 {
		t.Errorf("the pool changed: %+v", p.Epochs[0])
	}
}

// drawn draws a pool with demand, offers of all kinds and what was observed.
func drawn(t *rapid.T) (*procurement.Pool, []int) {
	n := func(low, high int, label string) int { return rapid.IntRange(low, high).Draw(t, label) }
	epochs := n(1, 8, "epochs")
	p := pool(epochs)
	for m := range p.Epochs {
		e := &p.Epochs[m]
		e.OnDemand, e.Spot = procurement.Nano(n(-1, 100, "on-demand")), procurement.Nano(n(-1, 100, "spot"))
		e.SpotPermille, e.Quota = n(0, 4, "permille")*250, n(none, 12, "quota")
		e.HeldGuaranteed, e.HeldDiscountOnly = n(0, 3, "held"), n(0, 3, "held discount-only")
		e.Demand = []procurement.Step{{Units: n(1, 9, "units"), Hours: 10}}
	}
	for i := range n(0, 4, "offers") {
		o := offer(fmt.Sprint("offer-", i%3), n(0, 1, "guaranteed") == 1, n(1, 9, "term"), n(0, epochs-1, "first"), epochs, procurement.Nano(n(0, 1000, "each")))
		for j := range o.Starts {
			o.Starts[j].Max = []int{none, n(0, 9, "max")}[n(0, 1, "limited")]
		}
		o.Starts = slices.DeleteFunc(o.Starts, func(procurement.Start) bool { return n(0, 4, "not here") == 0 })
		p.Offers = append(p.Offers, o)
	}
	return p, rapid.SliceOfN(rapid.IntRange(-1, 12), 0, 30).Draw(t, "past")
}

// No other level of the offer would have saved more. For every level, the past is served hour by
// hour by a pool of one epoch that lasts one hour.
func TestBestLevelByForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, past := drawn(t)
		if len(p.Offers) == 0 || len(p.Offers[0].Starts) == 0 {
			return
		}
		o := &p.Offers[0]
		s := o.Starts[0]
		first := p.Epochs[s.Epoch]
		length, onDemand := int64(0), int64(0)
		for m := s.Epoch; m < min(s.Epoch+o.Term, len(p.Epochs)); m++ {
			length += 10
			onDemand += 10 * int64(max(0, p.Epochs[m].OnDemand))
		}
		// Money in units of 1/length: a unit on demand costs onDemand an hour, and one
		// committed the cost of the start.
		cost := func(units int) (sum int64) {
			for _, u := range past {
				if u < 0 {
					continue
				}
				spot := 0
				if 0 <= first.Spot && first.Spot < first.OnDemand {
					spot = u * first.SpotPermille / 1000
				}
				e := procurement.Epoch{Demand: []procurement.Step{{Units: max(0, u-spot), Hours: 1}}, OnDemand: procurement.Nano(onDemand), Spot: -1, Shortage: procurement.Nano(onDemand), Quota: none, HeldGuaranteed: first.HeldGuaranteed + first.HeldDiscountOnly + units}
				ev, err := procurement.Evaluate(&procurement.Pool{Epochs: []procurement.Epoch{e}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				sum += ev.Cost.Int64() + int64(s.Cost)*int64(units)
			}
			return sum
		}
		best, most := 0, 13
		if s.Max != none {
			most = min(most, s.Max)
		}
		for units := range most + 1 {
			if cost(units) < cost(best) {
				best = units
			}
		}
		c := lookBackOf(p, past, 60, 0)
		if c.Units != best {
			t.Fatalf("%d units, at %d; by force %d at %d", c.Units, cost(c.Units), best, cost(best))
		}
		// No other offer saves more per hour.
		saving := func(i int) *big.Rat {
			c := lookBackOf(p, past, 60, i)
			if c.Units == 0 {
				return new(big.Rat)
			}
			old := p.Offers[0]
			defer func() { p.Offers[0] = old }()
			p.Offers[0] = p.Offers[i]
			o, s = &p.Offers[0], p.Offers[0].Starts[0]
			first, length, onDemand = p.Epochs[s.Epoch], 0, 0
			for m := s.Epoch; m < min(s.Epoch+o.Term, len(p.Epochs)); m++ {
				length += 10
				onDemand += 10 * int64(max(0, p.Epochs[m].OnDemand))
			}
			return big.NewRat(cost(0)-cost(c.Units), length)
		}
		all := baseline.LookBack(p, past, 60)
		got := new(big.Rat)
		if all.Offer >= 0 {
			got = saving(all.Offer)
		}
		for i := range p.Offers {
			if v := saving(i); v.Cmp(got) > 0 {
				t.Fatalf("offer %d saves %s, offer %d, which was taken, %s", i, v, all.Offer, got)
			}
		}
	})
}

// Every baseline can be bought, costs no less than the best plan, and does not depend on the
// horizon's demand.
func TestBaselines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, past := drawn(t)
		baselines := all(p, past)
		var names []string
		s, err := procurement.Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range baselines {
			names = append(names, c.Name())
			ev, err := c.Evaluate(p)
			if err != nil {
				t.Fatal(err)
			}
			if c.Rule != baseline.OnDemand && ev.Cost.Cmp(s.Bound) < 0 {
				t.Fatalf("%s costs %d, below the bound %d", c.Name(), ev.Cost, s.Bound)
			}
		}
		if want := []string{"buy_nothing", "on_demand", "lookback_7d", "lookback_30d", "lookback_60d", "ladder_60d", "peak_60d"}; !slices.Equal(names, want) {
			t.Fatalf("baselines %v", names)
		}
		for m := range p.Epochs {
			e := &p.Epochs[m]
			e.Demand = nil
			e.Cases = []procurement.Case{{Demand: []procurement.Step{{Units: 500, Hours: 3}}}, {SpotUnits: none}}
		}
		p.Weights = []int{1, 2}
		if again := all(p, past); !reflect.DeepEqual(baselines, again) {
			t.Fatalf("with other demand\n%+v\ninstead of\n%+v", again, baselines)
		}
	})
}

// If an offer sells without limit in every epoch, the peak is reserved in all.
func TestPeakIsCovered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, past := drawn(t)
		p.Offers = append(p.Offers, offer("plenty", true, rapid.IntRange(1, 9).Draw(t, "term"), 0, len(p.Epochs), 500))
		c := baseline.PeakReserved(p, past, 60)
		if c.Hours == 0 {
			return
		}
		for m := range p.Epochs {
			covered := p.Epochs[m].HeldGuaranteed
			for _, b := range c.Purchases {
				if o := &p.Offers[b.Offer]; o.Guaranteed && b.Epoch <= m && m < b.Epoch+o.Term {
					covered += b.Units
				}
			}
			if covered < c.Units {
				t.Fatalf("epoch %d: %d of %d: %+v", m, covered, c.Units, c)
			}
		}
	})
}

// all are the baselines of a pool.
func all(p *procurement.Pool, past []int) []baseline.Baseline {
	out := []baseline.Baseline{{Rule: baseline.BuyNothing, Offer: -1}, {Rule: baseline.OnDemand, Offer: -1}}
	for _, days := range []int{7, 30, 60} {
		out = append(out, baseline.LookBack(p, past, days))
	}
	return append(out, baseline.Ladders(p, past, 60, 12), baseline.PeakReserved(p, past, 60))
}
