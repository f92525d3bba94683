package plan

import (
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
)

// held is a commitment of ten machines at 2 an hour each.
func held(from, to string) Held {
	return Held{
		Commitment: "c", Provider: "aws", Region: "r", Kind: domain.OfferReserved, SKU: "small", GPUModel: "K", GPUs: 1, Units: 10,
		Term: domain.Interval{From: at(from), To: at(to)}, Hourly: domain.Money{Amount: dec("2"), Currency: "USD"}, Guaranteed: true,
	}
}

// A commitment that was ended before its notice was due serves until its end.
func TestHeldEndedEarly(t *testing.T) {
	q := over(2, even("2026-06-01", 10))
	q.Held = []Held{held("2025-10-01", "2026-07-01")}
	q.Held[0].NoticeBy = at("2026-09-01")
	equal(t, "cost", one(t, q).Cost, "88800") // 720 h × 20 + 744 h × 100
}

// Until October ten machines are held: 122 days at 20 an hour are owed in any case. From then on
// they are bought at 5, or cost 10 on demand.
func TestHeldUntilOctober(t *testing.T) {
	p := even("2026-06-01", 10)
	p.Offers = append(p.Offers, sold("1m", domain.OfferReserved, "5", 1))
	q := over(6, p)
	q.Held = []Held{held("2025-10-01", "2026-10-01")}
	q.Expiry = q.Held
	got := one(t, q)
	equal(t, "held", got.Held, "58560")                   // 2928 h × 20
	equal(t, "cost", got.Cost, "131760")                  // + 1464 h × 50
	equal(t, "current", got.Current, "204960")            // + 1464 h × 100
	equal(t, "bound", got.LowerBound, "131760")           //
	equal(t, "on demand", got.Amounts.OnDemand, "439200") // 4392 h × 100
	if bought(got) != "10 1m from 10-01 to 11-01, 10 1m from 11-01 to 12-01" {
		t.Error(bought(got))
	}
	plan := compute(t, q)
	equal(t, "no salvage", plan.EndOfHorizon[0].Cost, "131760")
	if len(plan.Expiry) != 1 || plan.Expiry[0].CountsFor != "r K" || plan.Expiry[0].NotCounted != "" {
		t.Errorf("ladder %+v", plan.Expiry)
	}
	equal(t, "held in all", plan.Total.Held, "58560")
	equal(t, "gap", plan.Total.Gap, "0")

	// What is owed hour by hour is discounted from the middle of its month.
	early := over(1, p)
	early.Held, early.Assumptions.AnnualRate = q.Held, dec("0.08")
	equal(t, "held at 8 %", one(t, early).Held, "14353.897333766") // 720 h × 20 × 1.08^(−0.5/12)

	// Half of October is paid for but does not count as capacity.
	q.Held[0].Term.To = at("2026-10-16")
	got = one(t, q)
	equal(t, "held until the 16th", got.Held, "65760") // + 360 h × 20
	equal(t, "cost until the 16th", got.Cost, "138960")
	if !notes(got, "begins or ends within a month, and counts as capacity in it only where another continues it: c (2026-10-16)") {
		t.Errorf("notes %q", got.Notes)
	}

	// A renewal in the middle of a month continues the term.
	next := held("2026-10-16", "2027-10-16")
	next.Units = 4
	q.Held = append(q.Held, next)
	got = one(t, q)
	if bought(got) != "6 1m from 10-01 to 11-01, 6 1m from 11-01 to 12-01" {
		t.Error(bought(got))
	}
	equal(t, "held and renewed", got.Held, "74592") // + 1104 h × 8
}

// Owned machines serve without end and without cost.
func TestOwned(t *testing.T) {
	q := over(1, even("2026-06-01", 10))
	own := Held{Commitment: "lab", Provider: "own", Region: "r", Kind: domain.OfferOwned, GPUModel: "K", GPUs: 2, Units: 2, Term: domain.Interval{From: at("2026-01-01")}, Guaranteed: true}
	q.Held = []Held{own}
	got := one(t, q)
	equal(t, "cost", got.Cost, "43200") // six of ten: 720 × 60
	equal(t, "held", got.Held, "0")
	if !notes(got, "4 owned machines") || len(compute(t, q).Expiry) != 0 {
		t.Errorf("notes %q", got.Notes)
	}
}

// What is held serves one pool, and says which, or why none.
func TestHeldServesOnePool(t *testing.T) {
	gpus := even("2026-06-01", 20)
	gpus.NodeGPUs = 4
	gpus.Offers[0].GPUCount = 4
	gpus.Quotas = []Quota{{Provider: "aws", GPUs: 1000}}
	vms := even("2026-06-01", 20)
	vms.Kind, vms.Unit, vms.NodeGPUs = "small", "vm", 0
	ended := even("2026-01-01", 20)
	ended.Kind = "old"
	for name, c := range map[string]struct {
		edit        func(*Held)
		serves      string
		reason      string
		gpus, small int // unit-hours that the pools serve with it
	}{
		"size of the pool":    {func(h *Held) { h.GPUs = 4 }, "r K", "", 5, 0},
		"smaller machines":    {func(h *Held) { h.GPUs = 2 }, "r K", "", 5, 0},
		"larger machines":     {func(h *Held) { h.GPUs, h.Units = 8, 1 }, "r K", "", 2, 0},
		"sizes do not divide": {func(h *Held) { h.GPUs, h.SKU = 6, "x" }, "", "units of 6 GPUs", 0, 0},
		"too small":           {func(h *Held) { h.GPUs, h.Units, h.SKU = 1, 3, "x" }, "", "3 GPUs in all", 0, 0},
		"no GPUs":             {func(h *Held) { h.GPUs, h.GPUModel = 0, "" }, "r small", "", 0, 10},
		"size unknown":        {func(h *Held) { h.GPUs, h.SKU = 0, "x" }, "", "does not say how many GPUs", 0, 0},
		"region":              {func(h *Held) { h.Region = "s" }, "", "no demand for it", 0, 0},
		"model":               {func(h *Held) { h.GPUModel, h.SKU = "L", "x" }, "", "no demand for it", 0, 0},
		"pool left out":       {func(h *Held) { h.GPUModel, h.SKU = "old", "x" }, "", "excluded from the plan", 0, 0},
		"currency":            {func(h *Held) { h.Hourly.Currency, h.SKU = "EUR", "x" }, "", "paid in EUR, the plan is in USD", 0, 0},
		"spend":               {func(h *Held) { h.Kind = domain.OfferSpendCommitment }, "", "does not say which spend commitment", 0, 0},
		"another's price":     {func(h *Held) { h.GPUs, h.Guaranteed, h.Provider, h.SKU = 4, false, "gcp", "x" }, "", "quota is that of aws", 0, 0},
		"one's own price":     {func(h *Held) { h.GPUs, h.Guaranteed = 4, false }, "r K", "", 5, 0},
	} {
		q := over(1, gpus, vms, ended)
		q.Held = []Held{held("2026-01-01", "2027-01-01")}
		c.edit(&q.Held[0])
		q.Expiry = slices.Clone(q.Held)
		p := compute(t, q)
		if x := p.Ignored; (c.serves == "") != (len(x) == 1) || len(x) == 1 && (x[0].Commitment != q.Held[0].Commitment || x[0].Reason != p.Expiry[0].NotCounted) {
			t.Errorf("%s: ignored %+v", name, x)
		}
		if x := p.Expiry[0]; x.CountsFor != c.serves || (c.reason == "") != (x.NotCounted == "") || !strings.Contains(x.NotCounted, c.reason) {
			t.Errorf("%s: counts for %q, not counted because %q", name, x.CountsFor, x.NotCounted)
		}
		for _, pool := range p.Regions[0].Pools {
			want := c.gpus
			if pool.Kind == "small" {
				want = c.small
			}
			if pool.Served.Held != int64(720*want) {
				t.Errorf("%s: held serves %d unit-hours of %s, want %d", name, pool.Served.Held, pool.Kind, 720*want)
			}
			if pool.Held.IsPositive() != (want > 0) {
				t.Errorf("%s: %s owed for %s", name, pool.Held, pool.Kind)
			}
		}
	}
}

// A term that begins within the horizon owes its upfront payment then; one that
// has begun has paid it.
func TestHeldOwesUpfront(t *testing.T) {
	p := even("2026-06-01", 10)
	q := over(6, p)
	begun, later := held("2025-10-01", "2026-10-01"), held("2026-08-01", "2027-08-01")
	begun.Upfront, later.Upfront = domain.Money{Amount: dec("5000"), Currency: "USD"}, domain.Money{Amount: dec("7000"), Currency: "USD"}
	later.Commitment = "later"
	q.Held = []Held{begun}
	without := one(t, q).Held
	q.Held = []Held{begun, later}
	later.Upfront = domain.Money{Currency: "USD"}
	with := one(t, q).Held
	q.Held = []Held{begun, later}
	equal(t, "upfront", with.Sub(one(t, q).Held), "7000")
	if !with.GreaterThan(without) {
		t.Errorf("a second commitment owes nothing: %s after %s", with, without)
	}
	q.Assumptions.AnnualRate = dec("0.08")
	free := one(t, q).Held
	later.Upfront = domain.Money{Amount: dec("7000"), Currency: "USD"}
	q.Held = []Held{begun, later}
	equal(t, "upfront at 8 %", one(t, q).Held.Sub(free), "6910.785511851") // 7000 × 1.08^(−2/12)
}
