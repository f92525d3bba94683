package plan

import (
	"cmp"
	"fmt"
	"math/big"

	"quartermaster/domain"
	"quartermaster/domain/packing"
	"quartermaster/domain/procurement"
)

func comparePurchases(x, y Purchase) int {
	return cmp.Or(cmp.Compare(x.Term.From, y.Term.From), cmp.Compare(x.Provider, y.Provider), cmp.Compare(x.Offer, y.Offer), cmp.Compare(x.Term.To, y.Term.To))
}

// courses compares the plan with buying nothing and with all on-demand, and
// finds the bounds that it runs into.
func (c *composer) courses(out *PoolPlan, p *procurement.Pool, s *shelf, sol *procurement.Solution) error {
	plan, err := procurement.Evaluate(p, sol.Purchases)
	if err != nil {
		return err
	}
	current, err := procurement.Evaluate(p, nil)
	if err != nil {
		return err
	}
	out.Current = money(current.Cost)
	onDemand := new(big.Int)
	quota, share, short := []domain.Instant{}, []domain.Instant{}, []domain.Instant{}
	for m := range p.Epochs {
		e, served := &p.Epochs[m], &plan.Epochs[m]
		for _, step := range e.Demand {
			unitHours := int64(step.Units) * int64(step.Hours)
			onDemand.Add(onDemand, new(big.Int).Mul(big.NewInt(unitHours), big.NewInt(int64(e.OnDemand))))
			if e.Quota >= 0 {
				out.Refused += int64(max(0, step.Units-e.Quota)) * int64(step.Hours)
			}
		}
		out.Served.Guaranteed += served.Guaranteed
		out.Served.PriceOnly += served.PriceOnly
		out.Served.Unused += served.UnusedGuaranteed + served.UnusedPriceOnly
		out.Served.Spot += served.Spot
		out.Served.OnDemand += served.OnDemand
		out.Served.Shortage += served.Shortage
		from := c.span[m].From
		if served.Shortage > 0 {
			short = append(short, from)
		}
		guaranteed, total := coverage(p, sol.Purchases, m)
		atQuota, atShare := false, false
		for _, step := range e.Demand {
			spot := 0
			if e.Spot >= 0 {
				spot = step.Units * e.SpotPermille / 1000
			}
			rest := step.Units - total - spot
			atShare = atShare || spot > 0 && rest > 0 && e.Spot < e.OnDemand
			atQuota = atQuota || e.Quota >= 0 && step.Units-guaranteed-spot > 0 && step.Units-guaranteed-spot >= e.Quota
		}
		if atQuota {
			quota = append(quota, from)
		}
		if atShare {
			share = append(share, from)
		}
	}
	out.Served.Held = out.Served.Guaranteed + out.Served.PriceOnly
	out.Amounts.OnDemand = money(onDemand)
	bind := func(constraint, detail string, months []domain.Instant) {
		if len(months) > 0 {
			out.Binding = append(out.Binding, Binding{constraint, detail, months})
		}
	}
	if s.quota != nil {
		bind("on_demand_quota", fmt.Sprintf("%s allows %d GPUs on demand, and the plan uses all of it", s.onDemand.Market.Provider, *s.quota), quota)
	}
	bind("spot_share", "as much runs on spot as may, and on-demand serves the rest", share)
	bind("shortage", fmt.Sprintf("%d unit-hours stay unserved", out.Served.Shortage), short)
	for _, b := range sol.Purchases {
		o, offer := s.terms[b.Offer], &p.Offers[b.Offer]
		from := []domain.Instant{c.all[b.Epoch].From}
		if o.MaxUnits > 0 && b.Units == int(o.MaxUnits) {
			bind("max_units", fmt.Sprintf("%s sells at most %d at a time", offer.ID, o.MaxUnits), from)
		}
		if b.Epoch > 0 && offer.Starts[0].Epoch == b.Epoch && o.LeadTimeHours > 0 {
			bind("lead_time", fmt.Sprintf("%s takes %d hours to come", offer.ID, o.LeadTimeHours), from)
		}
	}
	return nil
}

// coverage returns the units of guaranteed capacity, and with those of
// price-only commitments, that cover an epoch.
func coverage(p *procurement.Pool, bought []procurement.Purchase, m int) (guaranteed, total int) {
	e := &p.Epochs[m]
	guaranteed, total = e.HeldGuaranteed, e.HeldGuaranteed+e.HeldPriceOnly
	for _, b := range bought {
		o := &p.Offers[b.Offer]
		if b.Epoch <= m && m < b.Epoch+o.Term {
			total += b.Units
			if o.Guaranteed {
				guaranteed += b.Units
			}
		}
	}
	return guaranteed, total
}

// perMachine returns how many machines hold how many GPUs of demand: by packing
// what runs in the pool onto machines like those for sale, where both are
// known, else as many as a machine has.
func (c *composer) perMachine(p *Pool, s *shelf) (nodes, gpus int64, err error) {
	nodes, gpus = 1, int64(s.gpus)
	if len(p.Mix) == 0 || s.onDemand.CPUMilli == 0 || s.onDemand.MemoryMiB == 0 {
		return nodes, gpus, nil
	}
	machine := packing.Node{
		ID: s.onDemand.SKU, Count: packing.Unlimited, Region: p.Region, Model: s.onDemand.GPUModel, GPUs: s.gpus,
		CPUMilli: int64(s.onDemand.CPUMilli), MemoryMiB: int64(s.onDemand.MemoryMiB),
	}
	milli := int64(0)
	mix := make([]packing.Workload, 0, len(p.Mix))
	for _, w := range p.Mix {
		// What binds a workload to places binds the choice of a pool, which is
		// made already; what is left is its shape.
		w.Models, w.Countries, w.Certifications, w.Clusters = nil, nil, nil, nil
		mix = append(mix, w)
		milli += w.GPUMilli * int64(w.Replicas)
	}
	r, err := packing.Need([]packing.Node{machine}, mix, packing.Options{})
	if err != nil {
		return 0, 0, err
	}
	if r.NodesUsed == 0 || milli < 1000 || len(r.Unplaced) > 0 {
		return nodes, gpus, nil
	}
	return int64(r.NodesUsed), milli / 1000, nil
}

// pack says for each region whether what is declared fits the fleet there.
func (c *composer) pack(p *Plan) error {
	for i := range c.q.Packings {
		k := &c.q.Packings[i]
		r, err := packing.Pack(k.Nodes, k.Workloads, packing.Options{})
		if err != nil {
			return fmt.Errorf("pack %s: %w", k.Region, err)
		}
		p.region(k.Region).Packing = newPackingReport(r)
	}
	return nil
}
