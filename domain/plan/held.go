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
	noticeBy        domain.Instant
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
			continue // countSpends says what it pays for
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
	case h.Units <= 0:
		return 0, "it has no units"
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

// notice is the day by which notice is due, 0 for a term that was ended before that.
func (h *Held) notice() domain.Instant {
	if h.Term.To != 0 && h.NoticeBy > h.Term.To {
		return 0
	}
	return h.NoticeBy
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
	t := heldTerm{h.Term, units, h.Hourly.Amount.Mul(decimal.NewFromInt(int64(h.Units))), h.Upfront.Amount, h.notice()}
	if t.To == 0 {
		t.To = math.MaxInt64
	}
	k.held[i].terms = append(k.held[i].terms, t)
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
