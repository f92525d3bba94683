package instance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// family is a kind of random coupled instance: what change adds to a base of pools that are coupled
// by overflow and a shared quota.
type family struct {
	name   string
	change func(*coupledDraw)
}

// coupledDraw is a random coupled instance in the making.
type coupledDraw struct {
	*rand.Rand
	in   *Instance
	peak int // of all demands together, in units
	// spend is about what serving everything on demand costs over the horizon.
	spend float64
}

func (c *coupledDraw) between(low, high int) int { return low + c.IntN(high-low+1) }

func (c *coupledDraw) chance(percent int) bool { return c.IntN(100) < percent }

// amount is a number with four decimals.
func amount(v float64) domain.Decimal { return decimal.New(int64(math.Round(v*10_000)), -4) }

func (c *coupledDraw) uniform(low, high float64) float64 {
	return low + float64(c.Float64()*(high-low))
}

// each calls a function for each pool with the pool's price on demand.
func (c *coupledDraw) each(f func(p *Pool, price float64)) {
	for i := range c.in.Pools {
		p := &c.in.Pools[i]
		price, _ := p.OnDemand.Hourly.Rat().Float64()
		f(p, price)
	}
}

// offers changes every offer.
func (c *coupledDraw) offers(f func(i int, o *Offer)) {
	for i := range c.in.Offers {
		f(i, &c.in.Offers[i])
	}
}

// coupledBase is two to four pools of one class in two or three regions, three to twelve months of
// demand with a daily and weekly pattern, and reserved terms of three lengths. Demand may overflow
// to other regions, and all pools share a quota.
func coupledBase(seed uint64, family string) *coupledDraw {
	kind := uint64(0)
	for _, b := range []byte(family) {
		kind = kind*131 + uint64(b)
	}
	c := &coupledDraw{Rand: rand.New(rand.NewPCG(seed, kind))}
	from, err := domain.ParseInstant("2027-01-01T00:00:00Z")
	if err != nil {
		panic(err)
	}
	pools, months := c.between(2, 4), c.between(3, 12)
	in := &Instance{
		Format: Format, Name: fmt.Sprintf("%s %d", family, seed), Currency: "USD", From: from, Epoch: Months, Epochs: months,
		AnnualRate: dec("0"), Salvage: dec("0.5"), Quotas: []Quota{{ID: "account"}},
	}
	c.in = in
	regions := min(pools, c.between(2, 3))
	for r := range regions {
		in.Regions = append(in.Regions, Region{ID: fmt.Sprint("r", r), Country: []string{"DE", "FR", "US"}[r]})
		for to := range regions {
			if to != r {
				in.Overflow = append(in.Overflow, Overflow{
					From: fmt.Sprint("r", r), To: fmt.Sprint("r", to), RoundTripMS: c.between(10, 90), Hourly: amount(c.uniform(0.02, 0.4)),
				})
			}
		}
	}
	spans := in.Spans()
	hours := int(hoursOf(domain.Interval{From: in.From, To: spans[len(spans)-1].To}))
	size := []int{3, 8, 30}[c.IntN(3)] // units of a pool
	total := make([]int, hours)
	for i := range pools {
		price := c.uniform(1, 4)
		p := Pool{
			ID: fmt.Sprint("p", i), Region: fmt.Sprint("r", i%regions), Class: "c", Unit: "gpu", Quota: "account",
			OnDemand: &Price{Hourly: amount(price)},
		}
		in.Pools = append(in.Pools, p)
		d := Demand{
			ID: fmt.Sprint("d", i), Pool: p.ID, Class: "serving", LatencyBudgetMS: 60, Interruptible: dec("0"),
			Shortage: amount(price * c.uniform(2, 6)),
		}
		level, swing, phase, grows := c.uniform(0.4, 1)*float64(size), c.uniform(0.1, 0.6), c.IntN(24), c.uniform(-0.3, 1)
		weekend := c.uniform(0.4, 1)
		for h := range hours {
			day := math.Round(4*math.Sin(2*math.Pi*float64((h+phase)/3)/8)) / 4
			v := level * (1 + float64(swing*day)) * (1 + float64(grows*float64(h/730)/float64(months)))
			if h/24%7 > 4 {
				v *= weekend
			}
			n := max(0, int(math.Round(v)))
			d.Hourly = append(d.Hourly, n)
			total[h] += n
			c.spend += float64(float64(n) * price)
		}
		in.Demands = append(in.Demands, d)
		for k, term := range []int{1, 3, 12} {
			paid := c.uniform([]float64{0.75, 0.6, 0.4}[k], []float64{0.95, 0.8, 0.6}[k]) * price
			upfront := []float64{0, 0.5, 1}[c.IntN(3)]
			in.Offers = append(in.Offers, Offer{
				ID: fmt.Sprintf("o%d.%d", i, term), Kind: domain.OfferReserved, Pool: p.ID, Term: term, GuaranteesCapacity: true,
				Upfront: amount(paid * upfront * 730 * float64(term)), Hourly: amount(paid * (1 - upfront)),
			})
		}
	}
	for _, n := range total {
		c.peak = max(c.peak, n)
	}
	in.Quotas[0].Limit = int(math.Ceil(float64(c.peak) * c.uniform(0.2, 0.9)))
	return c
}

// coupledFamilies is at least one family for each constraint of the schema.
var coupledFamilies = []family{
	{"quota", func(c *coupledDraw) {
		q := &c.in.Quotas[0]
		q.Limit = c.peak / 4
		q.Path = []QuotaStep{{From: c.in.Spans()[1].From, Limit: c.peak / 2}}
	}},
	{"quota_per_unit", func(c *coupledDraw) {
		for i := range c.in.Pools {
			c.in.Pools[i].QuotaPerUnit = []int{8, 12, 5, 8}[i]
		}
		c.in.Quotas[0].Limit = c.peak * c.between(2, 6)
	}},
	{"overflow overhead", func(c *coupledDraw) {
		for i := range c.in.Overflow {
			c.in.Overflow[i].Overhead = amount(c.uniform(0, 0.3))
		}
	}},
	{"countries and certifications", func(c *coupledDraw) {
		for i := range c.in.Demands {
			switch c.IntN(3) {
			case 0:
				c.in.Demands[i].Countries = []string{"DE", "FR"}
				if i%min(len(c.in.Regions), 3) == 2 {
					c.in.Demands[i].Countries = []string{"US", "DE"}
				}
			case 1:
				c.in.Demands[i].Certifications = []string{"ISO 27001"}
				c.in.Pools[i].Certifications = []string{"ISO 27001"}
			}
		}
		c.in.Pools[0].Certifications = []string{"ISO 27001"}
	}},
	{"substitutes", func(c *coupledDraw) {
		for i := range c.in.Pools {
			c.in.Pools[i].Class = []string{"A", "B"}[i%2]
			c.in.Pools[i].Region = "r0"
		}
		c.in.Regions, c.in.Overflow = c.in.Regions[:1], nil
		units := c.uniform(1.2, 2.5) // both ways together never make more of a unit
		c.in.Substitutes = []Substitute{
			{For: "A", Class: "B", Units: amount(units)}, {For: "B", Class: "A", Units: amount(1.1 / units)},
		}
	}},
	{"interruptible_share", func(c *coupledDraw) {
		c.each(func(p *Pool, price float64) {
			p.Spot = &Spot{Price: Price{Hourly: amount(price * c.uniform(0.2, 0.6))}, Overhead: amount(c.uniform(0, 0.3))}
		})
		for i := range c.in.Demands {
			c.in.Demands[i].Interruptible = amount(c.uniform(0, 1))
		}
	}},
	{"spot available_units", func(c *coupledDraw) {
		c.each(func(p *Pool, price float64) {
			n := c.between(0, c.peak/len(c.in.Pools))
			p.Spot = &Spot{
				Price: Price{Hourly: amount(price * c.uniform(0.2, 0.6))}, Overhead: amount(c.uniform(0, 0.2)), Available: &n,
			}
		})
		for i := range c.in.Demands {
			c.in.Demands[i].Interruptible = []domain.Decimal{dec("1"), dec("0.5"), dec("0.3")}[c.IntN(3)]
		}
	}},
	{"deferrable_share", func(c *coupledDraw) {
		d := &c.in.Demands[c.IntN(len(c.in.Demands))]
		d.DeferrableShare, d.DeferHours = amount(c.uniform(0.1, 0.6)), []int{6, 12, 24}[c.IntN(3)]
	}},
	{"deferrable demands", func(c *coupledDraw) {
		for i := range c.in.Demands {
			d := &c.in.Demands[i]
			d.DeferrableShare, d.DeferHours = amount(c.uniform(0.1, 0.9)), []int{6, 12, 24, 168}[c.IntN(4)]
			if i > 0 && c.chance(40) { // beside another at home
				d.Pool, d.Shortage = "p0", c.in.Demands[0].Shortage
			}
		}
	}},
	{"deferrable on spot", func(c *coupledDraw) {
		c.each(func(p *Pool, price float64) {
			n := c.between(0, c.peak/len(c.in.Pools))
			p.Spot = &Spot{Price: Price{Hourly: amount(price * c.uniform(0.2, 0.6))}, Overhead: amount(c.uniform(0, 0.2)), Available: &n}
		})
		for i := range c.in.Demands {
			d := &c.in.Demands[i]
			d.Interruptible = amount(c.uniform(0, 1))
			if i == 0 || c.chance(50) {
				d.DeferrableShare, d.DeferHours = amount(c.uniform(0.1, 0.9)), []int{6, 12, 24}[c.IntN(3)]
			}
		}
	}},
	{"buffer", func(c *coupledDraw) {
		for i := range c.in.Demands {
			c.in.Demands[i].Buffer = &Buffer{
				ServiceLevel: dec("0.999"), FailuresPerGPUHour: dec("0.0001"), RepairHours: amount(c.uniform(12, 72)),
				UnitsPerNode: c.between(1, 4),
			}
		}
	}},
	{"active_active", func(c *coupledDraw) {
		for i := range c.in.Demands {
			c.in.Demands[i].LatencyBudgetMS = 200
		}
		c.in.Posture = &Posture{Kind: ActiveActive, Share: amount(c.uniform(0.3, 1))}
	}},
	{"multi_provider", func(c *coupledDraw) {
		in := c.in
		for i := range in.Pools {
			p := in.Pools[i]
			in.Pools[i].Provider = fmt.Sprint("a", c.IntN(2))
			p.ID, p.Provider, p.OnDemand, p.Quota = p.ID+" of b", "b", nil, ""
			in.Pools = append(in.Pools, p)
			price, _ := in.Pools[i].OnDemand.Hourly.Rat().Float64()
			for _, term := range []int{1, 6} {
				in.Offers = append(in.Offers, Offer{
					ID: fmt.Sprintf("b%d.%d", i, term), Kind: domain.OfferReserved, Pool: p.ID, Term: term, GuaranteesCapacity: true,
					Upfront: dec("0"), Hourly: amount(price * c.uniform(0.5, 1)),
				})
			}
		}
		in.Posture = &Posture{Kind: MultiProvider, Share: amount(c.uniform(0.3, 1))}
	}},
	{"active_passive hot", func(c *coupledDraw) {
		for i := range c.in.Demands {
			c.in.Demands[i].LatencyBudgetMS = 200
		}
		c.in.Posture = &Posture{Kind: ActivePassive, Share: amount(c.uniform(0.3, 1)), Standby: "r1"}
	}},
	{"active_passive cold", func(c *coupledDraw) {
		for i := range c.in.Demands {
			c.in.Demands[i].LatencyBudgetMS = 200
		}
		cold := amount(c.uniform(0.05, 0.3))
		c.in.Posture = &Posture{Kind: ActivePassive, Share: amount(c.uniform(0.3, 1)), Standby: "r1", Cold: &cold}
	}},
	{"budget cash", func(c *coupledDraw) { c.budget(Cash, 0, c.in.Epochs, c.uniform(0.4, 0.9)) }},
	{"budget accrual", func(c *coupledDraw) {
		c.in.AnnualRate = dec("0.08")
		c.budget(Accrual, 0, c.in.Epochs, c.uniform(0.4, 0.8))
	}},
	{"budgets of some months", func(c *coupledDraw) {
		half := c.in.Epochs / 2
		c.budget(Cash, 0, half, c.uniform(0.5, 1))
		c.budget(Accrual, half, c.in.Epochs, c.uniform(0.4, 0.8))
	}},
	{"max_unserved_share", func(c *coupledDraw) {
		for i := range c.in.Demands {
			c.in.Demands[i].Shortage = c.in.Pools[i].OnDemand.Hourly
		}
		share := amount(c.uniform(0.001, 0.05))
		c.in.Limits.MaxUnservedShare = &share
	}},
	{"max_spot_share", func(c *coupledDraw) {
		c.each(func(p *Pool, price float64) {
			p.Spot = &Spot{Price: Price{Hourly: amount(price * c.uniform(0.2, 0.5))}, Overhead: amount(c.uniform(0, 0.2))}
		})
		for i := range c.in.Demands {
			c.in.Demands[i].Interruptible = amount(c.uniform(0.3, 1))
		}
		share := amount(c.uniform(0.05, 0.4))
		c.in.Limits.MaxSpotShare = &share
	}},
	{"scenarios", func(c *coupledDraw) {
		c.each(func(p *Pool, price float64) {
			n := c.between(1, c.peak)
			p.Spot = &Spot{Price: Price{Hourly: amount(price * 0.4)}, Overhead: dec("0.1"), Available: &n}
		})
		for i := range c.in.Demands {
			c.in.Demands[i].Interruptible = dec("0.4")
		}
		c.in.Scenarios = []Scenario{
			{ID: "as planned", Weight: 3}, {ID: "launch", Weight: 1, Factor: c.between(1100, 1800)},
			{ID: "slump", Weight: 1, Factor: c.between(400, 900), Spot: map[string]int{"p0": 0}},
		}
	}},
	{"min_units", func(c *coupledDraw) {
		c.offers(func(i int, o *Offer) { o.MinUnits = c.between(1, max(2, c.peak/len(c.in.Pools))) })
	}},
	{"max_units", func(c *coupledDraw) {
		c.offers(func(i int, o *Offer) { o.MaxUnits = c.between(1, max(2, c.peak/len(c.in.Pools)/2)) })
	}},
	{"lot", func(c *coupledDraw) {
		c.offers(func(i int, o *Offer) { o.Lot = c.between(2, 8) })
	}},
	{"tiers", func(c *coupledDraw) {
		c.offers(func(i int, o *Offer) {
			first, second := c.between(2, 6), c.between(7, 20)
			less, least := c.uniform(0.85, 0.97), c.uniform(0.7, 0.85)
			times := func(v domain.Decimal, by float64) domain.Decimal { return v.Mul(amount(by)) }
			o.Tiers = []Tier{
				{Units: first, Upfront: times(o.Upfront, less), Hourly: times(o.Hourly, less)},
				{Units: second, Upfront: times(o.Upfront, least), Hourly: times(o.Hourly, least)},
			}
		})
	}},
	{"ramp", func(c *coupledDraw) {
		c.offers(func(i int, o *Offer) {
			if o.Term > 2 {
				o.Lot = 4
				o.Ramp = []RampStep{{Epoch: 0, Permille: 250}, {Epoch: 1, Permille: 500}, {Epoch: 2, Permille: 1000}}
			}
		})
	}},
	{"exclusive", func(c *coupledDraw) {
		c.offers(func(i int, o *Offer) {
			if o.Term > 1 {
				o.Exclusive = []string{"vendor a", "vendor b"}[i%2]
				if c.chance(50) {
					o.MinUnits = c.between(2, 8)
				}
			}
		})
	}},
	{"owned", func(c *coupledDraw) {
		c.each(func(p *Pool, price float64) {
			c.in.Offers = append(c.in.Offers, Offer{
				ID: "owned " + p.ID, Kind: domain.OfferOwned, Pool: p.ID, Term: 24, GuaranteesCapacity: true, LeadHours: 24 * c.between(0, 45),
				Upfront: amount(price * 730 * 24 * c.uniform(0.2, 0.5)), Hourly: dec("0"), Lot: c.between(1, 4),
				Owned: &Owned{
					PowerKW: amount(0.7), PUE: dec("1.3"), TariffKWh: dec("0.12"), SpaceMonthly: amount(20), NetworkMonthly: amount(10),
					SupportMonthly: amount(40), Salvage: dec("0.2"),
				},
			})
		})
	}},
	{"spend_commitment", func(c *coupledDraw) {
		rates := map[string]domain.Decimal{}
		c.each(func(p *Pool, price float64) { rates[p.ID] = amount(price * c.uniform(0.5, 0.8)) })
		size := c.uniform(0.5, 3)
		for _, term := range []int{3, 12} {
			c.in.Offers = append(c.in.Offers, Offer{
				ID: fmt.Sprint("plan ", term), Kind: domain.OfferSpendCommitment, Spend: "plan", Term: term, Upfront: dec("0"),
				Hourly: amount(size * float64(term)), Rates: rates,
			})
		}
	}},
	{"overflow_hourly", func(c *coupledDraw) {
		for i := range c.in.Demands {
			d := &c.in.Demands[i]
			price, _ := d.Shortage.Rat().Float64()
			d.LatencyBudgetMS, d.OverflowHourly = 300, amount(price*c.uniform(0, 0.1))
		}
	}},
	{"commits_hourly", func(c *coupledDraw) {
		c.in.AnnualRate = dec("0.08")
		rates := map[string]domain.Decimal{}
		c.each(func(p *Pool, price float64) { rates[p.ID] = amount(price * c.uniform(0.4, 0.75)) })
		size := c.uniform(0.5, 3)
		for _, term := range []int{3, 12} {
			commits, paid := size*float64(term), c.uniform(0, 1)
			if c.chance(40) {
				paid = 0 // all upfront
			}
			c.in.Offers = append(c.in.Offers, Offer{
				ID: fmt.Sprint("plan ", term), Kind: domain.OfferSpendCommitment, Spend: "plan", Term: term, Rates: rates,
				Commits: amount(commits), Hourly: amount(commits * paid), Upfront: amount(commits * (1 - paid) * 730 * float64(term) * c.uniform(0.9, 1)),
			})
		}
		if c.chance(50) {
			c.budget(pick(c.Rand, Cash, Accrual), 0, c.between(1, c.in.Epochs), c.uniform(0.6, 1.2))
		}
	}},
	{"discount only", func(c *coupledDraw) {
		c.offers(func(i int, o *Offer) { o.GuaranteesCapacity = c.chance(40) })
	}},
	{"lead time, from and to", func(c *coupledDraw) {
		spans := c.in.Spans()
		c.offers(func(i int, o *Offer) {
			o.LeadHours = c.between(0, 1500)
			if c.chance(50) {
				o.To = spans[c.between(1, len(spans)-1)].From
			}
			if c.chance(30) {
				o.From = spans[c.between(0, len(spans)-2)].From
				if o.To != 0 && o.To <= o.From {
					o.To = 0
				}
			}
		})
	}},
	{"covers_per_unit", func(c *coupledDraw) {
		c.offers(func(i int, o *Offer) {
			if c.chance(70) {
				o.PerUnit = []int{2, 4, 8}[c.IntN(3)]
				n := decimal.NewFromInt(int64(o.PerUnit))
				o.Upfront, o.Hourly = o.Upfront.Mul(n), o.Hourly.Mul(n)
				for k := range o.Tiers {
					t := &o.Tiers[k]
					t.Upfront, t.Hourly = t.Upfront.Mul(n), t.Hourly.Mul(n)
				}
			}
		})
	}},
	{"commitments and prices in time", func(c *coupledDraw) {
		spans := c.in.Spans()
		c.in.AnnualRate, c.in.FX = dec("0.1"), map[string]domain.Decimal{"EUR": dec("1.1")}
		c.each(func(p *Pool, price float64) {
			at := spans[c.between(1, len(spans)-1)].From
			p.OnDemand.Path = []PriceStep{{From: at, Hourly: amount(price * c.uniform(0.7, 0.95))}}
			end := spans[c.between(0, len(spans)-2)].To
			c.in.Commitments = append(c.in.Commitments, Commitment{
				ID: "held " + p.ID, Kind: domain.OfferReserved, Pool: p.ID, Units: c.between(1, 4), Hourly: amount(price * 0.6),
				GuaranteesCapacity: true, Renews: true, NoticeBy: end - 10*domain.Day,
				Term: domain.Interval{From: end - 60*domain.Day, To: end},
			})
		})
		c.offers(func(i int, o *Offer) {
			o.Decline = amount(c.uniform(0, 0.03))
			if c.chance(30) {
				o.Currency = "EUR"
			}
		})
	}},
}

// budget adds a budget of a share of what serving everything on demand costs.
func (c *coupledDraw) budget(basis BudgetBasis, from, to int, share float64) {
	spans := c.in.Spans()
	c.in.Budgets = append(c.in.Budgets, Budget{
		ID: fmt.Sprint("budget ", len(c.in.Budgets)), Basis: basis, Interval: domain.Interval{From: spans[from].From, To: spans[to-1].To},
		Amount: amount(c.spend * share * float64(to-from) / float64(c.in.Epochs)),
	})
}

// coupledInstance is the random instance of a family and a seed. Those of odd seeds may combine it
// with constraints of other families.
func coupledInstance(f family, seed uint64) *Instance {
	c := coupledBase(seed, f.name)
	f.change(c)
	if seed%2 == 1 {
		for _, other := range []string{"tiers", "min_units", "covers_per_unit", "spot available_units", "budget cash", "active_active", "spend_commitment"} {
			if c.chance(25) {
				c.also(other)
			}
		}
	}
	return c.in
}

// also adds another family's constraint, unless the instance has one of its kind.
func (c *coupledDraw) also(name string) {
	in := c.in
	has := func(is func(o *Offer) bool) bool {
		return slices.ContainsFunc(in.Offers, func(o Offer) bool { return is(&o) })
	}
	switch {
	case name == "tiers" && has(func(o *Offer) bool {
		return len(o.Tiers) > 0 || o.Lot > 1 || o.MaxUnits > 0 || o.Kind != domain.OfferReserved
	}),
		name == "min_units" && has(func(o *Offer) bool { return o.MinUnits > 0 || o.MaxUnits > 0 || o.Lot > 1 }),
		name == "covers_per_unit" && has(func(o *Offer) bool { return o.PerUnit > 1 || o.Lot > 1 || o.Kind != domain.OfferReserved }),
		name == "spot available_units" && slices.ContainsFunc(in.Pools, func(p Pool) bool { return p.Spot != nil }),
		name == "budget cash" && (len(in.Budgets) > 0 || in.Posture != nil),
		name == "active_active" && (in.Posture != nil || len(in.Budgets) > 0 || len(in.Overflow) == 0 ||
			slices.ContainsFunc(in.Demands, func(d Demand) bool { return len(d.Countries)+len(d.Certifications) > 0 })),
		name == "budget cash" && has(func(o *Offer) bool { return !o.Commits.IsZero() }),
		name == "spend_commitment" && has(func(o *Offer) bool { return o.Kind == domain.OfferSpendCommitment }):
		return
	}
	at := slices.IndexFunc(coupledFamilies, func(f family) bool { return f.name == name })
	coupledFamilies[at].change(c)
}
