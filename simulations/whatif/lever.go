package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// lever is the effect of a change on a trial. Its numbers are variables, by index into those of the
// alternative; −1 means none.
type lever struct {
	kind     Kind
	value    int // the number that the change is about
	second   int // of an outage its duration, of failures the hours of repair, of spot the hours lost
	third    int // of spot the available units
	happens  int // whether it happens at all: 0 or 1
	name     string
	from, to int   // epochs [from, to)
	pools    []int // that it affects
	offers   []int // of the instance
	held     []int // commitments of the instance
	quotas   []int
	at       domain.Instant // of what begins at a time, 0: at random
	// unit is the demand of one replica in a pool, in millionths of a machine; before is the
	// previous number of replicas.
	unit, before int64
	times        bool // the value multiplies, else it replaces
	whole        bool // an outage takes everything, in a region
}

// variable is a number of an alternative, with the name of its random numbers.
type variable struct {
	name   string
	number *Number
}

// resolve turns the changes of an alternative into levers on its instance.
func (c *composed) resolve() error {
	err := c.eachLever(func(i int, x *Change) (*lever, error) {
		spans := c.in.Spans()
		l := &lever{kind: x.Kind, value: -1, second: -1, third: -1, happens: -1, to: len(spans), at: x.When}
		switch x.Kind {
		case DemandGrowth, EfficiencyChange:
			l.from, l.to = containing(spans, x.When), endingAt(spans, x.Until)
			if l.pools = c.pools(x.Region, x.Model); len(l.pools) == 0 {
				return nil, unfit("no pool is of %s; pools are %s", x.selector(), c.poolNames())
			}
		case ModelLaunch, DeploymentChange:
			return c.deployment(i, x, l, spans)
		case ProviderOutage:
			for p := range c.in.Pools {
				if (x.Region == "" || x.Region == c.in.Pools[p].Region) && (x.Provider == "" || c.sold[p] == x.Provider) {
					l.pools = append(l.pools, p)
				}
			}
			// A pool of the log is of several suppliers; where it names its own, all of it is lost.
			l.whole = x.Provider == "" || !slices.ContainsFunc(l.pools, func(p int) bool { return c.in.Pools[p].Provider == "" })
			if len(l.pools) == 0 {
				return nil, unfit("no pool is of %s; pools are %s", x.selector(), c.poolNames())
			}
		case Maintenance:
			region, model := x.Region, x.Model
			if x.Cluster != "" {
				// The pool of the cluster's machines is the one with its demand.
				region = cmp.Or(region, c.regionOf(x.Cluster))
			}
			if l.pools = c.pools(region, model); len(l.pools) == 0 {
				c.notes = append(c.notes,
					fmt.Sprintf("changes[%d] %s: no pool has the machines of %s, so it takes nothing from a pool", i,
						x.Kind, x.selector()))
				return nil, nil
			}
			l.pools = l.pools[:1]
			if len(x.Nodes) > 0 {
				x.Units = FixedAt(decimal.NewFromInt(int64(len(x.Nodes))))
			}
		case PriceChange:
			l.from, l.times = following(spans, x.When), x.Factor != nil
			c.pricedBy(x, l)
		case NewOffer:
			for o := range c.in.Offers {
				if f := &c.in.Offers[o]; f.Provider == x.Provider && offerID(f) == x.Offer &&
					regionOf(c.in, f.Pool) == x.Region {
					l.offers = append(l.offers, o)
				}
			}
		case Renewal:
			for h := range c.in.Commitments {
				if id := c.in.Commitments[h].ID; len(id) > len(x.Commitment) &&
					id[:len(x.Commitment)] == x.Commitment && id[len(x.Commitment)] == ',' {
					l.held = append(l.held, h)
				}
			}
			l.times = x.Factor != nil
		case FailureRate, SpotInterruption:
			if l.pools = c.pools(x.Region, x.Model); len(l.pools) == 0 {
				return nil, unfit("no pool is of %s; pools are %s", x.selector(), c.poolNames())
			}
		case LeadTime:
			for o := range c.in.Offers {
				f := &c.in.Offers[o]
				if (x.Provider == "" || f.Provider == x.Provider) && (x.Region == "" || regionOf(c.in, f.Pool) == x.Region) &&
					(x.Model == "" || slices.Contains(c.pools("", x.Model), c.pool(f.Pool))) &&
					(x.Offer == "" || offerID(f) == x.Offer) &&
					(x.OfferKind == "" || x.OfferKind == string(f.Kind)) {
					l.offers = append(l.offers, o)
				}
			}
		case QuotaChange:
			l.from = following(spans, x.When)
			for _, p := range c.pools(x.Region, x.Model) {
				for q := range c.in.Quotas {
					if c.in.Quotas[q].ID == c.in.Pools[p].Quota && c.sold[p] == x.Provider && !slices.Contains(l.quotas, q) {
						l.quotas = append(l.quotas, q)
					}
				}
			}
		case FXChange:
			l.from = following(spans, x.When)
			currency := x.Base
			if currency == c.in.Currency {
				currency = x.Quote
				l.times = true // the rate is quoted in the opposite direction
			}
			for p := range c.in.Pools {
				if c.foreign[c.in.Pools[p].ID] == currency {
					l.pools = append(l.pools, p)
				}
			}
			for o := range c.in.Offers {
				if c.foreign[c.in.Offers[o].ID] == currency {
					l.offers = append(l.offers, o)
				}
			}
			for h := range c.in.Commitments {
				if c.foreign[c.in.Commitments[h].ID] == currency {
					l.held = append(l.held, h)
				}
			}
		case PurchaseMade:
			return nil, nil
		}
		return l, nil
	})
	// A limit holds until the next one begins, in any order of the changes.
	var limits []lever
	for i := range c.levers {
		if c.levers[i].kind == QuotaChange {
			limits = append(limits, c.levers[i])
		}
	}
	slices.SortStableFunc(limits, func(a, b lever) int { return cmp.Compare(a.at, b.at) })
	for i := range c.levers {
		if c.levers[i].kind == QuotaChange {
			c.levers[i], limits = limits[0], limits[1:]
		}
	}
	return err
}

// eachLever makes the levers of the changes, with their variables.
func (c *composed) eachLever(lever func(int, *Change) (*lever, error)) error {
	seen := map[string]int{}
	for i := range c.changes {
		x := &c.changes[i]
		name := string(x.Kind)
		if x.Name != "" {
			name = x.Name
		} else if s := x.selector(); s != "" {
			name += " " + s
		}
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprintf("%s #%d", name, seen[name])
		}
		l, err := lever(i, x)
		if err != nil {
			return fmt.Errorf("changes[%d] %s: %w", i, x.Kind, err)
		}
		if l == nil {
			continue
		}
		l.name = name
		c.bind(l, x, name)
		c.levers = append(c.levers, *l)
	}
	return nil
}

// variables are the numbers that levers read, in a fixed order.
type variables struct {
	list []variable
}

func (v *variables) add(name string, n *Number) int {
	if n == nil {
		return -1
	}
	for i := range v.list {
		if v.list[i].name == name {
			return i
		}
	}
	v.list = append(v.list, variable{name, n})
	return len(v.list) - 1
}

// bind gives a lever its variables.
func (c *composed) bind(l *lever, x *Change, name string) {
	add := func(what string, n *Number) int { return c.vars.add(name+" "+what, n) }
	if x.Probability != nil {
		l.happens = add("happens", x.Probability)
	}
	switch x.Kind {
	case DemandGrowth:
		l.value, l.times = add("factor", x.Factor), x.Factor != nil
		if x.Monthly != nil {
			l.value = add("monthly", x.Monthly)
		}
	case EfficiencyChange:
		l.value = add("factor", x.Factor)
	case ModelLaunch, DeploymentChange:
		l.value, l.times = add("replicas", x.Replicas), x.Factor != nil
		if x.Factor != nil {
			l.value = add("factor", x.Factor)
		}
	case ProviderOutage:
		l.second, l.value = add("duration", x.Duration), add("per_year", x.PerYear)
	case Maintenance:
		l.second, l.value = add("duration", x.Duration), add("units", x.Units)
	case PriceChange:
		l.value = add("factor", x.Factor)
		if x.Hourly != nil {
			l.value = add("hourly", x.Hourly)
		}
	case NewOffer:
		l.value, l.second, l.third = add("hourly", x.Hourly), add("upfront", x.Upfront), add("lead_time_hours", x.LeadHours)
	case Renewal:
		l.value = add("hourly", x.Hourly)
		if x.Factor != nil {
			l.value = add("factor", x.Factor)
		}
	case FailureRate:
		l.value, l.second, l.before = add("per_gpu_hour", x.PerGPUHour), add("repair_hours", x.RepairHours), int64(x.GPUs)
	case SpotInterruption:
		lost := x.LostHours
		if lost == nil {
			lost = FixedAt(decimal.New(25, -2))
		}
		l.value, l.second, l.third = add("per_unit_hour", x.PerUnitHour), add("lost_hours", lost), add("available", x.Available)
	case LeadTime:
		l.value = add("hours", x.Hours)
	case QuotaChange:
		l.value = add("limit_gpus", x.LimitGPUs)
	case FXChange:
		l.value = add("rate", x.Rate)
	}
}

// deployment finds the pool of a deployment's demand: the one of its region and of a model that it
// may use, with the most demand if there are several.
func (c *composed) deployment(i int, x *Change, l *lever, spans []domain.Interval) (*lever, error) {
	at := slices.IndexFunc(c.deploy, func(d deployed) bool { return d.change == i })
	if at < 0 {
		return nil, nil
	}
	d := &c.deploy[at]
	l.from, l.to, l.before = containing(spans, x.When), endingAt(spans, x.Until), d.before
	best, most := -1, -1
	for _, p := range c.pools(d.region, "") {
		pool := &c.in.Pools[p]
		model := pool.Class
		if x.Model != "" && !named(x.Model, model) && x.Model != model {
			continue
		}
		if x.Model == "" && len(d.models) > 0 && !slices.Contains(d.models, model) {
			continue
		}
		peak := 0
		for k := range c.in.Demands {
			if c.in.Demands[k].Pool == pool.ID {
				for _, u := range c.in.Demands[k].Hourly {
					peak = max(peak, u)
				}
			}
		}
		if peak > most {
			best, most = p, peak
		}
	}
	if best < 0 || c.in.Pools[best].GPUs == 0 {
		c.notes = append(c.notes,
			fmt.Sprintf("changes[%d] %s: no pool in %s sells what deployment %s may use, so it adds no demand; "+
				"pools are %s", i, x.Kind, d.region, d.id, c.poolNames()))
		return nil, nil
	}
	l.pools = []int{best}
	l.unit = d.milli * 1000 / int64(c.in.Pools[best].GPUs)
	if x.Removed {
		x.Replicas = FixedAt(decimal.Zero)
	}
	return l, nil
}

// pricedBy finds the pools and offers whose price a change affects. That includes offers that have
// a price under another name from a day on.
func (c *composed) pricedBy(x *Change, l *lever) {
	for p := range c.in.Pools {
		pool := &c.in.Pools[p]
		if (x.Provider == "" || c.sold[p] == x.Provider) && (x.Region == "" || pool.Region == x.Region) &&
			(x.Model == "" || pool.Class == x.Model || named(x.Model, pool.Class)) && x.Offer == "" {
			l.pools = append(l.pools, p)
		}
	}
	l.before = 0
	switch x.OfferKind {
	case "":
		l.before = 3
	case string(domain.OfferOnDemand):
		l.before = 1
	case string(domain.OfferSpot):
		l.before = 2
	default:
		l.pools = nil
	}
	if x.OfferKind == string(domain.OfferOnDemand) || x.OfferKind == string(domain.OfferSpot) {
		return
	}
	for o := range c.in.Offers {
		f := &c.in.Offers[o]
		if (x.Provider == "" || f.Provider == x.Provider) && (x.Region == "" || regionOf(c.in, f.Pool) == x.Region) &&
			(x.Offer == "" || offerID(f) == x.Offer) &&
			(x.Model == "" || slices.Contains(c.pools("", x.Model), c.pool(f.Pool))) &&
			(x.OfferKind == "" || x.OfferKind == string(f.Kind)) &&
			(x.When <= c.in.From || f.From >= x.When) {
			l.offers = append(l.offers, o)
		}
	}
}

func (c *composed) pool(id string) int {
	return slices.IndexFunc(c.in.Pools, func(p instance.Pool) bool { return p.ID == id })
}

func regionOf(in *instance.Instance, pool string) string {
	for i := range in.Pools {
		if in.Pools[i].ID == pool {
			return in.Pools[i].Region
		}
	}
	return ""
}

// regionOf returns the region of a cluster that changes mention.
func (c *composed) regionOf(cluster string) string { return c.clusters[cluster] }

// offerID is the supplier's name of an offer of an instance.
func offerID(o *instance.Offer) string {
	id := originOf(o.ID)
	prefix := o.Pool + "|" + o.Provider + "|"
	if len(id) > len(prefix) && id[:len(prefix)] == prefix {
		return strings.NewReplacer(`\|`, `|`, `\\`, `\`).Replace(id[len(prefix):])
	}
	return id
}

func (c *composed) poolNames() string {
	const few = 8
	s := ""
	for i := range c.in.Pools {
		if i == few {
			return s + fmt.Sprintf(" and %d more", len(c.in.Pools)-few)
		}
		if i > 0 {
			s += ", "
		}
		s += c.in.Pools[i].ID
	}
	return s
}

// containing is the epoch that contains a time, 0 for a time before all.
func containing(spans []domain.Interval, t domain.Instant) int {
	beyond := domain.Interval{From: spans[len(spans)-1].To, To: forever}
	return max(0, slices.IndexFunc(append(slices.Clone(spans), beyond), func(s domain.Interval) bool { return t < s.To }))
}

// following is the first epoch that begins at a time or later.
func following(spans []domain.Interval, t domain.Instant) int {
	for m := range spans {
		if spans[m].From >= t {
			return m
		}
	}
	return len(spans)
}

// endingAt is the first epoch after something that ends at a time; 0 means open-ended.
func endingAt(spans []domain.Interval, t domain.Instant) int {
	if t == 0 {
		return len(spans)
	}
	return following(spans, t)
}
