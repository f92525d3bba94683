package instance_test

import (
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"
)

// document is an instance as its schema describes it. It is read for the program of mip_test.go,
// which shares no code with the planner's or the checker's reading. Money is floating point: what is
// computed here is compared with a tolerance and decides nothing.
type document struct {
	Currency    string
	From        time.Time
	Epoch       string
	Epochs      int
	AnnualRate  number `json:"annual_rate"`
	Salvage     number
	FX          map[string]number
	Regions     []struct{ ID, Country string }
	Pools       []pool
	Demands     []demand
	Offers      []offer
	Commitments []commitment
	Quotas      []struct {
		ID    string
		Limit int
		Path  []struct {
			From  time.Time
			Limit int
		}
	}
	Overflow []struct {
		From, To  string
		RoundTrip int `json:"round_trip_ms"`
		Hourly    number
		Overhead  exact
	}
	Substitutes []struct {
		For, Class string
		Units      exact
		Demands    []string
	}
	Posture *struct {
		Kind, Standby string
		Demands       []string
		Share         exact
		Cold          *number `json:"cold_price_share"`
	}
	Budgets []struct {
		Basis    string
		Interval interval
		Amount   number
	}
	Limits struct {
		Unserved *exact `json:"max_unserved_share"`
		Spot     *exact `json:"max_spot_share"`
	}
	Scenarios []scenario
}

type pool struct {
	ID, Region, Class, Unit string
	GPUs                    int    `json:"gpus_per_unit"`
	OnDemand                *price `json:"on_demand"`
	Quota                   string
	QuotaPerUnit            int `json:"quota_per_unit"`
	Spot                    *struct {
		price
		Overhead  exact
		Available *int `json:"available_units"`
	}
	Certifications []string
	Provider       string
}

type price struct {
	Hourly   number
	Currency string
	Path     []struct {
		From   time.Time
		Hourly number
	}
}

type demand struct {
	ID, Pool, Class string
	Hourly          []int
	Duration        [][]struct{ Units, Hours int }
	Interruptible   exact  `json:"interruptible_share"`
	Shortage        number `json:"shortage_hourly"`
	Latency         int    `json:"latency_budget_ms"`
	Transfer        number `json:"overflow_hourly"`
	Countries       []string
	Certifications  []string
	Deferrable      *exact `json:"deferrable_share"`
	DeferHours      int    `json:"defer_hours"`
	Buffer          *struct {
		Level    number `json:"service_level"`
		Failures exact  `json:"failures_per_gpu_hour"`
		Repair   exact  `json:"repair_hours"`
		Counted  int    `json:"interruptions_counted"`
		Node     int    `json:"units_per_node"`
		GPUs     int    `json:"gpus_per_unit"`
	}
}

type offer struct {
	ID, Kind, Pool, Spend string
	Term                  int `json:"term_epochs"`
	Upfront, Hourly       number
	Commits               number `json:"commits_hourly"`
	Decline               number `json:"decline_per_epoch"`
	Currency              string
	Guarantees            bool `json:"guarantees_capacity"`
	Covers                int  `json:"covers_per_unit"`
	From, To              moment
	Lead                  int `json:"lead_time_hours"`
	Min                   int `json:"min_units"`
	Max                   int `json:"max_units"`
	Lot                   int
	Tiers                 []struct {
		Units           int
		Upfront, Hourly number
	}
	Ramp      []struct{ Epoch, Permille int }
	Exclusive string
	Owned     *struct {
		Power   number `json:"power_kw"`
		PUE     number
		Tariff  number `json:"tariff_kwh"`
		Space   number `json:"space_monthly"`
		Network number `json:"network_monthly"`
		Support number `json:"support_monthly"`
		Salvage number
	}
	Rates map[string]number
}

type commitment struct {
	ID, Kind, Pool, Spend string
	Units                 int
	Term                  interval
	Upfront, Hourly       number
	Commits               number `json:"commits_hourly"`
	Currency              string
	Guarantees            bool   `json:"guarantees_capacity"`
	Notice                moment `json:"notice_by"`
	Renews                bool
	Rates                 map[string]number
}

type scenario struct {
	ID      string
	Weight  int
	Factor  int            `json:"factor_permille"`
	Factors map[string]int `json:"factors_permille"`
	Hourly  map[string][]int
	Spot    map[string]int `json:"spot_available_units"`
}

type interval struct{ From, To moment }

// number is a decimal text as a floating point number, exact as a fraction.
type (
	number float64
	exact  struct{ big.Rat }
	moment struct{ time.Time } // zero: none
)

func (n *number) UnmarshalText(b []byte) error {
	var x exact
	err := x.UnmarshalText(b)
	f, _ := x.Float64()
	*n = number(f)
	return err
}

func (m *moment) UnmarshalJSON(b []byte) error {
	if string(b) == `""` {
		return nil
	}
	return m.Time.UnmarshalJSON(b)
}

func readDocument(t testing.TB, text []byte) *document {
	t.Helper()
	d := &document{}
	if err := json.Unmarshal(text, d); err != nil {
		t.Fatal(err)
	}
	if len(d.Scenarios) == 0 {
		d.Scenarios = []scenario{{Weight: 1}}
	}
	return d
}

// floor is a number's share of n, in thousandths that are rounded down, and rounded down itself.
func (x *exact) floor(n int) int { return n * x.thousandths() / 1000 }

func (x *exact) thousandths() int {
	y := new(big.Rat).Mul(&x.Rat, big.NewRat(1000, 1))
	return int(new(big.Int).Quo(y.Num(), y.Denom()).Int64())
}

// up is a number in thousandths that are rounded up.
func (x *exact) up() int {
	n := x.thousandths()
	if new(big.Rat).SetFrac64(int64(n), 1000).Cmp(&x.Rat) < 0 {
		n++
	}
	return n
}

// start is the first moment of an epoch, also beyond the horizon.
func (d *document) start(e int) time.Time {
	y, m, day := d.From.UTC().Date()
	if d.Epoch == "day" {
		return time.Date(y, m, day+e, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(y, m+time.Month(e), 1, 0, 0, 0, 0, time.UTC)
}

func (d *document) end() time.Time { return d.start(d.Epochs) }

// hours are those of an epoch.
func (d *document) hours(e int) int { return int(d.start(e+1).Sub(d.start(e)) / time.Hour) }

// before are the hours of the horizon before an epoch.
func (d *document) before(e int) int { return int(d.start(e).Sub(d.start(0)) / time.Hour) }

// shared are the hours that an epoch and a term have in common.
func (d *document) shared(e int, term interval) float64 {
	from, to := d.start(e), d.start(e+1)
	if term.From.After(from) {
		from = term.From.Time
	}
	if !term.To.IsZero() && term.To.Before(to) {
		to = term.To.Time
	}
	return max(0, to.Sub(from).Hours())
}

// factor discounts a payment at the beginning of an epoch and a half of them.
func (d *document) factor(halves int) float64 {
	n := 24.0
	if d.Epoch == "day" {
		n = 730
	}
	return math.Pow(1+float64(d.AnnualRate), -float64(halves)/n)
}

func (d *document) begin(e int) float64  { return d.factor(2 * e) }
func (d *document) middle(e int) float64 { return d.factor(2*e + 1) }

func (d *document) fx(currency string) float64 {
	if currency == "" || currency == d.Currency {
		return 1
	}
	return float64(d.FX[currency])
}

// in is a price in an epoch: the mean over its time.
func (d *document) in(p *price, e int) float64 {
	sum, now, at := 0.0, p.Hourly, d.start(e)
	for _, s := range p.Path {
		if !s.From.After(d.start(e)) {
			now = s.Hourly
		} else if s.From.Before(d.start(e + 1)) {
			sum += float64(now) * s.From.Sub(at).Hours()
			now, at = s.Hourly, s.From
		}
	}
	sum += float64(now) * d.start(e+1).Sub(at).Hours()
	return sum / float64(d.hours(e)) * d.fx(p.Currency)
}

// quota is the least limit of an epoch, infinite where it is no bound.
func (d *document) quota(i, e int) float64 {
	q := &d.Quotas[i]
	now, least := q.Limit, math.MaxInt
	for _, s := range q.Path {
		if !s.From.After(d.start(e)) {
			now = s.Limit
		} else if s.From.Before(d.start(e + 1)) {
			least = min(least, s.Limit)
		}
	}
	if least = min(least, now); least > 100_000_000 {
		return math.Inf(1)
	}
	per := 0
	for _, p := range d.Pools {
		if p.Quota != q.ID {
			continue
		}
		if n := max(1, p.QuotaPerUnit); per == 0 || per == n {
			per = n
		} else {
			per = -1
		}
	}
	if per > 1 {
		least -= least % per
	}
	return float64(least)
}

// wanted is what a demand wants in the hours of the horizon: the units that come, and the spares for
// them.
func (d *document) wanted(i int, s *scenario) (come, spares []int) {
	n := &d.Demands[i]
	if come = slices.Clone(n.Hourly); n.Hourly == nil {
		for _, curve := range n.Duration {
			for k := len(curve) - 1; k >= 0; k-- {
				for range curve[k].Hours {
					come = append(come, curve[k].Units)
				}
			}
		}
	}
	if own, ok := s.Hourly[n.ID]; ok {
		come = slices.Clone(own)
	} else {
		a, b := 1000, 1000
		if s.Factor > 0 {
			a = s.Factor
		}
		if f, ok := s.Factors[n.ID]; ok {
			b = f
		}
		for h := range come {
			come[h] = (come[h]*a*b + 999_999) / 1_000_000
		}
	}
	known := map[int]int{0: 0}
	for _, units := range come {
		if _, ok := known[units]; !ok {
			known[units] = n.spares(units)
		}
		spares = append(spares, known[units])
	}
	return come, spares
}

// spares are the fewest with which all that is wanted is up with the probability of the buffer.
func (n *demand) spares(units int) int {
	b := n.Buffer
	if b == nil {
		return 0
	}
	node := max(1, b.Node)
	down := new(big.Rat).Mul(&b.Failures.Rat, &b.Repair.Rat)
	down.Mul(down, big.NewRat(int64(node*max(1, b.GPUs)), 1))
	q, _ := down.Float64()
	k := (units + node - 1) / node
	for s := 0; ; s++ {
		nodes, sum := float64(k+s), 0.0
		if r, mean := float64(b.Counted), float64(k+s)*q; b.Counted > 0 {
			p := math.Pow(r/(r+mean), r)
			for j := 0; j <= s; j++ {
				sum += p
				p *= (r + float64(j)) / float64(j+1) * mean / (r + mean)
			}
		} else {
			p := math.Pow(1-q, nodes)
			for j := 0; j <= s; j++ {
				sum += p
				p *= (nodes - float64(j)) / float64(j+1) * q / (1 - q)
			}
		}
		if sum >= float64(b.Level) {
			return s * node
		}
	}
}

// takes is how many units of a pool a unit of a demand takes there, and what its transfer costs; ok
// is whether it may be served there.
func (d *document) takes(n *demand, p *pool) (units *big.Rat, transfer float64, ok bool) {
	home := &d.Pools[slices.IndexFunc(d.Pools, func(p pool) bool { return p.ID == n.Pool })]
	units = big.NewRat(1, 1)
	if p.ID == home.ID {
		return units, 0, true
	}
	for _, c := range n.Certifications {
		if !slices.Contains(p.Certifications, c) {
			return nil, 0, false
		}
	}
	for _, r := range d.Regions {
		if r.ID == p.Region && len(n.Countries) > 0 && !slices.Contains(n.Countries, r.Country) {
			return nil, 0, false
		}
	}
	if p.Region != home.Region {
		found := false
		for _, o := range d.Overflow {
			if o.From == home.Region && o.To == p.Region && o.RoundTrip <= n.Latency && n.Latency > 0 {
				found, transfer = true, float64(o.Hourly)+float64(n.Transfer)
				units.Add(units, &o.Overhead.Rat)
			}
		}
		if !found {
			return nil, 0, false
		}
	}
	if p.Class == home.Class {
		if p.Unit != home.Unit || p.GPUs != home.GPUs {
			return nil, 0, false
		}
	} else {
		var each *big.Rat
		for i := range d.Substitutes {
			s := &d.Substitutes[i]
			if s.For == home.Class && s.Class == p.Class && (len(s.Demands) == 0 || slices.Contains(s.Demands, n.ID)) {
				each = &s.Units.Rat
			}
		}
		if each == nil {
			return nil, 0, false
		}
		units.Mul(units, each)
	}
	// Rounded up to four digits, or fewer, to a fraction of integers up to 100,000.
	for unit := int64(10_000); ; unit /= 10 {
		scaled := new(big.Rat).Mul(units, big.NewRat(unit, 1))
		up := new(big.Int).Quo(scaled.Num(), scaled.Denom())
		if new(big.Rat).SetInt(up).Cmp(scaled) < 0 {
			up.Add(up, big.NewInt(1))
		}
		r := new(big.Rat).SetFrac(up, big.NewInt(unit))
		if unit == 1 || r.Num().Int64() <= 100_000 && r.Denom().Int64() <= 100_000 {
			return r, transfer, true
		}
	}
}

// further is a term moved by a number of its lengths, and the last notice for it.
func (c *commitment) further(k int) (term interval, notice time.Time) {
	from, to := c.Term.From.Time, c.Term.To.Time
	months := 12*(to.Year()-from.Year()) + int(to.Month()-from.Month())
	move := func(t time.Time, k int) time.Time { return t.Add(time.Duration(k) * to.Sub(from)) }
	if from.Day() <= 28 && months > 0 && from.AddDate(0, months, 0).Equal(to) {
		move = func(t time.Time, k int) time.Time {
			first := time.Date(t.Year(), t.Month()+time.Month(k*months), 1, 0, 0, 0, 0, time.UTC)
			day := min(t.Day(), first.AddDate(0, 1, -1).Day())
			return first.AddDate(0, 0, day-1).Add(t.Sub(t.Truncate(24 * time.Hour)))
		}
	}
	return interval{moment{move(from, k)}, moment{move(to, k)}}, move(c.Notice.Time, k-1)
}
