package procurement

import "fmt"

// Validate returns an error for the first field that is meaningless or beyond the limits.
func (p *Pool) Validate() error {
	if err := p.validate(); err != nil {
		return fmt.Errorf("pool %q: %w", p.ID, err)
	}
	return nil
}

func (p *Pool) validate() error {
	if len(p.Epochs) == 0 {
		return fmt.Errorf("epochs: none")
	}
	weight := 0
	for i, w := range p.Weights {
		if w < 1 || w > MaxWeight-weight {
			return fmt.Errorf("weights[%d] %d: below 1, or the sum is above %d", i, w, MaxWeight)
		}
		weight += w
	}
	var worth Nano // of one unit, short all the time
	for i := range p.Epochs {
		w, err := p.validateEpoch(i)
		if err == nil && w > MaxWorth-worth {
			err = fmt.Errorf("shortage %d: a unit that is short all the time would cost more than %d",
				p.Epochs[i].Shortage, MaxWorth)
		}
		if err != nil {
			return fmt.Errorf("epoch %d: %w", i, err)
		}
		worth += w
	}
	for i := range p.Offers {
		if err := p.Offers[i].validate(len(p.Epochs), MaxWorth/Nano(p.Weight())); err != nil {
			return fmt.Errorf("offer %d (%q): %w", i, p.Offers[i].ID, err)
		}
	}
	return nil
}

// validateEpoch returns the cost of one unit that is short in every hour, over all scenarios, each
// times its weight.
func (p *Pool) validateEpoch(m int) (Nano, error) {
	e := &p.Epochs[m]
	if e.Span.To < e.Span.From {
		return 0, fmt.Errorf("span: ends before it begins")
	}
	if n := len(e.Cases); n > 0 {
		if want := max(1, len(p.Weights)); n != want {
			return 0, fmt.Errorf("cases: %d, of %d scenarios", n, want)
		}
		if len(e.Demand) > 0 {
			return 0, fmt.Errorf("demand: there are cases too")
		}
	}
	hours := 0                        // with demand
	left, span := MaxHours, e.hours() // of the span or of demand, whichever is longer
	for i, w := range p.ways(m) {
		n, err := validateDemand(w.Demand, left/w.weight)
		if err == nil && (w.SpotUnits < Unlimited || w.SpotUnits > MaxUnits) {
			err = fmt.Errorf("spot units %d: neither Unlimited nor within 0 to %d", w.SpotUnits, MaxUnits)
		}
		if err == nil && span > int64(left/w.weight) {
			err = fmt.Errorf("span: more than %d hours over all scenarios", MaxHours)
		}
		if err != nil && len(e.Cases) > 0 {
			err = fmt.Errorf("cases[%d]: %w", i, err)
		}
		if err != nil {
			return 0, err
		}
		hours += n * w.weight
		left -= max(n, int(span)) * w.weight
	}
	switch {
	case e.Shortage < 0:
		return 0, fmt.Errorf("shortage %d: negative", e.Shortage)
	case e.Shortage < e.OnDemand:
		return 0, fmt.Errorf("shortage %d: below on-demand %d", e.Shortage, e.OnDemand)
	case e.Shortage < e.Spot:
		return 0, fmt.Errorf("shortage %d: below spot %d", e.Shortage, e.Spot)
	case hours > 0 && e.Shortage > MaxWorth/Nano(hours):
		return 0, fmt.Errorf("shortage %d: a unit that is short all the time would cost more than %d", e.Shortage, MaxWorth)
	case e.SpotPermille < 0 || e.SpotPermille > 1000:
		return 0, fmt.Errorf("spot permille %d: not within 0 to 1000", e.SpotPermille)
	case e.Quota < Unlimited || e.Quota > MaxUnits:
		return 0, fmt.Errorf("quota %d: neither Unlimited nor within 0 to %d", e.Quota, MaxUnits)
	case e.HeldGuaranteed < 0 || e.HeldGuaranteed > MaxUnits:
		return 0, fmt.Errorf("held guaranteed %d: not within 0 to %d", e.HeldGuaranteed, MaxUnits)
	case e.HeldDiscountOnly < 0 || e.HeldDiscountOnly > MaxUnits:
		return 0, fmt.Errorf("held discount-only %d: not within 0 to %d", e.HeldDiscountOnly, MaxUnits)
	}
	return e.Shortage * Nano(hours), nil
}

// validateDemand returns the number of hours with demand.
func validateDemand(demand []Step, most int) (hours int, err error) {
	for i, s := range demand {
		switch {
		case s.Units < 0 || s.Units > MaxUnits:
			return 0, fmt.Errorf("demand[%d].units %d: not within 0 to %d", i, s.Units, MaxUnits)
		case i > 0 && s.Units <= demand[i-1].Units:
			return 0, fmt.Errorf("demand[%d].units %d: not above the %d before", i, s.Units, demand[i-1].Units)
		case s.Hours < 1 || s.Hours > most-hours:
			return 0, fmt.Errorf("demand[%d].hours %d: below 1, or more than %d in the epoch", i, s.Hours, MaxHours)
		}
		hours += s.Hours
	}
	return hours, nil
}

// validate refuses starts that cost more than most.
func (o *Offer) validate(epochs int, most Nano) error {
	if o.Term < 1 {
		return fmt.Errorf("term %d: below 1", o.Term)
	}
	for i, s := range o.Starts {
		switch {
		case s.Epoch < 0 || s.Epoch >= epochs:
			return fmt.Errorf("starts[%d].epoch %d: not within 0 to %d", i, s.Epoch, epochs-1)
		case i > 0 && s.Epoch <= o.Starts[i-1].Epoch:
			return fmt.Errorf("starts[%d].epoch %d: not after the %d before", i, s.Epoch, o.Starts[i-1].Epoch)
		case s.Cost < 0 || s.Cost > most:
			return fmt.Errorf("starts[%d].cost %d: not within 0 to %d", i, s.Cost, most)
		case s.Max < Unlimited || s.Max > MaxUnits:
			return fmt.Errorf("starts[%d].max %d: neither Unlimited nor within 0 to %d", i, s.Max, MaxUnits)
		}
	}
	return nil
}
