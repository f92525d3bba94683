package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// holding is what is held under one name and serves a pool: the terms of a commitment, or owned
// machines. Units are machines of the pool.
type holding struct {
	of         Held // its first term
	guaranteed bool
	terms      []heldTerm
}

type heldTerm struct {
	domain.Interval // To math.MaxInt64: open-ended
	units           int
	hourly          domain.Decimal // of all units
	upfront         domain.Decimal // paid when the term begins
}

// name is the pool's name in CountsFor.
func (k *candidate) name() string { return k.Region + " " + k.Kind }

func namesOf(pools []*candidate) []string {
	out := make([]string, len(pools))
	for i, k := range pools {
		out[i] = k.name()
	}
	return out
}

// assign assigns everything held to the one pool that it serves: the first matching pool, in the
// order pools of GPUs before pools of machines, then region and name. Anything that serves no pool
// gets a reason.
func (c *composer) assign() {
	c.held = slices.Clone(c.q.Held)
	slices.SortFunc(c.held, compareHeld)
	order := slices.Clone(c.pools)
	slices.SortStableFunc(order, func(x, y *candidate) int {
		switch {
		case x.inGPUs() == y.inGPUs():
			return 0
		case x.inGPUs():
			return -1
		}
		return 1
	})
	for i := range c.held {
		h := &c.held[i]
		h.CountsFor, h.NotCounted = "", "no demand for it was observed there"
		if h.Kind == domain.OfferSpendCommitment {
			h.NotCounted = string(h.Kind) + " spans pools and is not planned yet"
			continue
		}
		for _, k := range order {
			kind := h.SKU
			if k.inGPUs() {
				kind = h.GPUModel
			}
			if h.Region != k.Region || kind != k.Kind {
				continue
			}
			units, reason := c.serves(h, k)
			if reason == "" {
				h.CountsFor, h.NotCounted = k.name(), ""
				k.hold(h, units)
				break
			}
			h.NotCounted = reason
		}
	}
	for _, k := range c.pools {
		if k.left == "" {
			k.guaranteed, k.discountOnly = k.machines(c.span)
			k.owed = c.owed(k)
			c.note(k)
		}
	}
}

func compareHeld(x, y Held) int {
	return cmp.Or(
		cmp.Compare(x.Commitment, y.Commitment), cmp.Compare(x.Provider, y.Provider), cmp.Compare(x.Region, y.Region),
		cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.SKU, y.SKU), cmp.Compare(x.GPUModel, y.GPUModel),
		cmp.Compare(x.GPUs, y.GPUs),
		cmp.Compare(x.Term.From, y.Term.From), cmp.Compare(x.Term.To, y.Term.To), cmp.Compare(x.Units, y.Units),
		cmp.Compare(fmt.Sprint(x.Guaranteed, x.Hourly), fmt.Sprint(y.Guaranteed, y.Hourly)))
}

// serves returns the number of the pool's machines that something held provides, or why it provides
// none.
func (c *composer) serves(h *Held, k *candidate) (units int, reason string) {
	if k.left != "" {
		return 0, "its pool is excluded from the plan"
	}
	s := k.shelf
	switch {
	case !h.Hourly.Amount.IsZero() && h.Hourly.Currency != c.a.Currency:
		return 0, fmt.Sprintf("paid in %s, the plan is in %s", h.Hourly.Currency, c.a.Currency)
	case !h.Upfront.Amount.IsZero() && h.Upfront.Currency != c.a.Currency:
		return 0, fmt.Sprintf("paid in %s, the plan is in %s", h.Upfront.Currency, c.a.Currency)
	case !s.uses(h.Provider, h.Guaranteed):
		return 0, fmt.Sprintf("discount only, and the on-demand quota is that of %s", s.onDemand.Market.Provider)
	case !k.inGPUs() || h.GPUs == s.gpus:
		return h.Units, ""
	case h.GPUs <= 0:
		return 0, "it does not say how many GPUs a unit has"
	case h.GPUs%s.gpus != 0 && s.gpus%h.GPUs != 0, h.Units > math.MaxInt/h.GPUs:
		return 0, fmt.Sprintf("units of %d GPUs, and the pool is planned in machines of %d", h.GPUs, s.gpus)
	case h.Units*h.GPUs < s.gpus:
		return 0, fmt.Sprintf("%d GPUs in all, and the pool is planned in machines of %d", h.Units*h.GPUs, s.gpus)
	}
	return h.Units * h.GPUs / s.gpus, ""
}

// hold adds a term to what serves a pool.
func (k *candidate) hold(h *Held, units int) {
	i := slices.IndexFunc(k.held, func(x holding) bool {
		return h.Kind != domain.OfferOwned && x.of.Commitment == h.Commitment && x.of.Provider == h.Provider &&
			x.of.Kind == h.Kind &&
			x.of.SKU == h.SKU && x.of.GPUs == h.GPUs && x.guaranteed == h.Guaranteed
	})
	if i < 0 {
		i = len(k.held)
		k.held = append(k.held, holding{of: *h, guaranteed: h.Guaranteed})
	}
	t := heldTerm{h.Term, units, h.Hourly.Amount.Mul(decimal.NewFromInt(int64(h.Units))), h.Upfront.Amount}
	if t.To == 0 {
		t.To = math.MaxInt64
	}
	k.held[i].terms = append(k.held[i].terms, t)
}

// throughout returns the units present during all of a month, with consecutive terms joined, and
// the largest number present at any time in it.
func (h *holding) throughout(month domain.Interval) (always, most int) {
	covered := month.From
	always = math.MaxInt
	for _, t := range h.terms { // ascending
		if t.To <= covered || t.From >= month.To {
			continue
		}
		most = max(most, t.units)
		if t.From > covered {
			always = 0
		}
		always, covered = min(always, t.units), t.To
	}
	if covered < month.To {
		always = 0
	}
	return always, most
}

// machines returns the machines held in each month, guaranteed and discount-only. A commitment that
// covers only part of a month does not count in it, which the notes say.
func (k *candidate) machines(span []domain.Interval) (guaranteed, discountOnly []int) {
	guaranteed, discountOnly = make([]int, len(span)), make([]int, len(span))
	owned := 0
	var parts []string
	for i := range k.held {
		h := &k.held[i]
		if h.of.Kind == domain.OfferOwned {
			owned += h.terms[0].units
		}
		for m, month := range span {
			always, most := h.throughout(month)
			if always < most {
				parts = append(parts, fmt.Sprintf("%s in %s (%d of %d)", h.of.Commitment,
					month.From.Time().Format("2006-01"), always, most))
			}
			if h.guaranteed {
				guaranteed[m] += always
			} else {
				discountOnly[m] += always
			}
		}
	}
	if owned > 0 {
		k.notes = append(k.notes, fmt.Sprintf("%d owned machines serve it for the whole horizon", owned))
	}
	if len(parts) > 0 {
		k.notes = append(k.notes, "held for a part of a month, which does not count as capacity in it: "+listed(parts))
	}
	return guaranteed, discountOnly
}

// owed is the present value, to a nano-unit, of what is still to be paid within the horizon for
// what serves a pool: hourly, and upfront for terms that have not begun.
func (c *composer) owed(k *candidate) domain.Decimal {
	sum := decimal.Zero
	for i := range k.held {
		for _, t := range k.held[i].terms {
			for m, month := range c.span {
				if month.From <= t.From && t.From < month.To {
					sum = sum.Add(t.upfront.Mul(c.discount.month[m]))
				}
				within := min(t.To, month.To) - max(t.From, month.From)
				if within <= 0 {
					continue
				}
				hours := decimal.NewFromInt(int64(within)).DivRound(decimal.NewFromInt(int64(domain.Hour)), digits)
				sum = sum.Add(t.hourly.Mul(hours).Mul(c.discount.middle(m)))
			}
		}
	}
	return sum.Round(9)
}

// ignored lists the commitments that serve no pool of the plan. Owned machines are not bought by a
// commitment and are left out.
func (c *composer) ignored() []Ignored {
	var out []Ignored
	for i := range c.held {
		h := &c.held[i]
		if h.CountsFor != "" || h.Kind == domain.OfferOwned || h.Term.To != 0 && h.Term.To <= c.span[0].From ||
			h.Term.From >= c.end() {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Commitment == h.Commitment && out[n-1].Reason == h.NotCounted &&
			out[n-1].Term.To == h.Term.From {
			out[n-1].Term.To = h.Term.To // consecutive term
			continue
		}
		out = append(out, Ignored{h.Commitment, h.Provider, h.Region, h.Kind, h.SKU, h.Units, h.Term, h.NotCounted})
	}
	return out
}

// ladder lists what expires, in order, and the pool that it serves until then.
func (c *composer) ladder() []Held {
	out := slices.Clone(c.q.Expiry)
	if out == nil {
		out = []Held{}
	}
	for i := range out {
		x := &out[i]
		at := slices.IndexFunc(c.held, func(h Held) bool {
			return h.Commitment == x.Commitment && h.Provider == x.Provider && h.Region == x.Region && h.Term.To == x.Term.To
		})
		if at >= 0 {
			x.CountsFor, x.NotCounted = c.held[at].CountsFor, c.held[at].NotCounted
		}
	}
	slices.SortFunc(out, func(x, y Held) int { return cmp.Or(cmp.Compare(x.Term.To, y.Term.To), compareHeld(x, y)) })
	return out
}
