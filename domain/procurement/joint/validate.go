package joint

import (
	"fmt"
	"slices"

	"quartermaster/domain/procurement"
)

// Validate returns an error for the first field that is meaningless or beyond the limits.
func (p *Problem) Validate() error {
	if err := p.validate(); err != nil {
		return fmt.Errorf("problem %q: %w", p.ID, err)
	}
	return nil
}

func (p *Problem) validate() error {
	switch {
	case p.Weight < 1 || p.Weight > MaxWeight:
		return fmt.Errorf("weight %d: not within 1 to %d", p.Weight, MaxWeight)
	case len(p.Pools) == 0:
		return fmt.Errorf("pools: none")
	case len(p.Epochs) == 0:
		return fmt.Errorf("epochs: none")
	}
	for i, d := range p.Demands {
		if d.Interruptible < 0 || d.Interruptible > 1000 {
			return fmt.Errorf("demands[%d] (%q).interruptible %d: not within 0 to 1000", i, d.ID, d.Interruptible)
		}
		if d.Window < 0 || d.Window > MaxHours {
			return fmt.Errorf("demands[%d] (%q).window %d: not within 0 to %d", i, d.ID, d.Window, MaxHours)
		}
	}
	seen := map[[2]int]bool{}
	for i, r := range p.Routes {
		switch {
		case !in(r.Demand, p.Demands):
			return fmt.Errorf("routes[%d].demand %d: there is no such demand", i, r.Demand)
		case !in(r.Pool, p.Pools):
			return fmt.Errorf("routes[%d].pool %d: there is no such pool", i, r.Pool)
		case r.Num < 1 || r.Num > MaxRatio || r.Den < 1 || r.Den > MaxRatio:
			return fmt.Errorf("routes[%d] %d/%d: not both within 1 to %d", i, r.Num, r.Den, MaxRatio)
		case seen[[2]int{r.Demand, r.Pool}]:
			return fmt.Errorf("routes[%d]: a second one from demand %q to pool %q", i, p.Demands[r.Demand].ID, p.Pools[r.Pool])
		}
		seen[[2]int{r.Demand, r.Pool}] = true
	}
	for i := range p.Epochs {
		if err := p.validateEpoch(i); err != nil {
			return fmt.Errorf("epochs[%d].%w", i, err)
		}
	}
	ids := map[string]bool{}
	for i := range p.Choices {
		if err := p.Choices[i].validate(p); err != nil {
			return fmt.Errorf("choices[%d] (%q).%w", i, p.Choices[i].ID, err)
		}
	}
	for i := range p.Needs {
		if err := p.Needs[i].validate(p); err != nil {
			return fmt.Errorf("needs[%d] (%q).%w", i, p.Needs[i].ID, err)
		}
		if ids["need "+p.Needs[i].ID] {
			return fmt.Errorf("needs[%d].id %q: there are two", i, p.Needs[i].ID)
		}
		ids["need "+p.Needs[i].ID] = true
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		switch {
		case ids["limit "+l.ID]:
			return fmt.Errorf("limits[%d].id %q: there are two", i, l.ID)
		case l.Most < 0 || l.Most > 9*MaxCost:
			return fmt.Errorf("limits[%d] (%q).most %d: not within 0 to %d", i, l.ID, l.Most, 9*MaxCost)
		case l.Unserved && l.Spot:
			return fmt.Errorf("limits[%d] (%q): counts either what is not served or what spot serves, not both", i, l.ID)
		case l.Serving != nil && len(l.Serving) != len(p.Epochs):
			return fmt.Errorf("limits[%d] (%q).serving: %d epochs of %d", i, l.ID, len(l.Serving), len(p.Epochs))
		}
		for m, v := range l.Serving {
			if v < 0 || v > MaxRatio {
				return fmt.Errorf("limits[%d] (%q).serving[%d] %d: not within 0 to %d", i, l.ID, m, v, MaxRatio)
			}
		}
		ids["limit "+l.ID] = true
	}
	return nil
}

func in[T any](i int, of []T) bool { return i >= 0 && i < len(of) }

func (p *Problem) validateEpoch(m int) error {
	e := &p.Epochs[m]
	switch {
	case e.Span.To < e.Span.From:
		return fmt.Errorf("span: ends before it begins")
	case len(e.Pools) != len(p.Pools):
		return fmt.Errorf("pools: %d of %d", len(e.Pools), len(p.Pools))
	case len(e.Routes) != len(p.Routes):
		return fmt.Errorf("routes: %d of %d", len(e.Routes), len(p.Routes))
	case len(e.Shortage) != len(p.Demands):
		return fmt.Errorf("shortage: %d of %d demands", len(e.Shortage), len(p.Demands))
	case len(e.Quotas) != len(p.Quotas):
		return fmt.Errorf("quotas: %d of %d", len(e.Quotas), len(p.Quotas))
	case len(e.Spends) != len(p.Spends):
		return fmt.Errorf("spends: %d of %d", len(e.Spends), len(p.Spends))
	case len(e.Cases) == 0 || len(e.Cases) != len(p.Epochs[0].Cases):
		return fmt.Errorf("cases: %d, in the first epoch %d, and one at least", len(e.Cases), len(p.Epochs[0].Cases))
	}
	for i := range e.Pools {
		s := &e.Pools[i]
		switch {
		case s.OnDemand > MaxPrice:
			return fmt.Errorf("pools[%d].on-demand %d: above %d", i, s.OnDemand, MaxPrice)
		case s.Spot > MaxPrice:
			return fmt.Errorf("pools[%d].spot %d: above %d", i, s.Spot, MaxPrice)
		case s.HeldGuaranteed < 0 || s.HeldGuaranteed > MaxUnits:
			return fmt.Errorf("pools[%d].held guaranteed %d: not within 0 to %d", i, s.HeldGuaranteed, MaxUnits)
		case s.HeldDiscountOnly < 0 || s.HeldDiscountOnly > MaxUnits:
			return fmt.Errorf("pools[%d].held discount-only %d: not within 0 to %d", i, s.HeldDiscountOnly, MaxUnits)
		case s.Quota != -1 && !in(s.Quota, p.Quotas):
			return fmt.Errorf("pools[%d].quota %d: there is no such quota, nor is it -1", i, s.Quota)
		case s.Quota != -1 && (s.QuotaPerUnit < 1 || s.QuotaPerUnit > MaxRatio):
			return fmt.Errorf("pools[%d].quota per unit %d: not within 1 to %d", i, s.QuotaPerUnit, MaxRatio)
		case s.Spend != -1 && !in(s.Spend, p.Spends):
			return fmt.Errorf("pools[%d].spend %d: there is no such commitment to spend, nor is it -1", i, s.Spend)
		case s.Spend != -1 && (s.SpendPrice < 1 || s.SpendPrice > MaxPrice):
			return fmt.Errorf("pools[%d].spend price %d: not within 1 to %d", i, s.SpendPrice, MaxPrice)
		}
	}
	// The cost of a column of an hour must leave room for the multipliers of limits.
	const room = MaxPrice * 10
	for i, x := range e.Routes {
		r := &p.Routes[i]
		switch spot := e.Pools[r.Pool].Spot; {
		case x < 0 || x > MaxPrice || x > room/procurement.Nano(r.Den):
			return fmt.Errorf("routes[%d] %d: negative, or above %d or %d divided by the route's denominator", i, x,
				MaxPrice, room)
		case spot > room/procurement.Nano(r.Num):
			return fmt.Errorf("pools[%d].spot %d: above %d divided by the numerator of routes[%d]", r.Pool, spot, room, i)
		case e.Shortage[r.Demand] > room/procurement.Nano(r.Den):
			return fmt.Errorf("shortage[%d] %d: above %d divided by the denominator of routes[%d]", r.Demand,
				e.Shortage[r.Demand], room, i)
		}
	}
	for i, x := range e.Shortage {
		if x < 0 || x > MaxPrice {
			return fmt.Errorf("shortage[%d] %d: not within 0 to %d", i, x, MaxPrice)
		}
	}
	for i, q := range e.Quotas {
		if q < procurement.Unlimited || q > MaxUnits {
			return fmt.Errorf("quotas[%d] %d: neither Unlimited nor within 0 to %d", i, q, MaxUnits)
		}
	}
	for i, s := range e.Spends {
		if s < 0 || s > MaxCost {
			return fmt.Errorf("spends[%d] %d: not within 0 to %d", i, s, MaxCost)
		}
	}
	weight := 0
	for i := range e.Cases {
		c := &e.Cases[i]
		switch {
		case c.Weight < 1 || c.Weight > MaxWeight:
			return fmt.Errorf("cases[%d].weight %d: not within 1 to %d", i, c.Weight, MaxWeight)
		case c.Weight != p.Epochs[0].Cases[i].Weight:
			return fmt.Errorf("cases[%d].weight %d: in the first epoch it is %d", i, c.Weight, p.Epochs[0].Cases[i].Weight)
		case len(c.Spot) != len(p.Pools):
			return fmt.Errorf("cases[%d].spot: %d pools of %d", i, len(c.Spot), len(p.Pools))
		}
		weight += c.Weight
		for k, z := range c.Spot {
			if z < procurement.Unlimited || z > MaxUnits {
				return fmt.Errorf("cases[%d].spot[%d] %d: neither Unlimited nor within 0 to %d", i, k, z, MaxUnits)
			}
		}
		hours := 0
		for k := range c.Slots {
			s := &c.Slots[k]
			switch {
			case s.Hours < 1 || s.Hours > MaxHours-hours:
				return fmt.Errorf("cases[%d].slots[%d].hours %d: below 1, or more than %d in all", i, k, s.Hours, MaxHours)
			case len(s.Units) != len(p.Demands):
				return fmt.Errorf("cases[%d].slots[%d].units: %d demands of %d", i, k, len(s.Units), len(p.Demands))
			case !p.waits() && k > 0 && slices.Compare(c.Slots[k-1].Units, s.Units) >= 0:
				return fmt.Errorf("cases[%d].slots[%d].units: not after the slot before", i, k)
			case p.waits() && s.Hours != 1:
				return fmt.Errorf("cases[%d].slots[%d].hours %d: some demand waits, and each slot is an hour", i, k, s.Hours)
			case s.Waits != nil && len(s.Waits) != len(p.Demands):
				return fmt.Errorf("cases[%d].slots[%d].waits: %d demands of %d", i, k, len(s.Waits), len(p.Demands))
			}
			for d, u := range s.Waits {
				if u < 0 || u > s.Units[d] || u > 0 && p.Demands[d].Window == 0 {
					return fmt.Errorf("cases[%d].slots[%d].waits[%d] %d: not within 0 to the demand, or of one without a window", i, k, d, u)
				}
			}
			hours += s.Hours
			for d, u := range s.Units {
				if u < 0 || u > MaxUnits {
					return fmt.Errorf("cases[%d].slots[%d].units[%d] %d: not within 0 to %d", i, k, d, u, MaxUnits)
				}
			}
		}
	}
	if weight != p.Weight {
		return fmt.Errorf("cases: weights sum to %d, not to the problem's %d", weight, p.Weight)
	}
	return nil
}

func (c *Choice) validate(p *Problem) error {
	switch {
	case c.Cost < 0 || c.Cost > MaxCost:
		return fmt.Errorf("cost %d: not within 0 to %d", c.Cost, MaxCost)
	case c.Max < procurement.Unlimited || c.Max > MaxUnits:
		return fmt.Errorf("max %d: neither Unlimited nor within 0 to %d", c.Max, MaxUnits)
	case c.Least < 0 || c.Least > MaxUnits:
		return fmt.Errorf("least %d: not within 0 to %d", c.Least, MaxUnits)
	case c.Lot < 1 || c.Lot > MaxUnits:
		return fmt.Errorf("lot %d: not within 1 to %d", c.Lot, MaxUnits)
	case len(c.Spent) != 0 && len(c.Spent) != len(p.Limits):
		return fmt.Errorf("spent: %d limits of %d", len(c.Spent), len(p.Limits))
	}
	for i, k := range c.Cover {
		switch {
		case !in(k.Pool, p.Pools):
			return fmt.Errorf("cover[%d].pool %d: there is no such pool", i, k.Pool)
		case k.From < 0 || k.From >= k.To || k.To > len(p.Epochs):
			return fmt.Errorf("cover[%d] from %d to %d: no epochs within 0 to %d", i, k.From, k.To, len(p.Epochs))
		case k.Units < 1 || k.Units > MaxRatio:
			return fmt.Errorf("cover[%d].units %d: not within 1 to %d", i, k.Units, MaxRatio)
		}
	}
	for i, k := range c.Spend {
		switch {
		case !in(k.Spend, p.Spends):
			return fmt.Errorf("spend[%d].spend %d: there is no such commitment to spend", i, k.Spend)
		case k.From < 0 || k.From >= k.To || k.To > len(p.Epochs):
			return fmt.Errorf("spend[%d] from %d to %d: no epochs within 0 to %d", i, k.From, k.To, len(p.Epochs))
		case k.PerHour < 1 || k.PerHour > MaxPrice:
			return fmt.Errorf("spend[%d].per hour %d: not within 1 to %d", i, k.PerHour, MaxPrice)
		}
	}
	for i, s := range c.Spent {
		if s < 0 || s > MaxCost {
			return fmt.Errorf("spent[%d] %d: not within 0 to %d", i, s, MaxCost)
		}
	}
	return nil
}

func (n *Need) validate(p *Problem) error {
	if n.Least < 0 || n.Least > MaxUnits*10_000 {
		return fmt.Errorf("least %d: not within 0 to %d", n.Least, MaxUnits*10_000)
	}
	for i, m := range n.Epochs {
		if !in(m, p.Epochs) || i > 0 && m <= n.Epochs[i-1] {
			return fmt.Errorf("epochs[%d] %d: not within 0 to %d, or not after the one before", i, m, len(p.Epochs)-1)
		}
	}
	seen := map[int]bool{}
	for i, t := range n.Terms {
		switch {
		case !in(t.Pool, p.Pools) || seen[t.Pool]:
			return fmt.Errorf("terms[%d].pool %d: there is no such pool, or it is named before", i, t.Pool)
		case t.PerUnit < 1 || t.PerUnit > MaxRatio:
			return fmt.Errorf("terms[%d].per unit %d: not within 1 to %d", i, t.PerUnit, MaxRatio)
		}
		seen[t.Pool] = true
	}
	return nil
}
