package costs

import (
	"cmp"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// Cost is an exact amount of money in the two ledgers, with the GPU time that it bought, in
// milliseconds of a whole GPU.
//
// The three rates are Effective per GPU-hour, rounded half away from zero to six places. The
// numerator of each is all of Effective: tax, idle time and commitments are part of the cost of a
// team's GPU-hours. Only the denominators differ, so that for one cost, the rate per bought hour is
// the lowest and the rate per useful hour the highest. An undefined rate is null, with a reason; it
// is never 0.
type Cost struct {
	Currency  string             `json:"currency"`  // ISO 4217
	Billed    attribution.Amount `json:"billed"`    // reconciles with invoices
	Effective attribution.Amount `json:"effective"` // reconciles with commitments over their term
	// BilledMinor and EffectiveMinor are the amounts in whole minor units of the currency. Those of
	// groups add up to those of totals; see [Report].
	BilledMinor    attribution.Minor `json:"billed_minor"`
	EffectiveMinor attribution.Minor `json:"effective_minor"`

	// List and Contracted are what usage and purchases would have cost at list prices and at contracted prices, and
	// Listed is what they cost effectively. They are about the lines that state both prices, without tax, credits
	// and adjustments. Negotiated is List - Contracted, and Committed is Contracted - Listed, which commitments
	// saved. SavingsRate is 1 - Listed/List (the effective savings rate of the FinOps Foundation), rounded half
	// away from zero to six places; null if List is 0.
	List        attribution.Amount `json:"list"`
	Contracted  attribution.Amount `json:"contracted"`
	Listed      attribution.Amount `json:"effective_listed"`
	Negotiated  attribution.Amount `json:"negotiated_savings"`
	Committed   attribution.Amount `json:"commitment_savings"`
	SavingsRate *domain.Decimal    `json:"effective_savings_rate"`

	Bought    int64 `json:"bought_gpu_ms"`    // as the lines state it; see [attribution.Allocation]
	Allocated int64 `json:"allocated_gpu_ms"` // the part of Bought with a holder
	// Measured is the part of Allocated with measured activity.
	Measured int64 `json:"measured_gpu_ms"`
	// Useful is Measured times the activity; null if time was allocated and none of it measured.
	Useful *int64 `json:"useful_gpu_ms"`

	// PerBought is Effective per hour of Bought, PerAllocated per hour of Allocated, and PerUseful
	// per hour of Useful. Time that was not measured is not useful, so PerUseful is an upper bound
	// if Measured is less than Allocated. A rate's Absent field says why it is null, and is ""
	// otherwise.
	PerBought          *domain.Decimal `json:"effective_per_bought_gpu_hour"`
	PerBoughtAbsent    Absent          `json:"effective_per_bought_gpu_hour_absent,omitempty"`
	PerAllocated       *domain.Decimal `json:"effective_per_allocated_gpu_hour"`
	PerAllocatedAbsent Absent          `json:"effective_per_allocated_gpu_hour_absent,omitempty"`
	PerUseful          *domain.Decimal `json:"effective_per_useful_gpu_hour"`
	PerUsefulAbsent    Absent          `json:"effective_per_useful_gpu_hour_absent,omitempty"`

	useful int64
}

// Absent says why a rate or a change is undefined.
type Absent string

// The reasons.
const (
	NoneBought    Absent = "none bought"    // no line says that it bought GPU time, or all was refunded
	NoneAllocated Absent = "none allocated" // nobody held the bought time
	NotMeasured   Absent = "not measured"   // it was held, and its activity was not measured
	NoneUseful    Absent = "none useful"    // it was measured, and idle
)

func (c *Cost) add(p *part) {
	l := p.allocation
	if p.priced.hasList && p.priced.hasContracted && p.listed() {
		c.List, c.Contracted = c.List.Add(p.priced.list), c.Contracted.Add(p.priced.contracted)
		c.Listed = c.Listed.Add(l.Effective)
	}
	c.Billed, c.Effective = c.Billed.Add(l.Billed), c.Effective.Add(l.Effective)
	c.Bought += l.BoughtMs
	c.Allocated += l.AllocatedMs
	c.Measured += l.MeasuredMs
	c.useful += l.UsefulMs
}

// listed reports whether list and contracted cost count. Those of a commitment's purchase do not: the usage that it pays
// for has them too. (As in the FinOps toolkit's query of savings, which leaves such purchases out.)
func (p *part) listed() bool {
	switch p.allocation.Line.Category {
	case "Usage":
		return true
	case "Purchase":
		return p.charge().Column("CommitmentDiscountId") == ""
	}
	return false
}

// sum adds the sums of another cost.
func (c *Cost) sum(o *Cost) {
	amounts, times := c.amounts(), c.times()
	for i, a := range o.amounts() {
		*amounts[i] = amounts[i].Add(*a)
	}
	for i, ms := range o.times() {
		*times[i] += *ms
	}
}

// finish computes the fields that follow from the sums, except minor units.
func (c *Cost) finish() {
	c.Negotiated, c.Committed = c.List.Sub(c.Contracted), c.Contracted.Sub(c.Listed)
	if !c.List.IsZero() {
		rate := decimal.NewFromInt(1).Sub(c.Listed.Decimal().DivRound(c.List.Decimal(), 6))
		c.SavingsRate = &rate
	}
	c.Useful = usefulOf(c.Allocated, c.Measured, c.useful)
	c.PerBought, c.PerAllocated, c.PerUseful = c.per(c.Bought), c.per(c.Allocated), c.per(c.useful)
	if c.Bought == 0 {
		c.PerBoughtAbsent = NoneBought
	}
	if c.Allocated == 0 {
		c.PerAllocatedAbsent = cmp.Or(c.PerBoughtAbsent, NoneAllocated)
	}
	if c.useful == 0 {
		switch c.PerUsefulAbsent = c.PerAllocatedAbsent; {
		case c.PerUsefulAbsent != "":
		case c.Measured == 0:
			c.PerUsefulAbsent = NotMeasured
		default:
			c.PerUsefulAbsent = NoneUseful
		}
	}
}

// per is the effective cost per hour of ms GPU milliseconds, nil for none.
func (c *Cost) per(ms int64) *domain.Decimal {
	if ms == 0 {
		return nil
	}
	rate := c.Effective.PerHour(ms)
	return &rate
}

// usefulOf returns the useful time if it is known. It is 0 if nothing was held, and unknown if held
// time was not measured.
func usefulOf(allocated, measured, useful int64) *int64 {
	if allocated != 0 && measured == 0 {
		return nil
	}
	return &useful
}

// amount returns the amount in a ledger.
func (c *Cost) amount(of Ledger) attribution.Amount {
	if of == Billed {
		return c.Billed
	}
	return c.Effective
}

// minor returns the amount in a ledger in minor units.
func (c *Cost) minor(of Ledger) attribution.Minor {
	if of == Billed {
		return c.BilledMinor
	}
	return c.EffectiveMinor
}
