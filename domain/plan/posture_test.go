package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/long"
	"quartermaster/domain/packing"
)

// twins is ten machines of K in each of r and s, which may serve each other's demand. They cost 10 an
// hour on demand, and 8 reserved for a month.
func twins() *Question {
	r, s := even("2026-06-01", 10), even("2026-06-01", 10)
	s.Region = "s"
	q := over(1, r, s)
	q.Regions = []Region{{Region: "r", UTCOffset: "+01:00"}, {Region: "s", UTCOffset: "+02:00"}}
	for i := range q.Pools {
		p := &q.Pools[i]
		p.Protected, p.LatencyMicros = true, 20_000
		p.Mix = []packing.Workload{{ID: "w", Replicas: 1, GPUMilli: 1000}}
		p.Offers = append(p.Offers, sold("month", domain.OfferReserved, "8", 1))
		for j := range p.Offers {
			p.Offers[j].Market.Region = p.Region
		}
	}
	return q
}

// Without a posture ten machines are reserved in each region. Active-active each carries the peak of
// both. A hot standby in s carries it too, and may serve all demand all the time. A cold one costs a share
// of the on-demand price of what it would carry.
func TestPostureByHand(t *testing.T) {
	lp := solver(t)
	for _, c := range []struct {
		name    string
		posture *Posture
		change  func(*Question)
		cost    string // × 720 hours
		note    string
	}{
		{"none", nil, nil, "160", ""},
		{"active-active", &Posture{Kind: domain.PostureActiveActive, Share: dec("1")}, nil, "320", // 20 and 20
			"by the policy p, guaranteed capacity of the other regions carries 1 of its peak when its region is lost"},
		{"three quarters", &Posture{Kind: domain.PostureActiveActive, Share: dec("0.75")}, nil, "240", ""}, // 15 and 15
		{"hot", &Posture{Kind: domain.PostureHotStandby, Share: dec("1"), Standby: "s"}, nil, "160", // 20 in s serve all
			"by the policy p, guaranteed capacity in s carries 1 of its peak when its region is lost"},
		{"hot, and dearer there", &Posture{Kind: domain.PostureHotStandby, Share: dec("1"), Standby: "s"},
			func(q *Question) { q.Pools[1].Offers[1].Hourly = dec("9.5") }, "190", // 20 in s instead of 20 in r
			"by the policy p, guaranteed capacity in s carries 1 of its peak when its region is lost"},
		{"cold", &Posture{Kind: domain.PostureColdStandby, Share: dec("1"), Standby: "s", Price: dec("0.2")}, nil, "180", // 10 × 10 × 0.2
			"by the policy p, capacity rented in s carries 1 of its peak when its region is lost"},
		{"the standby's own demand is not protected", &Posture{Kind: domain.PostureHotStandby, Share: dec("1"), Standby: "s"},
			func(q *Question) { q.Pools[1].Protected = false }, "160", ""},
		{"nothing may move", &Posture{Kind: domain.PostureActiveActive, Share: dec("1")},
			func(q *Question) { q.Pools[0].LatencyMicros, q.Pools[1].LatencyMicros = 0, 0 }, "160",
			"not protected: the policy p protects it against the loss of its region, and no other region may serve its demand"},
		{"a standby that is idle", &Posture{Kind: domain.PostureHotStandby, Share: dec("1"), Standby: "s"},
			func(q *Question) { q.Pools[1].Idle, q.Pools[1].Series, q.Pools[1].Mix = true, nil, nil }, "80", // all of it runs in s
			"by the policy p, guaranteed capacity in s carries"},
	} {
		q := twins()
		if q.Posture = c.posture; c.posture != nil {
			c.posture.Policy = "p"
		}
		if c.change != nil {
			c.change(q)
		}
		p, err := Compute(t.Context(), q, lp)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if len(p.Excluded) > 0 {
			t.Fatalf("%s: excluded %+v", c.name, p.Excluded)
		}
		equal(t, c.name, p.Total.Cost, dec(c.cost).Mul(dec("720")).String())
		equal(t, c.name+", paid", p.Total.Nominal, p.Total.Cost.String())
		at := slices.IndexFunc(p.Regions, func(r RegionPlan) bool { return r.Region == "r" })
		notes := p.Regions[at].Pools[0].Notes
		if c.note != "" && !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, c.note) }) {
			t.Errorf("%s: notes %q", c.name, notes)
		}
		in := asProblem(t, q, p, lp)
		if (in.Posture != nil) != strings.HasPrefix(c.note, "by the policy") && c.note != "" {
			t.Errorf("%s: posture %+v", c.name, in.Posture)
		}
	}
}

// asProblem is the problem of a question. It costs what the plan does, apart from the rounding of bounds.
func asProblem(t *testing.T, q *Question, p *Plan, lp linear.Solver) *instance.Instance {
	t.Helper()
	in, err := q.Instance()
	if err != nil {
		t.Fatal(err)
	}
	a, err := instance.Solve(t.Context(), in, lp)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "as one problem", a.Cost, p.Total.Cost.String())
	return in
}

// Where nobody guarantees capacity, the pools are left out, and the plan names the policy.
func TestPostureThatCannotBeKept(t *testing.T) {
	q := twins()
	q.Posture = &Posture{Policy: "p", Kind: domain.PostureActiveActive, Share: dec("1")}
	for i := range q.Pools {
		q.Pools[i].Offers = q.Pools[i].Offers[:1]
	}
	p, err := Compute(t.Context(), q, solver(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Excluded) != 2 || !strings.HasPrefix(p.Excluded[0].Reason, "what the policy p protects cannot be kept: ") {
		t.Errorf("excluded %+v", p.Excluded)
	}
}

// Protection is a bound: it never lowers the cost, and less of it never raises it.
func TestPostureNeverPays(t *testing.T) {
	lp, drawn, dearer := solver(t), 0, 0
	most := long.Count(10, 300)
	rapid.Check(t, func(rt *rapid.T) {
		if drawn++; drawn > most {
			return
		}
		ints := func(label string, from, to int) int { return rapid.IntRange(from, to).Draw(rt, label) }
		q := twins()
		for i := range q.Pools {
			p := &q.Pools[i]
			base := ints("base", 1, 4)
			for h := range p.Series[0].Milli {
				p.Series[0].Milli[h] = int64(1000 * (base + h%24/8*(i+1)))
			}
			p.Offers[0].Hourly = decimal.New(int64(ints("hourly", 500, 1500)), -2)
			p.Offers[1].Hourly = decimal.New(int64(ints("reserved", 100, 1200)), -2)
		}
		kind := ints("kind", 0, 2)
		cost := func(share int) (domain.Decimal, domain.Decimal) {
			q.Posture = nil
			if share > 0 {
				q.Posture = &Posture{Policy: "p", Share: decimal.New(int64(share), -2)}
				switch kind {
				case 0:
					q.Posture.Kind = domain.PostureActiveActive
				case 1:
					q.Posture.Kind, q.Posture.Standby = domain.PostureHotStandby, "s"
				case 2:
					q.Posture.Kind, q.Posture.Standby, q.Posture.Price = domain.PostureColdStandby, "s", dec("0.3")
				}
			}
			p, err := Compute(t.Context(), q, lp)
			if err != nil {
				rt.Fatal(err)
			}
			if len(p.Excluded) > 0 {
				rt.Fatalf("excluded %+v", p.Excluded)
			}
			return p.Total.Cost, p.Total.LowerBound
		}
		slack := dec("0.0001")
		none, bound := cost(0)
		some, someBound := cost(ints("share", 1, 60))
		all, _ := cost(ints("more", 60, 100))
		if some.LessThan(bound.Sub(slack)) || all.LessThan(someBound.Sub(slack)) {
			rt.Fatalf("cost %s, at least %s; with some protection %s, at least %s, with more %s", none, bound, some, someBound, all)
		}
		if all.GreaterThan(none) {
			dearer++
		}
	})
	if t.Logf("protection costs something in %d questions", dearer); dearer == 0 && !testing.Short() {
		t.Error("no protection costs anything")
	}
}

// Ten machines in June, reserved at 6 from one provider, 7 from another and 8 from a third. When any one is
// lost, the others carry the peak.
func TestLossOfAProviderByHand(t *testing.T) {
	lp := solver(t)
	from := func(provider, hourly string) domain.OfferQuoted {
		return sold("1m-"+provider, domain.OfferReserved, hourly, 1, func(o *domain.OfferQuoted) { o.Market.Provider = provider })
	}
	for _, c := range []struct {
		name   string
		offers []domain.OfferQuoted
		share  string
		held   bool
		cost   string
		bought string
	}{
		{"two, all of it", []domain.OfferQuoted{from("aws", "6"), from("gcp", "7")}, "1", false, "93600", // 720 × (10 × 6 + 10 × 7)
			"10 1m-aws from 06-01 to 07-01, 10 1m-gcp from 06-01 to 07-01"},
		{"two, half of it", []domain.OfferQuoted{from("aws", "6"), from("gcp", "7")}, "0.5", false, "46800", // 720 × (5 × 6 + 5 × 7)
			"5 1m-aws from 06-01 to 07-01, 5 1m-gcp from 06-01 to 07-01"},
		{"three", []domain.OfferQuoted{from("aws", "6"), from("gcp", "7"), from("azure", "8")}, "1", false, "75600", // 720 × 5 × (6 + 7 + 8)
			"5 1m-aws from 06-01 to 07-01, 5 1m-azure from 06-01 to 07-01, 5 1m-gcp from 06-01 to 07-01"},
		{"held of the other", []domain.OfferQuoted{from("aws", "6")}, "1", true, "43200", "10 1m-aws from 06-01 to 07-01"},
		{"one alone", []domain.OfferQuoted{from("aws", "6")}, "1", false, "43200", "10 1m-aws from 06-01 to 07-01"},
	} {
		p := even("2026-06-01", 10)
		p.Offers, p.Protected = append(p.Offers, c.offers...), true
		q := over(1, p)
		q.Posture = &Posture{Policy: "spread", Kind: domain.PostureMultiProvider, Share: dec(c.share)}
		if c.held {
			q.Held = []Held{{
				Commitment: "free", Provider: "gcp", Region: "r", SKU: "small", GPUModel: "K", GPUs: 1, Units: 10, Guaranteed: true,
				Kind: domain.OfferReserved, Term: domain.Interval{From: at("2026-05-01"), To: at("2026-08-01")},
				Hourly: domain.Money{Currency: "USD"},
			}}
		}
		got, err := Compute(t.Context(), q, lp)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Excluded) > 0 {
			t.Fatalf("%s: left out %+v", c.name, got.Excluded)
		}
		pool := &got.Regions[0].Pools[0]
		equal(t, c.name, got.Total.Cost, c.cost)
		if s := pool.Served; bought(pool) != c.bought || s.Held != 7200 || s.Elsewhere != 0 || s.ForOthers != 0 || s.OnDemand != 0 {
			t.Errorf("%s: bought %s, served %+v", c.name, bought(pool), s)
		}
		alone := c.name == "one alone"
		if notes(pool, "not protected: the policy spread protects it against the loss of a provider, and aws alone serves it") != alone ||
			notes(pool, "by the policy spread, guaranteed capacity of the other providers carries "+c.share) == alone {
			t.Errorf("%s: notes %q", c.name, pool.Notes)
		}
		asProblem(t, q, got, lp)
		orders, _, err := Orders(t.Context(), q, lp)
		if err != nil || len(orders) != len(pool.Purchases) || slices.ContainsFunc(orders, func(o Order) bool { return o.Pool != "r K" }) {
			t.Errorf("%s: orders %+v, %v", c.name, orders, err)
		}
	}
	// Where the other provider cannot carry it, the pool is left out with the policy as the reason.
	p := even("2026-06-01", 10)
	other := from("gcp", "7")
	other.MaxUnits = 4
	other.ValidTo = at("2026-06-02")
	p.Offers, p.Protected = append(p.Offers, from("aws", "6"), other), true
	q := over(1, p)
	q.Posture = &Posture{Policy: "spread", Kind: domain.PostureMultiProvider, Share: dec("1")}
	got, err := Compute(t.Context(), q, lp)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Excluded) != 1 || !strings.Contains(got.Excluded[0].Reason, "what the policy spread protects cannot be kept: ") ||
		!strings.Contains(got.Excluded[0].Reason, "provider aws") {
		t.Errorf("left out %+v", got.Excluded)
	}
}

// Spreading over providers is a bound: it never lowers the cost, and less of it, or one provider more, never
// raises it.
func TestLossOfAProviderNeverPays(t *testing.T) {
	lp, drawn, dearer := solver(t), 0, 0
	most := long.Count(10, 300)
	rapid.Check(t, func(rt *rapid.T) {
		if drawn++; drawn > most {
			return
		}
		ints := func(label string, from, to int) int { return rapid.IntRange(from, to).Draw(rt, label) }
		q := twins()
		for i := range q.Pools {
			p := &q.Pools[i]
			base := ints("base", 1, 4)
			for h := range p.Series[0].Milli {
				p.Series[0].Milli[h] = int64(1000 * (base + h%24/8*(i+1)))
			}
			p.Offers[0].Hourly = decimal.New(int64(ints("hourly", 500, 1500)), -2)
			for _, provider := range []string{"aws", "gcp"} {
				o := sold("1m-"+provider, domain.OfferReserved, "0", 1, func(o *domain.OfferQuoted) { o.Market.Provider, o.Market.Region = provider, p.Region })
				o.Hourly = decimal.New(int64(ints("reserved", 100, 1200)), -2)
				p.Offers = append(p.Offers, o)
			}
			p.Protected = i == 0 || rapid.Bool().Draw(rt, "protected")
		}
		cost := func(p *Posture, more bool) (cost, slack domain.Decimal) {
			x := *q
			x.Posture, x.Pools = p, slices.Clone(q.Pools)
			if more {
				o := sold("1m-azure", domain.OfferReserved, "5", 1, func(o *domain.OfferQuoted) { o.Market.Provider, o.Market.Region = "azure", x.Pools[0].Region })
				x.Pools[0].Offers = append(slices.Clone(x.Pools[0].Offers), o)
			}
			got, err := Compute(t.Context(), &x, lp)
			if err != nil {
				rt.Fatal(err)
			}
			if len(got.Excluded) > 0 {
				rt.Fatalf("left out %+v", got.Excluded)
			}
			return got.Total.Cost, got.Total.Cost.Mul(got.Total.Gap).Add(dec("0.0001"))
		}
		posture := func(share string) *Posture {
			return &Posture{Policy: "spread", Kind: domain.PostureMultiProvider, Share: dec(share)}
		}
		none, a := cost(nil, false)
		half, b := cost(posture("0.5"), false)
		all, d := cost(posture("1"), false)
		more, e := cost(posture("1"), true)
		if none.GreaterThan(half.Add(a)) || half.GreaterThan(all.Add(b)) || more.GreaterThan(all.Add(e)) {
			rt.Fatalf("without %s, half %s, all %s, with one provider more %s (%s)", none, half, all, more, d)
		}
		if all.GreaterThan(none) {
			dearer++
		}
	})
	if dearer == 0 {
		t.Error("the questions say nothing")
	}
}
