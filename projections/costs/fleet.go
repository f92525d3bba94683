package costs

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/usage"
)

// costFleet is the fleet and its usage, in the terms of attribution. Its size grows with nodes and
// deployments; hours are streamed.
type costFleet struct {
	view      projections.View
	fleet     *inventory.Fleet
	nodes     []attribution.Node
	index     map[inventory.NodeName][]int // into nodes, by time
	workloads *usage.Workloads
	names     map[string]string
	elsewhere map[[2]string]bool // (account, resource) of machines that were in service at other times
	also      []attribution.OtherID
	some      []inventory.NodeName // in order, whose usage is read; empty: of all
}

// readCostFleet describes every node that was in service or reported within a span of time, in
// whole hours. If some nodes are named, the usage of others is not read.
func readCostFleet(view projections.View, span domain.Interval, some ...inventory.NodeName) (*costFleet, error) {
	if !span.Empty() {
		span = domain.Interval{From: span.From.HourStart(), To: (span.To - 1).HourStart() + domain.Hour}
	}
	f, err := inventory.ReadFleet(view)
	if err != nil {
		return nil, err
	}
	c := &costFleet{
		view: view, fleet: f, index: map[inventory.NodeName][]int{},
		names: map[string]string{}, elsewhere: map[[2]string]bool{}, some: some,
	}
	seen, err := c.reporting(span)
	if err != nil {
		return nil, err
	}
	for _, n := range f.Nodes {
		c.describe(n, span)
		if _, ok := seen[n.NodeName]; !ok && len(n.Corrections) > 0 {
			seen[n.NodeName] = 0
		}
	}
	if len(seen) > 0 {
		a, err := inventory.FindAliases(view, f.Index, usageWithin(span))
		if err != nil {
			return nil, err
		}
		for name, gpus := range seen {
			if err := c.undeclared(a, name, gpus, span); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(c.nodes, func(a, b attribution.Node) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Service.From, b.Service.From))
	})
	for i := range c.nodes {
		name := inventory.NodeName{Cluster: c.nodes[i].Cluster, Node: c.nodes[i].Node}
		c.index[name] = append(c.index[name], i)
	}
	c.renamed()
	c.workloads, err = usage.ReadWorkloads(view)
	return c, err
}

// reporting returns the nodes that reported within a span, with the number of GPUs in their last
// report of the span.
func (c *costFleet) reporting(span domain.Interval) (map[inventory.NodeName]int, error) {
	out := map[inventory.NodeName]int{}
	if span.Empty() {
		return out, nil
	}
	q := usageWithin(span)
	take := func(k projections.Key, row *projections.UsageHour) error {
		gpus := map[domain.GPUID]bool{}
		for i := range row.Observers {
			o := &row.Observers[i]
			for j := range o.Devices {
				gpus[o.Physical(&o.Devices[j])] = true
			}
		}
		out[inventory.NodeName{Cluster: strings.Clone(k.Scope), Node: strings.Clone(k.ID)}] = len(gpus)
		return nil
	}
	var err error
	if len(c.some) > 0 {
		err = inventory.EachUsageOf(c.view, c.fleet.Index, q, c.some, take)
	} else {
		q.Last = true
		err = inventory.EachUsage(c.view, c.fleet.Index, q, take)
	}
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	return out, nil
}

// usageWithin selects the usage hours that overlap a span.
func usageWithin(span domain.Interval) projections.Query {
	return projections.Query{
		Table: projections.TableUsage, From: projections.HourOf(span.From), To: projections.HourOf(span.To-1) + 1,
	}
}

// describe adds the descriptions of a node. A node inherits from its cluster what it does not state
// itself. So a new description of a cluster splits those of its nodes, at the next full hour: a
// cluster has one description for an hour, as in [usage.EachDeviceHour].
func (c *costFleet) describe(n *inventory.NodeTime, span domain.Interval) {
	for i := range n.Service {
		s := &n.Service[i]
		within := s.Intersect(span)
		if within.Empty() {
			if s.Node.ResourceID != "" {
				account := s.Node.BillingAccount
				if r, _ := c.fleet.Cluster(n.Cluster, s.From.HourStart()); r != nil {
					account = cmp.Or(account, r.BillingAccount)
				}
				c.elsewhere[[2]string{account, s.Node.ResourceID}] = true
			}
			continue
		}
		for from := within.From; from < within.To; {
			node := attribution.Node{
				Cluster: n.Cluster, Node: n.Node, Account: s.Node.BillingAccount,
				SKU: s.Node.SKU, GPUModel: modelOf(s.GPUs), Resource: s.Node.ResourceID, Billing: s.Node.BillingModel,
				GPUs: min(len(s.GPUs), maxNodeGPUs), CPUMilli: s.Node.CPUMilli, MemoryMiB: s.Node.MemoryMiB, Registered: true,
			}
			if r, _ := c.fleet.Cluster(n.Cluster, from.HourStart()); r != nil {
				node.Account, node.Region = cmp.Or(node.Account, r.BillingAccount), r.Region
				if r.ProviderClass == domain.Owned {
					node.Account = cmp.Or(node.Account, ownedAccount(c.fleet, n.Cluster, from.HourStart()))
					node.Resource, node.Billing = ownedResource(s.Node), cmp.Or(node.Billing, domain.BillingOwned)
				}
			}
			to := min(within.To, c.changed(n.Cluster, from))
			node.Service = domain.Interval{From: from, To: to}
			if last := len(c.nodes) - 1; last >= 0 && from > within.From {
				before := c.nodes[last]
				if before.Service = node.Service; before == node {
					c.nodes[last].Service.To = to
					from = to
					continue
				}
			}
			c.nodes = append(c.nodes, node)
			from = to
		}
	}
}

// modelOf returns the common model of GPUs.
func modelOf(gpus []inventory.Declared) string {
	for i := range gpus {
		if gpus[i].Model != gpus[0].Model {
			return attribution.Mixed
		}
	}
	if len(gpus) == 0 {
		return ""
	}
	return gpus[0].Model
}

// renamed adds the resource ids of machines that were declared under several names: if one name
// declares all GPUs that another does, or more, they are one machine.
func (c *costFleet) renamed() {
	var several inventory.Claimants
	for _, n := range c.fleet.Nodes {
		for i := range n.Service {
			for _, g := range n.Service[i].GPUs {
				several.Add(g.ID, n.NodeName)
			}
		}
	}
	if len(several.Several) == 0 {
		return
	}
	type claim struct {
		node *inventory.NodeTime
		s    *inventory.Service
	}
	type gpuIn struct {
		cluster string
		gpu     domain.GPUID
	}
	claims := map[gpuIn][]claim{}
	for _, n := range c.fleet.Nodes {
		for i := range n.Service {
			for _, g := range n.Service[i].GPUs {
				if k := (gpuIn{n.Cluster, g.ID}); several.Has(g.ID) {
					claims[k] = append(claims[k], claim{n, &n.Service[i]})
				}
			}
		}
	}
	seen := map[attribution.OtherID]bool{}
	also := func(from, to claim) {
		if from.s.Node.ResourceID == "" {
			return
		}
		account := from.s.Node.BillingAccount
		if r, _ := c.fleet.Cluster(from.node.Cluster, from.s.From.HourStart()); r != nil {
			account = cmp.Or(account, r.BillingAccount)
		}
		for _, i := range c.index[to.node.NodeName] {
			d := &c.nodes[i]
			id := attribution.OtherID{Node: i, Account: cmp.Or(d.Account, account), Resource: from.s.Node.ResourceID}
			if !d.Service.Intersect(to.s.Interval).Empty() && id.Resource != d.Resource && !seen[id] {
				seen[id] = true
				c.also = append(c.also, id)
			}
		}
	}
	for _, n := range c.fleet.Nodes {
		for i := range n.Service {
			s := &n.Service[i]
			if len(s.GPUs) == 0 {
				continue
			}
			for _, o := range claims[gpuIn{n.Cluster, s.GPUs[0].ID}] {
				foreign := func(g inventory.Declared) bool { return !inventory.Declares(o.s.Node, g.ID) }
				if o.node != n && !slices.ContainsFunc(s.GPUs, foreign) {
					also(claim{n, s}, o)
					also(o, claim{n, s})
				}
			}
		}
	}
}

// changed returns the first full hour after t from which a cluster has another description than at
// t.
func (c *costFleet) changed(cluster string, t domain.Instant) domain.Instant {
	if h := c.fleet.Clusters[cluster]; h != nil {
		for i := range h.Versions[1:] {
			if at := (h.Versions[i+1].Order.Effective + domain.Hour - 1).HourStart(); at > t {
				return at
			}
		}
	}
	return inventory.Forever
}

// undeclared adds the hours in which a node was out of service and reported, or in which a
// correction is about it, limited by its service before and after. In its other hours out of
// service nothing is known of it, and no line is for it. A node that was never declared has no
// resource id that a line could name, so for it the whole span is added.
func (c *costFleet) undeclared(a *inventory.Aliases, name inventory.NodeName, gpus int, span domain.Interval) error {
	add := func(i domain.Interval) {
		node := attribution.Node{Cluster: name.Cluster, Node: name.Node, GPUs: min(gpus, maxNodeGPUs), Service: i}
		if r, _ := c.fleet.Cluster(name.Cluster, i.From.HourStart()); r != nil {
			node.Account, node.Region = r.BillingAccount, r.Region
		}
		c.nodes = append(c.nodes, node)
	}
	n := c.fleet.Index[name]
	if n == nil || len(n.Service) == 0 {
		add(span)
		return nil
	}
	declared := make([]domain.Interval, len(n.Service))
	for i := range n.Service {
		declared[i] = n.Service[i].Interval
	}
	for _, gap := range inventory.Without(nil, span, declared) {
		var hours []domain.Interval
		note := func(known domain.Interval) {
			if known = known.Intersect(gap); !known.Empty() {
				whole := domain.Interval{From: known.From.HourStart(), To: (known.To - 1).HourStart() + domain.Hour}
				hours = append(hours, whole.Intersect(gap))
			}
		}
		for i := range n.Corrections {
			note(n.Corrections[i].Ev.Interval)
		}
		first, end := projections.HourOf(gap.From), projections.HourOf(gap.To-1)+1
		err := a.Hours(c.view, name, first, end, func(k projections.Key, row *projections.UsageHour) error {
			note(row.Seen(domain.Instant(k.Hour) * domain.Hour))
			return nil
		})
		if err != nil {
			return fmt.Errorf("read usage of node %s/%s: %w", name.Cluster, name.Node, err)
		}
		slices.SortFunc(hours, func(a, b domain.Interval) int { return cmp.Compare(a.From, b.From) })
		for _, known := range inventory.Joined(hours) {
			add(known)
		}
	}
	return nil
}

// at returns the description of a node at a time. Usage times are whole milliseconds, and so a
// description begins with the millisecond that it begins in.
func (c *costFleet) at(name inventory.NodeName, t domain.Instant) (int, bool) {
	for _, i := range c.index[name] {
		if s := c.nodes[i].Service; wholeMs(s.From) <= t && t < wholeMs(s.To) {
			return i, true
		}
	}
	return 0, false
}

func wholeMs(t domain.Instant) domain.Instant { return t - t%projections.NsPerMs }

// componentOf maps the state of a GPU to the component of its cost.
var componentOf = [inventory.StateEnd]attribution.Component{
	inventory.Allocated: attribution.Allocated, inventory.Failed: attribution.Failed,
	inventory.Maintenance: attribution.Maintenance, inventory.BusyUnattributed: attribution.BusyUnattributed,
	inventory.Idle: attribution.Idle, inventory.Unprovisioned: attribution.Unprovisioned,
	inventory.Unobserved: attribution.Unobserved,
}

// walks is the maximum number of stretches of time in which usage is read concurrently. Time
// between spans in one stretch is read and skipped.
const walks = 8

// usage calls yield with every hour that overlaps one of the spans, split at cuts, by cluster, node
// and time. It is the Usage of an [attribution.Input]. Spans are ascending and disjoint: usually
// months, and a few earlier hours that a correction is for. Each stretch is a separate walk, and
// the walks take turns so that a node's hours come together.
func (c *costFleet) usage(spans []domain.Interval, cuts attribution.Cuts, yield func(*attribution.NodeHour) error) error {
	hours, stretches := wholeHours(spans)
	if len(stretches) == 1 {
		return c.walk(stretches[0], hours, cuts, yield)
	}
	next := make([]func() (*attribution.NodeHour, bool), len(stretches))
	failed := make([]error, len(stretches))
	heads := make([]*attribution.NodeHour, len(stretches))
	for i, s := range stretches {
		pull, stop := iter.Pull(func(take func(*attribution.NodeHour) bool) {
			failed[i] = c.walk(s, hours, cuts, func(h *attribution.NodeHour) error {
				if !take(h) {
					return errStopped
				}
				return nil
			})
		})
		defer stop()
		next[i] = pull
		heads[i], _ = pull()
	}
	for {
		// Nodes are numbered by name and then by time, and stretches are in the order of time.
		first := -1
		for i, h := range heads {
			if failed[i] != nil {
				return failed[i]
			}
			if h != nil && (first < 0 || h.Node < heads[first].Node) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		if err := yield(heads[first]); err != nil {
			return err
		}
		heads[first], _ = next[first]()
	}
}

// errStopped ends a walk whose results are no longer needed.
var errStopped = errors.New("stopped")

// wholeHours rounds spans out to whole hours, and joins them into at most walks stretches, across
// the shortest gaps.
func wholeHours(spans []domain.Interval) (hours, stretches []domain.Interval) {
	for _, s := range spans {
		if s.Empty() {
			continue
		}
		hours = append(hours, domain.Interval{From: s.From.HourStart(), To: (s.To - 1).HourStart() + domain.Hour})
	}
	hours = inventory.Joined(hours)
	stretches = slices.Clone(hours)
	for len(stretches) > walks {
		at := 1
		for i := 2; i < len(stretches); i++ {
			if stretches[i].From-stretches[i-1].To < stretches[at].From-stretches[at-1].To {
				at = i
			}
		}
		stretches[at-1].To = stretches[at].To
		stretches = slices.Delete(stretches, at, at+1)
	}
	return hours, stretches
}

// walk calls yield with the hours within a stretch.
func (c *costFleet) walk(
	stretch domain.Interval, hours []domain.Interval, cuts attribution.Cuts, yield func(*attribution.NodeHour) error,
) error {
	h := nodeHours{fleet: c, cuts: cuts, yield: yield}
	take := func(d *usage.DeviceHour) error {
		i, _ := slices.BinarySearchFunc(hours, d.Hour, func(s domain.Interval, t domain.Instant) int {
			if s.To <= t {
				return -1
			}
			return 1
		})
		if d.Hour < hours[i].From {
			return nil
		}
		return h.add(d)
	}
	var err error
	if len(c.some) == 0 {
		err = usage.EachDeviceHour(c.view, stretch.From, stretch.To, take)
	} else {
		err = usage.EachDeviceHourOf(c.view, c.fleet, c.some, stretch.From, stretch.To, take)
	}
	if err != nil {
		return err
	}
	return h.flush()
}

// nodeHours collects the GPUs of a node's hour, in one part, or in several if charges begin or end
// within it.
type nodeHours struct {
	fleet *costFleet
	cuts  attribution.Cuts
	yield func(*attribution.NodeHour) error
	open  bool
	node  int
	hour  domain.Instant
	ends  []uint32 // of each part, in milliseconds into the hour
	parts []hourPart
}

// hourPart is a part of an hour.
type hourPart struct {
	out  attribution.NodeHour
	held [][]msRange // of each of its parts
}

// The limits of attribution for one machine, and for one part of its hour. A report may claim more,
// but it must not stop the division of the month.
const (
	maxNodeGPUs = 1024
	maxPart     = maxNodeGPUs * projections.MsPerHour
)

type msRange struct{ from, to uint32 }

func (h *nodeHours) add(d *usage.DeviceHour) error {
	at := d.Hour + domain.Instant(d.Segments[0].From)*projections.NsPerMs
	i, ok := h.fleet.at(inventory.NodeName{Cluster: d.Cluster, Node: d.Node}, at)
	if !ok {
		return fmt.Errorf("usage of node %s/%s at %s is outside the time that was asked for", d.Cluster, d.Node, d.Hour)
	}
	if !h.open || h.node != i || h.hour != d.Hour {
		if err := h.flush(); err != nil {
			return err
		}
		h.begin(i, d)
	}
	for j := range d.Segments {
		s := &d.Segments[j]
		if len(h.ends) == 1 {
			h.parts[0].segment(h.fleet, s)
			continue
		}
		from := uint32(0)
		for k, to := range h.ends {
			if within, ok := s.Within(from, to); ok {
				h.parts[k].segment(h.fleet, &within)
			}
			from = to
		}
	}
	return nil
}

// begin starts an hour, split into its parts.
func (h *nodeHours) begin(node int, d *usage.DeviceHour) {
	h.open, h.node, h.hour, h.ends = true, node, d.Hour, h.ends[:0]
	from := d.Hour
	add := func(to domain.Instant, held domain.Interval) {
		h.ends = append(h.ends, uint32((to-d.Hour)/projections.NsPerMs))
		if len(h.parts) < len(h.ends) {
			h.parts = append(h.parts, hourPart{})
		}
		out := &h.parts[len(h.ends)-1].out
		out.Node, out.Hour, out.Held, out.Owner, out.Parts = node, d.Hour, held, d.Owner, out.Parts[:0]
		from = to
	}
	cuts := h.cuts(node, d.Hour)
	if len(cuts) == 0 {
		add(d.Hour+domain.Hour, domain.Interval{})
		return
	}
	for _, to := range cuts {
		add(to, domain.Interval{From: from, To: to})
	}
	add(d.Hour+domain.Hour, domain.Interval{From: from, To: d.Hour + domain.Hour})
}

func (h *hourPart) segment(fleet *costFleet, s *usage.DeviceSegment) {
	key := attribution.Part{Component: componentOf[s.State]}
	if s.Holder != nil {
		key.Workspace, key.Deployment, key.Unit = s.Holder.Workspace, s.Holder.Deployment, s.Holder.Unit
	}
	i := slices.IndexFunc(h.out.Parts, func(p attribution.Part) bool {
		return p.Component == key.Component && p.Unit == key.Unit && p.Deployment == key.Deployment &&
			p.Workspace == key.Workspace &&
			p.GPUMs <= maxPart-s.GPUMs
	})
	if i < 0 {
		i = len(h.out.Parts)
		h.out.Parts = append(h.out.Parts, fleet.part(h.out.Node, h.out.Hour, key))
		if i == len(h.held) {
			h.held = append(h.held, nil)
		}
		h.held[i] = h.held[i][:0]
	}
	p := &h.out.Parts[i]
	p.GPUMs += s.GPUMs
	p.Micros += s.Micros - 1000*s.GPUMs
	if s.State == inventory.Allocated {
		p.KnownMs += s.Known
		if !s.WhileFailed {
			p.UsefulMs += s.Active // per mille until flush
		}
	}
	if p.Unit == "" {
		return
	}
	held := h.held[i]
	if n := len(held); n > 0 && held[n-1].from <= s.From && s.From <= held[n-1].to {
		held[n-1].to = max(held[n-1].to, s.To)
		return
	}
	h.held[i] = append(held, msRange{s.From, s.To})
}

// part returns an empty part of a node's hour with the requests of its unit: those of one replica
// of the deployment of that name, if the holder is its workspace.
func (c *costFleet) part(node int, hour domain.Instant, key attribution.Part) attribution.Part {
	key.Workspace, key.Deployment = c.name(key.Workspace), c.name(key.Deployment)
	if key.Unit == "" || key.Deployment == "" {
		return key
	}
	h := c.workloads.History(c.nodes[node].Cluster, key.Deployment)
	if h == nil {
		return key
	}
	// If something was declared within the hour, the first declaration counts for all of it.
	v := h.At(hour)
	if v == nil {
		v = h.At(hour + domain.Hour - 1)
	}
	if v == nil || v.Workspace != key.Workspace {
		return key
	}
	if ev, ok := v.Event.(*domain.DeploymentChanged); ok {
		key.CPUMilli, key.MemoryMiB = ev.Need.CPUMilli, ev.Need.RAMMiB
	}
	return key
}

// name returns a copy of a name that shares no memory with a row.
func (c *costFleet) name(s string) string {
	if kept, ok := c.names[s]; ok {
		return kept
	}
	s = strings.Clone(s)
	c.names[s] = s
	return s
}

func (h *nodeHours) flush() error {
	if !h.open {
		return nil
	}
	h.open = false
	for k := range h.ends {
		part := &h.parts[k]
		if len(part.out.Parts) == 0 {
			continue
		}
		for i := range part.out.Parts {
			p := &part.out.Parts[i]
			p.UsefulMs /= 1000
			if p.Unit != "" {
				p.HeldMs = covered(part.held[i])
			}
		}
		if err := h.yield(&part.out); err != nil {
			return err
		}
	}
	return nil
}

// covered returns the length of the union of ranges. It reorders them.
func covered(ranges []msRange) int64 {
	slices.SortFunc(ranges, func(a, b msRange) int { return cmp.Compare(a.from, b.from) })
	var total int64
	var end uint32
	for _, r := range ranges {
		if r.to > end {
			total += int64(r.to - max(r.from, end))
			end = r.to
		}
	}
	return total
}
