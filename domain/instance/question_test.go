package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement/check/certificate"
)

// documents writes a question and an answer.
func documents(t testing.TB, in *Instance, a *Answer) (asked, answered []byte) {
	t.Helper()
	asked, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if answered, err = json.Marshal(a); err != nil {
		t.Fatal(err)
	}
	return asked, answered
}

// The checker that reads the question itself agrees about every worked instance and the demo's.
func TestQuestionAgreesAboutExamples(t *testing.T) {
	linearOrSkip(t)
	for _, pattern := range []string{"testdata/*.json", "../../deploy/demo/instances/*.json"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
		}
		for _, path := range paths {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				in, err := Parse(path, text)
				if err != nil {
					t.Fatal(err)
				}
				a, err := Solve(t.Context(), in, solver())
				if err != nil {
					t.Fatal(err)
				}
				_, answered := documents(t, in, a)
				r, err := certificate.Check(t.Context(), text, answered)
				if err != nil {
					t.Fatal(err)
				}
				if !r.Cost.Equal(a.Cost) || !r.LowerBound.Equal(a.LowerBound) || r.Groups != len(a.Proof) {
					t.Errorf("%+v, of cost %s and %s", r, a.Cost, a.LowerBound)
				}
			})
		}
	}
}

// pick is one of a list.
func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// drawAll makes an instance of any of the constraints that there are. It may be invalid, and nothing
// may meet its constraints.
func drawAll(rng *rand.Rand) *Instance {
	at := func(s string) domain.Instant {
		i, err := domain.ParseInstant(s)
		if err != nil {
			panic(err)
		}
		return i
	}
	chance := func(of int) bool { return rng.IntN(of) == 0 }
	cents := func(low, high int) domain.Decimal { return decimal.New(int64(low+rng.IntN(high-low)), -2) }
	in := &Instance{
		Format: Format, Name: "drawn", Currency: "USD", From: at("2027-02-01T00:00:00Z"), Epoch: Days, Epochs: 2 + rng.IntN(3),
		AnnualRate: pick(rng, dec("0"), dec("0.08"), dec("0.37")), Salvage: pick(rng, dec("0"), dec("0.4"), dec("1")),
		FX: map[string]domain.Decimal{"EUR": dec("1.0837")},
	}
	if chance(5) {
		in.Epoch, in.Epochs = Months, 1+rng.IntN(2)
	}
	day := func(n int) domain.Instant { return in.Spans()[min(n, in.Epochs-1)].From }
	hours := 0
	for _, s := range in.Spans() {
		hours += int(hoursOf(s))
	}
	load := func(most int) []int {
		out, base := make([]int, hours), rng.IntN(most+1)
		for h := range out {
			if h%4 == 0 {
				base = max(0, min(most, base+rng.IntN(3)-1))
			}
			out[h] = base
		}
		return out
	}
	currency := func() string { return pick(rng, "", "", "EUR") }
	regions := 1 + rng.IntN(3)
	for i := range regions {
		in.Regions = append(in.Regions, Region{ID: fmt.Sprint("r", i), Country: pick(rng, "US", "DE")})
	}
	for i := range regions {
		for j := range regions {
			if i != j && !chance(4) {
				in.Overflow = append(in.Overflow, Overflow{From: fmt.Sprint("r", i), To: fmt.Sprint("r", j),
					RoundTripMS: 20 + rng.IntN(100), Hourly: cents(0, 30), Overhead: pick(rng, dec("0"), dec("0.05"))})
			}
		}
	}
	if chance(2) {
		in.Quotas = append(in.Quotas, Quota{ID: "shared", Limit: 2 + rng.IntN(12)})
		if chance(2) {
			in.Quotas[0].Path = []QuotaStep{{From: day(1) + 7*domain.Hour, Limit: 1 + rng.IntN(12)}}
		}
	}
	for i := range 1 + rng.IntN(4) {
		p := Pool{ID: fmt.Sprint("p", i), Region: pick(rng, in.Regions...).ID, Class: pick(rng, "A", "A", "B"), Unit: "vm",
			GPUs: 8, Certifications: pick(rng, nil, []string{"c5"}, []string{"c5", "iso"})}
		if !chance(6) {
			p.OnDemand = &Price{Hourly: cents(200, 600), Currency: currency()}
			if chance(3) {
				p.OnDemand.Path = []PriceStep{{From: day(1) + 5*domain.Hour, Hourly: cents(200, 600)}}
			}
		}
		if len(in.Quotas) > 0 && chance(2) {
			p.Quota, p.QuotaPerUnit = "shared", pick(rng, 0, 1, 2)
		}
		if chance(3) {
			p.Spot = &Spot{Price: Price{Hourly: cents(50, 300), Currency: currency()}, Overhead: pick(rng, dec("0"), dec("0.13"))}
			if chance(2) {
				n := rng.IntN(6)
				p.Spot.Available = &n
			}
		}
		in.Pools = append(in.Pools, p)
	}
	for i := range 1 + rng.IntN(3) {
		home := pick(rng, in.Pools...)
		d := Demand{ID: fmt.Sprint("d", i), Pool: home.ID, Class: pick(rng, "serving", "batch", ""), Hourly: load(6),
			Interruptible: pick(rng, dec("0"), dec("0.5"), dec("1"), dec("0.3337")), Shortage: cents(700, 4000),
			LatencyBudgetMS: pick(rng, 0, 60, 200)}
		if d.LatencyBudgetMS > 0 && chance(3) {
			d.OverflowHourly = cents(0, 60)
		}
		if chance(4) {
			d.Countries = []string{"US", "DE"}[:1+rng.IntN(2)]
		}
		if chance(5) {
			d.Certifications = []string{"c5"}
		}
		if chance(4) {
			d.DeferrableShare, d.DeferHours = pick(rng, dec("0.5"), dec("1")), pick(rng, 6, 24, 24, 9)
		}
		if chance(5) {
			d.Buffer = &Buffer{ServiceLevel: pick(rng, dec("0.99"), dec("0.999")), FailuresPerGPUHour: dec("0.0002"), RepairHours: dec("24"),
				UnitsPerNode: rng.IntN(3), GPUsPerUnit: 8, Counted: rng.IntN(4)}
		}
		if in.Epoch == Days && d.DeferHours == 0 && chance(8) {
			d.Hourly, d.LatencyBudgetMS = nil, 0
			for range in.Epochs {
				d.Duration = append(d.Duration, []Step{{0, 4}, {1 + rng.IntN(2), 13}, {3 + rng.IntN(3), 7}})
			}
		}
		in.Demands = append(in.Demands, d)
	}
	spends := []string{}
	rates := map[string]domain.Decimal{}
	for _, p := range in.Pools {
		if p.OnDemand != nil && chance(2) {
			rates[p.ID] = cents(100, 300)
		}
	}
	for i := range 1 + rng.IntN(5) {
		p := pick(rng, in.Pools...)
		o := Offer{ID: fmt.Sprint("o", i), Kind: domain.OfferReserved, Pool: p.ID, Term: 1 + rng.IntN(5), Upfront: cents(0, 3000),
			Hourly: cents(50, 300), GuaranteesCapacity: p.OnDemand == nil || !chance(3), Currency: currency(),
			PerUnit: pick(rng, 0, 1, 2), LeadHours: pick(rng, 0, 0, 24, 30), Decline: pick(rng, dec("0"), dec("0.03"), dec("-0.01"))}
		switch rng.IntN(7) {
		case 0:
			o.MinUnits, o.Lot = rng.IntN(4), 1+rng.IntN(3)
		case 1:
			o.MaxUnits = 1 + rng.IntN(4)
		case 2:
			o.Tiers = []Tier{{2, cents(0, 2000), cents(40, 250)}, {4, cents(0, 1500), cents(30, 200)}}
		case 3:
			o.Term = max(2, o.Term)
			o.Lot, o.Ramp = 2, []RampStep{{0, 500}, {1, 1000}}
		case 4:
			o.Kind, o.GuaranteesCapacity = domain.OfferOwned, true
			o.Owned = &Owned{PowerKW: cents(10, 200), PUE: dec("1.3"), TariffKWh: dec("0.11"), SpaceMonthly: cents(0, 9000),
				NetworkMonthly: dec("3"), SupportMonthly: dec("7.5"), Salvage: pick(rng, dec("0"), dec("0.25"))}
		case 5:
			if len(rates) > 0 {
				o.Kind, o.Pool, o.Spend, o.Rates, o.PerUnit, o.GuaranteesCapacity = domain.OfferSpendCommitment, "", "plan", rates, 0, false
				o.Currency = ""
				if chance(2) {
					o.Commits, o.Hourly = cents(50, 300), pick(rng, dec("0"), cents(0, 100))
				}
				spends = append(spends, o.ID)
			}
		}
		if chance(4) {
			o.From, o.To = day(0), day(1)+domain.Hour
		}
		if chance(5) {
			o.Exclusive = "one"
		}
		in.Offers = append(in.Offers, o)
	}
	for i := range rng.IntN(3) {
		p := pick(rng, in.Pools...)
		c := Commitment{ID: fmt.Sprint("c", i), Kind: domain.OfferReserved, Pool: p.ID, Units: 1 + rng.IntN(3), Upfront: cents(0, 2000),
			Hourly: cents(50, 250), GuaranteesCapacity: p.OnDemand == nil || !chance(3), Currency: currency(),
			Term: domain.Interval{From: day(0) - pick(rng, 0, 3*domain.Day), To: day(1) + pick(rng, 0, 0, 5*domain.Hour)}}
		switch rng.IntN(4) {
		case 0:
			c.Term.From, c.Term.To = day(1), 0
		case 1, 2:
			c.Renews, c.NoticeBy = true, c.Term.To-pick(rng, 0, domain.Day, 9*domain.Day)
		}
		if len(spends) > 0 && chance(3) {
			c.Kind, c.Pool, c.Spend, c.Rates, c.Units, c.GuaranteesCapacity = domain.OfferSpendCommitment, "", "plan", rates, 1, false
			c.Currency = ""
			if chance(2) {
				c.Commits = cents(50, 300)
			}
		}
		in.Commitments = append(in.Commitments, c)
	}
	if chance(3) {
		in.Substitutes = []Substitute{{For: "A", Class: "B", Units: pick(rng, dec("1.5"), dec("0.75"))}}
	}
	if chance(6) {
		for i := range in.Pools {
			in.Pools[i].Provider = pick(rng, "a", "b", "b")
		}
		in.Posture = &Posture{Kind: MultiProvider, Share: pick(rng, dec("0.5"), dec("1"))}
	} else if chance(5) && regions > 1 {
		in.Posture = &Posture{Kind: ActiveActive, Share: pick(rng, dec("0.5"), dec("1"))}
		if chance(2) {
			in.Posture.Kind, in.Posture.Standby = ActivePassive, "r0"
			if chance(2) {
				cold := dec("0.12")
				in.Posture.Cold = &cold
			}
		}
	}
	if chance(6) {
		in.Budgets = append(in.Budgets, Budget{ID: "b", Basis: pick(rng, Cash, Accrual), Amount: cents(2000, 300000),
			Interval: domain.Interval{From: in.From, To: pick(rng, 0, day(1))}})
	}
	if chance(8) {
		share := pick(rng, dec("0"), dec("0.03"))
		in.Limits.MaxUnservedShare = &share
	}
	if chance(8) {
		share := pick(rng, dec("0.1"), dec("0.03"))
		in.Limits.MaxSpotShare = &share
	}
	if chance(3) {
		in.Scenarios = []Scenario{{ID: "a", Weight: 4}, {ID: "b", Weight: 2, Factor: 1300, Factors: map[string]int{"d0": 777}}}
		if in.Demands[0].Hourly != nil && chance(2) {
			in.Scenarios[0].Hourly = map[string][]int{"d0": load(5)}
		}
		for _, p := range in.Pools {
			if p.Spot != nil {
				in.Scenarios[1].Spot = map[string]int{p.ID: rng.IntN(4)}
			}
		}
	}
	if len(in.Substitutes) > 0 && chance(2) {
		in.Substitutes[0].Demands = []string{in.Demands[0].ID}
	}
	if in.Posture != nil && chance(2) {
		in.Posture.Demands = []string{in.Demands[0].ID}
	}
	if len(in.Budgets) > 0 && chance(3) {
		in.Budgets[0].Interval = domain.Interval{From: day(1)}
	}
	for i := range in.Pools {
		if spot := in.Pools[i].Spot; spot != nil && chance(3) {
			spot.Path = []PriceStep{{From: day(1) + 5*domain.Hour, Hourly: cents(50, 300)}}
		}
	}
	return in
}

// answers solves drawn instances until there are n answers.
func answers(t *testing.T, seed uint64, n int, each func(in *Instance, a *Answer, asked, answered []byte)) {
	t.Helper()
	lp := linearOrSkip(t)
	for k := uint64(0); n > 0; k++ {
		in := drawAll(rand.New(rand.NewPCG(seed, k)))
		if in.Validate() != nil {
			continue
		}
		a, err := Solve(t.Context(), in, lp)
		var clash *Infeasible
		var faults *Faults
		if errors.As(err, &clash) || errors.As(err, &faults) {
			continue
		} else if err != nil {
			t.Fatalf("instance %d: %v", k, err)
		}
		asked, answered := documents(t, in, a)
		n--
		each(in, a, asked, answered)
	}
}

func TestQuestionAgreesAboutDrawnInstances(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range long.Count(10, 100) {
		in := draw(t, rng)
		asked, answered := documents(t, in, solved(t, in))
		if _, err := certificate.Check(t.Context(), asked, answered); err != nil {
			t.Fatalf("%v\n%s", err, asked)
		}
	}
	seen := map[string]int{}
	answers(t, 1, long.Count(40, 300), func(in *Instance, a *Answer, asked, answered []byte) {
		r, err := certificate.Check(t.Context(), asked, answered)
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, asked, answered)
		}
		addUp(t, in, a)
		count := func(name string, is bool) {
			if is {
				seen[name]++
			}
		}
		count("answers", true)
		count("plain", r.Plain > 0)
		count("work waits", r.Waits > 0)
		count("purchases", len(a.Purchases) > 0)
		count("renewals", slices.ContainsFunc(a.Purchases, func(p Purchase) bool { return p.Renewals > 0 }))
		count("budget", len(in.Budgets) > 0)
		count("posture", in.Posture != nil)
		count("limits", in.Limits.MaxSpotShare != nil || in.Limits.MaxUnservedShare != nil)
	})
	t.Log(seen)
}

// It agrees about answers of coupled instances of a year, stopped and whole.
func TestQuestionAgreesAboutStoppedAnswers(t *testing.T) {
	lp := linearOrSkip(t)
	families := coupledFamilies
	if !long.Run() {
		families = families[:2]
	}
	stopped, answered := 0, 0
	for i, f := range families {
		in := coupledInstance(f, uint64(100+i))
		if err := in.Validate(); err != nil {
			continue
		}
		for _, after := range []int{2, 6, 1000} { // calls of the solver
			until, stop := context.WithCancel(t.Context())
			a, err := SolveUntil(t.Context(), until, in, &stopping{Solver: lp, after: after, stop: stop}, 0)
			stop()
			if err != nil {
				continue // nothing was found yet, or nothing meets the constraints
			}
			asked, answer := documents(t, in, a)
			if _, err := certificate.Check(t.Context(), asked, answer); err != nil {
				t.Errorf("%s, stopped at call %d: %v", f.name, after, err)
			}
			if answered++; a.Interrupted {
				stopped++
			}
		}
	}
	t.Logf("%d answers, %d of them stopped", answered, stopped)
	if answered == 0 || stopped == 0 {
		t.Error("no answer, or none that was stopped")
	}
}

// It agrees about amounts that are counted in coarser units, because they are large.
func TestQuestionAgreesAboutLargeAmounts(t *testing.T) {
	lp := linearOrSkip(t)
	for _, c := range []struct {
		factor string
		digits int32
	}{{"1", 9}, {"100000", 7}, {"10000000", 5}} {
		in := daily(Demand{Hourly: halves(20, 3)}, Demand{Hourly: halves(2, 9)})
		in.AnnualRate = dec("0.07")
		scale := func(d *domain.Decimal) { *d = d.Mul(dec(c.factor)) }
		scale(&in.Pools[0].OnDemand.Hourly)
		for i := range in.Demands {
			scale(&in.Demands[i].Shortage)
		}
		scale(&in.Offers[0].Hourly)
		in.Commitments = []Commitment{{ // whose accrual of the month is a fraction, and whose cash is none
			ID: "c", Kind: domain.OfferReserved, Pool: "p", Units: 1, Upfront: dec("700"), GuaranteesCapacity: true,
			Term: domain.Interval{From: in.From - 30*domain.Day, To: in.From + 60*domain.Day},
		}}
		in.Scenarios = []Scenario{{ID: "a", Weight: 997}, {ID: "b", Weight: 3, Factor: 1300}}
		a, err := Solve(t.Context(), in, lp)
		if err != nil {
			t.Fatal(err)
		}
		if a.Proof[0].Digits != c.digits {
			t.Errorf("times %s: %d digits, not %d", c.factor, a.Proof[0].Digits, c.digits)
		}
		asked, answered := documents(t, in, a)
		if _, err := certificate.Check(t.Context(), asked, answered); err != nil {
			t.Errorf("times %s: %v", c.factor, err)
		}
	}
}
