package costs

import (
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
)

// matched keeps the machines that lines were matched to. Machines that no line is for are left out, so that they do
// not make another month of equal allocations.
func (s *Summary) matched(nodes []attribution.Node, groups []attribution.Group) {
	in := map[int]int{}
	for _, g := range groups {
		for _, n := range g.Nodes {
			in[n] = 0
		}
	}
	s.Machines, s.Groups = make([]attribution.Node, 0, len(in)), make([]attribution.Group, 0, len(groups))
	for i := range nodes {
		if _, ok := in[i]; ok {
			in[i] = len(s.Machines)
			s.Machines = append(s.Machines, nodes[i])
		}
	}
	for _, g := range groups {
		kept := g
		kept.Nodes = make([]int, 0, len(g.Nodes))
		for _, n := range g.Nodes {
			kept.Nodes = append(kept.Nodes, in[n])
		}
		s.Groups = append(s.Groups, kept)
	}
}

// policy is the policy that the month was divided by.
func (s *Summary) policy() (p attribution.Policy) {
	for i := range s.Policies {
		switch of := &s.Policies[i]; of.Kind {
		case domain.PolicyCommitmentDiscount:
			p.Discount = attribution.Discount(of.Value)
		case domain.PolicyIdleCost:
			p.IdleToPlatform = of.Value == idleToPlatform
		}
	}
	return p
}

// weigh returns the weights of the machines that a line was matched to, from the usage of these machines in the charge
// period; nil if that is not the usage that the month was divided by.
func (d *Division) weigh(view projections.View, k *keptLine) ([]ExplainedUsage, error) {
	l := &k.allocation
	at := int(l.Line.Matching.Group) - 1
	if at < 0 || at >= len(d.Groups) {
		return nil, nil
	}
	g := &d.Groups[at]
	if g.OwnersFirst && view.Position().String() != d.asOf() {
		return nil, nil // other usage would not be noticed
	}
	w := &attribution.Weighing{OwnersFirst: g.OwnersFirst, Unseen: k.unseen, Policy: d.policy()}
	cuts := make([][]domain.Instant, len(d.Machines)) // of all charges that are for a machine
	for _, n := range g.Nodes {
		if n < 0 || n >= len(d.Machines) {
			return nil, nil
		}
		w.Nodes = append(w.Nodes, d.Machines[n])
	}
	for i := range d.Groups {
		for _, n := range d.Groups[i].Nodes {
			if len(d.Groups[i].Cuts) > 0 && n >= 0 && n < len(cuts) {
				cuts[n] = append(cuts[n], d.Groups[i].Cuts...)
			}
		}
	}
	w.Cuts = func(node int) []domain.Instant { return cuts[g.Nodes[node]] }
	names := make([]inventory.NodeName, len(w.Nodes))
	for i := range w.Nodes {
		names[i] = inventory.NodeName{Cluster: w.Nodes[i].Cluster, Node: w.Nodes[i].Node}
	}
	c, err := readCostFleet(view, l.Line.ChargePeriod, inventory.InOrder(names)...)
	if err != nil {
		return nil, err
	}
	// The fleet of today may describe a machine otherwise. What it says of the time of a description is that one's.
	index := map[int]int{}
	for i, name := range names {
		for _, j := range c.index[name] {
			if _, known := index[j]; !known && !c.nodes[j].Service.Intersect(w.Nodes[i].Service).Empty() {
				index[j] = i
			}
		}
	}
	w.Usage = func(spans []domain.Interval, cuts attribution.Cuts, yield func(*attribution.NodeHour) error) error {
		within := func(node int, hour domain.Instant) []domain.Instant {
			if i, ok := index[node]; ok {
				return cuts(i, hour)
			}
			return nil
		}
		return c.usage(spans, within, func(h *attribution.NodeHour) error {
			i, ok := index[h.Node]
			if !ok {
				return nil
			}
			here := *h
			here.Node = i
			return yield(&here)
		})
	}
	machines, ok, err := attribution.Weigh(l, w)
	if err != nil || !ok {
		return nil, err
	}
	used := make([]ExplainedUsage, 0, len(machines))
	for _, m := range machines {
		n := &w.Nodes[m.Node]
		used = append(used, ExplainedUsage{
			Cluster: n.Cluster, Node: n.Node, Resource: n.Resource, SKU: n.SKU, Registered: n.Registered,
			GPUMs: m.WeightMs, UsefulMs: m.UsefulMs, PeriodMs: m.PeriodMs,
		})
	}
	return used, nil
}

// asOf is the position that the month was divided at.
func (d *Division) asOf() string {
	if d.closed != nil {
		return d.closed.Position
	}
	return d.position
}
