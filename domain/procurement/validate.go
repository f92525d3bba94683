package procurement

import "fmt"

// Validate names the first field that makes no sense or is beyond the limits.
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
	var worth Nano // of one unit, short all the time
	for i := range p.Epochs {
		w, err := p.Epochs[i].validate()
		if err == nil && w > MaxWorth-worth {
			err = fmt.Errorf("shortage %d: a unit that is short all the time would cost more than %d", p.Epochs[i].Shortage, MaxWorth)
		}
		if err != nil {
			return fmt.Errorf("epoch %d: %w", i, err)
		}
		worth += w
	}
	for i := range p.Offers {
		if err := p.Offers[i].validate(len(p.Epochs)); err != nil {
			return fmt.Errorf("offer %d (%q): %w", i, p.Offers[i].ID, err)
		}
	}
	return nil
}

// validate returns what one unit costs that is short in every hour.
func (e *Epoch) validate() (Nano, error) {
	if e.Span.To < e.Span.From {
		return 0, fmt.Errorf("span: ends before it begins")
	}
	hours := 0
	for i, s := range e.Demand {
		switch {
		case s.Units < 0 || s.Units > MaxUnits:
			return 0, fmt.Errorf("demand[%d].units %d: not within 0 to %d", i, s.Units, MaxUnits)
		case i > 0 && s.Units <= e.Demand[i-1].Units:
			return 0, fmt.Errorf("demand[%d].units %d: not above the %d before", i, s.Units, e.Demand[i-1].Units)
		case s.Hours < 1 || s.Hours > MaxHours-hours:
			return 0, fmt.Errorf("demand[%d].hours %d: below 1, or more than %d in the epoch", i, s.Hours, MaxHours)
		}
		hours += s.Hours
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
	case e.HeldPriceOnly < 0 || e.HeldPriceOnly > MaxUnits:
		return 0, fmt.Errorf("held price-only %d: not within 0 to %d", e.HeldPriceOnly, MaxUnits)
	}
	return e.Shortage * Nano(hours), nil
}

func (o *Offer) validate(epochs int) error {
	if o.Term < 1 {
		return fmt.Errorf("term %d: below 1", o.Term)
	}
	for i, s := range o.Starts {
		switch {
		case s.Epoch < 0 || s.Epoch >= epochs:
			return fmt.Errorf("starts[%d].epoch %d: not within 0 to %d", i, s.Epoch, epochs-1)
		case i > 0 && s.Epoch <= o.Starts[i-1].Epoch:
			return fmt.Errorf("starts[%d].epoch %d: not after the %d before", i, s.Epoch, o.Starts[i-1].Epoch)
		case s.Cost < 0 || s.Cost > MaxWorth:
			return fmt.Errorf("starts[%d].cost %d: not within 0 to %d", i, s.Cost, MaxWorth)
		case s.Max < Unlimited || s.Max > MaxUnits:
			return fmt.Errorf("starts[%d].max %d: neither Unlimited nor within 0 to %d", i, s.Max, MaxUnits)
		}
	}
	return nil
}
