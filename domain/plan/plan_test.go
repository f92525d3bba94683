package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/adapters/highs"
	"quartermaster/domain"
	"quartermaster/domain/linear"
)

func at(s string) domain.Instant {
	t, err := domain.ParseInstant(s + "T00:00:00Z")
	if err != nil {
		panic(err)
	}
	return t
}

func dec(s string) domain.Decimal { return decimal.RequireFromString(s) }

// pool is a pool with a demand of base machines of eight GPUs, and four more in the working hours
// of weekdays.
func pool(region string, base int64) Pool {
	s := Series{Source: "lab " + region, From: at("2026-04-06"), Milli: make([]int64, 4*week)}
	for i := range s.Milli {
		s.Milli[i] = base * 8000
		if h := i % week; h < 5*24 && h%24 >= 8 && h%24 < 18 {
			s.Milli[i] += 4 * 8000
		}
	}
	market := domain.Market{Provider: "aws", Region: region}
	offer := func(id string, kind domain.OfferKind, months uint32, upfront, hourly string) domain.OfferQuoted {
		return domain.OfferQuoted{Market: market, Offer: id, SKU: "big.8x", GPUModel: "A100 80GB", GPUCount: 8, Kind: kind, TermMonths: months,
			Upfront: dec(upfront), Hourly: dec(hourly), Currency: "USD", ValidFrom: at("2026-01-01")}
	}
	return Pool{
		Region: region, Kind: "A100 80GB", Unit: "gpu", Series: []Series{s},
		Offers: []domain.OfferQuoted{
			offer("od", domain.OfferOnDemand, 0, "0", "30"),
			offer("1y", domain.OfferReserved, 12, "0", "20"),
			offer("3y", domain.OfferReserved, 36, "300000", "0"),
			offer("spot", domain.OfferSpot, 0, "0", "10"),
		},
	}
}

func question() *Question {
	return &Question{
		At: at("2026-05-04"), Position: "qm.telemetry/0=1", Folds: "folds/1",
		Assumptions: Assumptions{
			Months: 12, Weeks: 4, MonthlyGrowth: dec("0"), AnnualRate: dec("0.08"), Salvage: dec("0.5"),
			SpotOverhead: dec("0.05"), ShortageFactor: dec("10"), Currency: "USD",
		},
		Pools: []Pool{pool("west", 10), pool("east", 20)},
	}
}

func compute(t *testing.T, q *Question) *Plan {
	t.Helper()
	p, err := Compute(t.Context(), q, lazily(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lazily returns the solver of linear programs, started at its first program.
func lazily(t testing.TB) linear.Solver { return &lazy{t: t} }

type lazy struct {
	t      testing.TB
	solver linear.Solver
}

func (l *lazy) Solve(ctx context.Context, p *linear.Program, limits linear.Limits) (*linear.Solution, error) {
	if l.solver == nil {
		lp, err := highs.Open(highs.Options{})
		if err != nil {
			return nil, err
		}
		l.t.Cleanup(func() { _ = lp.Close() })
		l.solver = lp
	}
	return l.solver.Solve(ctx, p, limits)
}

// Without discounting, growth, salvage and spot the answer can be computed by hand: a machine
// needed all year costs 8,760 h × 20 reserved against × 30 on demand, and one needed in 50 of 168
// hours does not pay.
func TestByHand(t *testing.T) {
	q := question()
	q.Pools = q.Pools[:1]
	q.Pools[0].Offers = slices.DeleteFunc(q.Pools[0].Offers, func(o domain.OfferQuoted) bool { return o.Offer == "3y" })
	q.Assumptions.AnnualRate = dec("0")
	p := compute(t, q)
	r := p.Regions[0]
	if len(r.Purchases) != 1 || r.Purchases[0].Units != 10 || r.Purchases[0].GPUs != 80 || r.Purchases[0].Offer != "1y" {
		t.Fatalf("purchases: %+v", r.Purchases)
	}
	if want := dec("20").Mul(dec("10")).Mul(dec("8760")); !r.Purchases[0].Cost.Equal(want) {
		t.Errorf("reserved cost %s, want %s", r.Purchases[0].Cost, want)
	}
	// June 2026 to May 2027, Mondays to Fridays from 8 to 18 o'clock.
	busy := int64(0)
	for h := p.Horizon.From; h < p.Horizon.To; h += domain.Hour {
		if u := h.Time(); u.Weekday() != time.Saturday && u.Weekday() != time.Sunday && u.Hour() >= 8 && u.Hour() < 18 {
			busy++
		}
	}
	if want := dec("30").Mul(decimal.NewFromInt(4 * busy)); !r.Cost.Sub(r.Purchases[0].Cost).Equal(want) {
		t.Errorf("on demand %s, want %s", r.Cost.Sub(r.Purchases[0].Cost), want)
	}
	if want := dec("30").Mul(decimal.NewFromInt(10*8760 + 4*busy)); !r.OnDemand.Equal(want) || !r.Current.Equal(want) {
		t.Errorf("all on demand %s and buy nothing %s, want %s", r.OnDemand, r.Current, want)
	}
	if !r.LowerBound.Equal(r.Cost) || !r.Gap.IsZero() {
		t.Errorf("bound %s, cost %s, gap %s", r.LowerBound, r.Cost, r.Gap)
	}
}

// Equal questions give equal bytes in any order of their parts, and the id does not depend on the
// position.
func TestEqualBytes(t *testing.T) {
	want, err := json.Marshal(compute(t, question()))
	if err != nil {
		t.Fatal(err)
	}
	q := question()
	slices.Reverse(q.Pools)
	for i := range q.Pools {
		slices.Reverse(q.Pools[i].Offers)
	}
	got, err := json.Marshal(compute(t, q))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("another order:\n%s\nwant\n%s", got, want)
	}
	q.Position = "qm.telemetry/0=2"
	if later := compute(t, q); later.ID != compute(t, question()).ID {
		t.Error("the id changed with the position")
	}
	q.Assumptions.MonthlyGrowth = dec("0.01")
	if grown := compute(t, q); grown.ID == compute(t, question()).ID {
		t.Error("another assumption gave the same id")
	}
}

// A quota below demand makes an all on-demand baseline impossible, and binds if only discount-only
// commitments are for sale.
func TestQuota(t *testing.T) {
	q := question()
	q.Pools = q.Pools[:1]
	q.Pools[0].Quotas = []Quota{{Provider: "aws", GPUs: 96}} // 12 machines of 14
	p := compute(t, q)
	pool := p.Regions[0].Pools[0]
	if pool.Refused == 0 || pool.Served.Shortage == 0 {
		t.Fatalf("refused %d, short %d", pool.Refused, pool.Served.Shortage)
	}
	if !slices.ContainsFunc(pool.Binding, func(b Binding) bool { return b.Constraint == "quota" }) {
		t.Errorf("binding: %+v", pool.Binding)
	}
	for i := range q.Pools[0].Offers {
		q.Pools[0].Offers[i].GuaranteesCapacity = q.Pools[0].Offers[i].Kind == domain.OfferReserved
	}
	if pool := compute(t, q).Regions[0].Pools[0]; pool.Served.Shortage != 0 {
		t.Errorf("guaranteed capacity leaves %d unit-hours short", pool.Served.Shortage)
	}
}

// What is held is not bought again, and is in the ladder until it ends.
func TestHeld(t *testing.T) {
	q := question()
	q.Pools = q.Pools[:1]
	held := Held{Commitment: "c1", Provider: "aws", Region: "west", Kind: domain.OfferReserved, SKU: "big.8x", GPUModel: "A100 80GB", GPUs: 8, Units: 10,
		Term: domain.Interval{From: at("2025-11-15"), To: at("2026-11-15")}}
	q.Held = []Held{held}
	q.Expiry = q.Held
	p := compute(t, q)
	if len(p.Expiry) != 1 || p.Expiry[0].Commitment != "c1" {
		t.Fatalf("ladder: %+v", p.Expiry)
	}
	for _, b := range p.Regions[0].Purchases {
		if b.Term.From < at("2026-11-01") {
			t.Errorf("bought from %s on, when c1 covers everything that pays", b.Term.From)
		}
	}
}

// An offer with a least order is bought in at least that number or not at all, and the bound stays
// below the cost.
func TestLeastOrder(t *testing.T) {
	q := question()
	q.Pools = q.Pools[:1]
	for i := range q.Pools[0].Offers {
		q.Pools[0].Offers[i].MinUnits = 11
	}
	p := compute(t, q)
	for _, b := range p.Regions[0].Purchases {
		if b.Units < 11 {
			t.Errorf("%d units of %s", b.Units, b.Offer)
		}
	}
	if r := p.Regions[0]; r.LowerBound.GreaterThan(r.Cost) {
		t.Errorf("bound %s above cost %s", r.LowerBound, r.Cost)
	}
}

// Every hour of the horizon has the demand of the same hour of the week.
func TestRepeat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := at("2026-03-01") + domain.Instant(rapid.IntRange(0, 2000).Draw(t, "start"))*domain.Hour
		s := Series{Source: "s", From: start, Milli: make([]int64, rapid.IntRange(week, 6*week).Draw(t, "hours"))}
		for i := range s.Milli {
			// A value that encodes the hour of the week.
			h := int64((start+domain.Instant(i)*domain.Hour)/domain.Hour) % week
			s.Milli[i] = h * 1000
			if rapid.IntRange(0, 20).Draw(t, "gap") == 0 {
				s.Milli[i] = -1
			}
		}
		p := &Pool{Region: "r", Kind: "k", Series: []Series{s}}
		most := rapid.IntRange(1, 8).Draw(t, "weeks")
		span := months(s.To(), 2)
		h, err := observe(p, most, s.To())
		if err != nil {
			return // the last hours were not observed, and less than a week is left
		}
		hours, err := h.repeat(span, growth{grown, grown, grown}, &fit{curve: []Filled{{1000, 1}}})
		if err != nil {
			t.Fatal(err)
		}
		for m, month := range span {
			counts := map[int]int{}
			for h := month.From; h < month.To; h += domain.Hour {
				counts[int(int64(h/domain.Hour)%week)]++
			}
			got := map[int]int{}
			for h := month.From; h < month.To; h += domain.Hour {
				got[hours[(h-span[0].From)/domain.Hour]]++
			}
			// Hours of the week that no week of the series observed repeat other hours.
			for u, n := range counts {
				seen := slices.Contains(s.Milli, int64(u)*1000)
				if u != 0 && (got[u] < n && seen || got[u] > 0 && !seen) {
					t.Fatalf("month %d: %d hours at %d, want %d if it was observed (%t)", m, got[u], u, n, seen)
				}
			}
			delete(got, 0)
			delete(counts, 0)
			if len(got) == week-1 && slices.Contains(s.Milli, 0) && !maps.Equal(got, counts) {
				t.Fatalf("month %d: %v, want %v", m, got, counts)
			}
		}
	})
}

func TestMachinesRoundUp(t *testing.T) {
	eights := fit{curve: []Filled{{8000, 1}}}
	// Four GPUs fill three machines, eight fill five, and so ten fill 6.25.
	bends := fit{curve: []Filled{{4000, 3}, {8000, 5}}}
	for _, c := range []struct {
		of    *fit
		milli int64
		want  int
	}{
		{&eights, 0, 0}, {&eights, 1, 1}, {&eights, 8000, 1}, {&eights, 8001, 2}, {&eights, 16000, 2},
		{&bends, 0, 0}, {&bends, 1333, 1}, {&bends, 1334, 2}, {&bends, 4000, 3}, {&bends, 4001, 4}, {&bends, 6000, 4}, {&bends, 6001, 5},
		{&bends, 8000, 5}, {&bends, 10000, 7}, {&bends, 16000, 10},
	} {
		got, err := c.of.machines(c.milli, grown)
		if err != nil || got != c.want {
			t.Errorf("%d on %v: %d machines, %v, want %d", c.milli, c.of.curve, got, err, c.want)
		}
	}
	one := fit{curve: []Filled{{1000, 1}}}
	if _, err := one.machines(1<<62, grown); err == nil {
		t.Error("a demand of 4e15 machines was planned for")
	}
}

// Assumptions out of range are refused.
func TestRefusals(t *testing.T) {
	for name, spoil := range map[string]func(*Question){
		"months":   func(q *Question) { q.Assumptions.Months = 0 },
		"weeks":    func(q *Question) { q.Assumptions.Weeks = 0 },
		"growth":   func(q *Question) { q.Assumptions.MonthlyGrowth = dec("1.1") },
		"rate":     func(q *Question) { q.Assumptions.AnnualRate = dec("-0.01") },
		"salvage":  func(q *Question) { q.Assumptions.Salvage = dec("1.01") },
		"overhead": func(q *Question) { q.Assumptions.SpotOverhead = dec("1") },
		"shortage": func(q *Question) { q.Assumptions.ShortageFactor = dec("0.9") },
		"span":     func(q *Question) { q.Assumptions.MonthlyGrowth, q.Assumptions.Months = dec("1"), 24 },
		"time":     func(q *Question) { q.At = latest + 1 },
	} {
		q := question()
		spoil(q)
		if _, err := Compute(t.Context(), q, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	last := over(120, even("2139-12-31", 10))
	last.At = latest
	one(t, last)
	q := question()
	q.Pools[0].Offers = nil
	if p := compute(t, q); len(p.Excluded) != 1 || len(p.Regions) != 1 {
		t.Errorf("a pool without offers: %v, %d regions", p.Excluded, len(p.Regions))
	}
}
