package inventory

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Within a cluster the UUID of a GPU is one device, whatever its node is called: a reporter uses
// the machine's name, and an exporter may use its pod's name or an address. So usage hours are read
// through [EachUsage], which assigns the reports of a GPU at a moment to a single name: that of the
// node that declares the GPU then. The rest of an hour is assigned to one name: that of a node that
// declares the GPU within the hour, else the one whose observer is most trusted (see
// [projections.ObserverRank]), else the first. The observers of all names are then listed under
// that name, and which of them counts at a moment is decided as usual. So if a node is renamed and
// registered again within an hour, its reports are on both sides of that moment, whatever name they
// use. A GPU that moves between nodes is never in both at the same time, and is not reassigned.
//
// Which GPUs have two names follows from declarations and from [projections.NodeGPUs], whose size
// grows with nodes and months. Only the hours of nodes that share a GPU are read again, a month at
// a time.

// Aliases are the nodes that share GPUs, by name.
type Aliases struct {
	nodes []*sharing
	index map[NodeName]*sharing
}

// sharing is a name whose GPUs are partly known under other names too.
type sharing struct {
	NodeName
	declared *NodeTime // nil: no node with that name was declared
	gpus     map[domain.GPUID][]*sharing
	// others are the names that it shares GPUs with, including itself.
	others []*sharing
	// from and to bound the hours of the shared GPUs, half-open. reported is the last hour in which
	// one was reported under this name, 0 for none.
	from, to, reported int64
}

// gpuClaim says that a GPU is known under a name from the first to the last hour.
type gpuClaim struct {
	NodeName
	gpu         domain.GPUID
	first, last int64
	reported    bool // reported, not only declared
}

// Claimants finds GPUs that may be known under several names. It compares a part of their ids, so
// it may find too many but never too few.
type Claimants struct {
	first   map[uint64]NodeName
	Several map[uint64]bool
}

func partOf(id domain.GPUID) uint64 { return binary.BigEndian.Uint64(id[8:]) }

// Add records that a node has a GPU.
func (c *Claimants) Add(id domain.GPUID, name NodeName) {
	if c.first == nil {
		c.first = map[uint64]NodeName{}
	}
	switch had, known := c.first[partOf(id)]; {
	case !known:
		c.first[partOf(id)] = name
	case had != name:
		if c.Several == nil {
			c.Several = map[uint64]bool{}
		}
		c.Several[partOf(id)] = true
	}
}

// Has reports whether several nodes have a GPU. It may also report a GPU that shares a part of its
// id with another.
func (c *Claimants) Has(id domain.GPUID) bool { return c.Several[partOf(id)] }

// FindAliases returns the nodes that share GPUs in the hours that a query selects. If the query
// asks for the last hour without a start, it considers only each node's last month, so that the
// cost does not grow with history.
func FindAliases(view projections.View, nodes map[NodeName]*NodeTime, q projections.Query) (*Aliases, error) {
	end := int64(math.MaxInt64)
	if q.To != 0 {
		end = q.To
	}
	months := projections.Query{Table: projections.TableNodeGPUs, Scope: q.Scope, To: q.To, Last: q.Last && q.From == 0}
	if q.From > 0 {
		months.From = projections.MonthStart(domain.Instant(q.From) * domain.Hour)
	}
	type month struct {
		NodeName
		gpus []projections.ReportedGPU
	}
	var reported []month
	var twice Claimants
	err := view.Scan(months, func(k projections.Key, row projections.Row) error {
		m := month{NodeName{strings.Clone(k.Scope), strings.Clone(k.ID)}, row.(*projections.NodeGPUs).GPUs}
		reported = append(reported, m)
		for i := range m.gpus {
			twice.Add(m.gpus[i].ID, m.NodeName)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableNodeGPUs, err)
	}
	declares := func(yield func(NodeName, *Service, domain.GPUID)) {
		for name, n := range nodes {
			if q.Scope != "" && q.Scope != name.Cluster {
				continue
			}
			for i := range n.Service {
				for j := range n.Service[i].GPUs {
					yield(name, &n.Service[i], n.Service[i].GPUs[j].ID)
				}
			}
		}
	}
	declares(func(name NodeName, _ *Service, id domain.GPUID) { twice.Add(id, name) })
	a := &Aliases{index: map[NodeName]*sharing{}}
	if len(twice.Several) == 0 {
		return a, nil // as in nearly every fleet
	}
	var claims []gpuClaim
	claim := func(name NodeName, gpu domain.GPUID, first, last int64, reported bool) {
		if first, last = max(first, q.From), min(last, end-1); first <= last && twice.Has(gpu) {
			claims = append(claims, gpuClaim{name, gpu, first, last, reported})
		}
	}
	for _, m := range reported {
		for _, g := range m.gpus {
			claim(m.NodeName, g.ID, g.First, g.Last, true)
		}
	}
	declares(func(name NodeName, s *Service, id domain.GPUID) {
		claim(name, id, projections.HourOf(s.From), projections.HourOf(s.To-1), false)
	})
	slices.SortFunc(claims, func(a, b gpuClaim) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), bytes.Compare(a.gpu[:], b.gpu[:]), cmp.Compare(a.Node, b.Node))
	})
	for i := 0; i < len(claims); {
		j := i
		for j < len(claims) && claims[j].Cluster == claims[i].Cluster && claims[j].gpu == claims[i].gpu {
			j++
		}
		if claims[i].Node != claims[j-1].Node {
			a.enter(claims[i:j], nodes)
		}
		i = j
	}
	slices.SortFunc(a.nodes, func(x, y *sharing) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Node, y.Node))
	})
	return a, nil
}

// enter records that a GPU is known under several names; claims are sorted by name.
func (a *Aliases) enter(claims []gpuClaim, nodes map[NodeName]*NodeTime) {
	var names []*sharing
	for _, c := range claims {
		n := a.index[c.NodeName]
		if n == nil {
			n = &sharing{
				NodeName: c.NodeName, declared: nodes[c.NodeName], gpus: map[domain.GPUID][]*sharing{}, from: c.first,
				to: c.last + 1,
			}
			a.index[c.NodeName], a.nodes = n, append(a.nodes, n)
		}
		n.from, n.to = min(n.from, c.first), max(n.to, c.last+1)
		if c.reported {
			n.reported = max(n.reported, c.last)
		}
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for _, n := range names {
		n.gpus[claims[0].gpu] = names
		for _, o := range names {
			if !slices.Contains(n.others, o) {
				n.others = append(n.others, o)
			}
		}
	}
}

// EachUsage calls take with the usage hours that a query selects, by node and hour, with each GPU
// of a cluster under one name and every holder with the workspace that pays. nodes are the declared
// ones. take MUST NOT change or keep what it gets.
func EachUsage(
	view projections.View, nodes map[NodeName]*NodeTime, q projections.Query,
	take func(projections.Key, *projections.UsageHour) error,
) error {
	q.Table = projections.TableUsage
	p, err := readPayers(view)
	if err != nil {
		return err
	}
	yield := func(k projections.Key, row *projections.UsageHour) error { return take(k, p.paid(k, row)) }
	a, err := FindAliases(view, nodes, q)
	if err != nil {
		return err
	}
	pending := a.nodes
	// upTo yields the hours of the sharing nodes before a name.
	upTo := func(name NodeName, all bool) error {
		for ; len(pending) > 0; pending = pending[1:] {
			n := pending[0]
			if !all && cmp.Or(cmp.Compare(n.Cluster, name.Cluster), cmp.Compare(n.Node, name.Node)) > 0 {
				return nil
			}
			if err := n.hours(view, q, yield); err != nil {
				return err
			}
		}
		return nil
	}
	err = view.Scan(q, func(k projections.Key, row projections.Row) error {
		if len(a.nodes) > 0 {
			name := NodeName{k.Scope, k.ID}
			if err := upTo(name, false); err != nil {
				return err
			}
			if a.index[name] != nil {
				return nil
			}
		}
		return yield(k, row.(*projections.UsageHour))
	})
	if err != nil {
		return err
	}
	return upTo(NodeName{}, true)
}

// EachUsageOf is [EachUsage] of some nodes, which are in order, without reading the rows of others. Rows of other nodes
// that share a GPU with them are read.
func EachUsageOf(
	view projections.View, nodes map[NodeName]*NodeTime, q projections.Query, some []NodeName,
	take func(projections.Key, *projections.UsageHour) error,
) error {
	p, err := readPayers(view)
	if err != nil {
		return err
	}
	a, err := FindAliases(view, nodes, q)
	if err != nil {
		return err
	}
	for _, name := range some {
		if err := a.Hours(view, name, q.From, q.To, func(k projections.Key, row *projections.UsageHour) error {
			return take(k, p.paid(k, row))
		}); err != nil {
			return err
		}
	}
	return nil
}

// Hours yields the usage hours of one node within [from, to), like [EachUsage], but without
// resolving who pays. The aliases MUST cover at least these hours.
func (a *Aliases) Hours(
	view projections.View, name NodeName, from, to int64, yield func(projections.Key, *projections.UsageHour) error,
) error {
	q := projections.Query{Table: projections.TableUsage, Scope: name.Cluster, ID: name.Node, From: from, To: to}
	if n := a.index[name]; n != nil {
		return n.hours(view, q, func(k projections.Key, row *projections.UsageHour) error {
			if !q.Holds(k) {
				return nil
			}
			return yield(k, row)
		})
	}
	return view.Scan(q, func(k projections.Key, row projections.Row) error { return yield(k, row.(*projections.UsageHour)) })
}

// hours yields the hours of a node that shares GPUs.
func (n *sharing) hours(
	view projections.View, q projections.Query, yield func(projections.Key, *projections.UsageHour) error,
) error {
	span := projections.Query{Table: projections.TableUsage, Scope: n.Cluster, ID: n.Node, From: q.From, To: q.To}
	// The months in which it shares a GPU are read together with the other names. The months before
	// and after are its own.
	if q.Last {
		return n.last(view, span, yield)
	}
	before, after := span, span
	before.To, after.From = n.from, n.to
	own := func(q projections.Query) error {
		return view.Scan(q, func(k projections.Key, row projections.Row) error { return yield(k, row.(*projections.UsageHour)) })
	}
	if span.From < n.from {
		if err := own(before); err != nil {
			return err
		}
	}
	for from := n.from; from < n.to; from += projections.ShelfHours {
		all := func(k projections.Key, row *projections.UsageHour) (bool, error) { return true, yield(k, row) }
		if err := n.window(view, from, min(n.to, from+projections.ShelfHours), all, false); err != nil {
			return err
		}
	}
	if span.To == 0 || n.to < span.To {
		return own(after)
	}
	return nil
}

// last yields the last hour of a node that shares GPUs.
func (n *sharing) last(
	view projections.View, q projections.Query, yield func(projections.Key, *projections.UsageHour) error,
) error {
	found := false
	take := func(k projections.Key, row *projections.UsageHour) (bool, error) {
		found = true
		return false, yield(k, row)
	}
	after := q
	after.From, after.Last = n.to, true
	if q.To == 0 || n.to < q.To {
		if err := view.Scan(after, func(k projections.Key, row projections.Row) error {
			_, err := take(k, row.(*projections.UsageHour))
			return err
		}); err != nil || found {
			return err
		}
	}
	for to := n.to; to > n.from && !found; to -= projections.ShelfHours {
		if err := n.window(view, max(n.from, to-projections.ShelfHours), to, take, true); err != nil {
			return err
		}
	}
	if found || q.From == 0 || q.From >= n.from {
		return nil // for a name that shared its last month, earlier months are not known
	}
	before := q
	before.To, before.Last = n.from, true
	return view.Scan(before, func(k projections.Key, row projections.Row) error { return yield(k, row.(*projections.UsageHour)) })
}

// window yields the hours of [from, to), last first if backwards is set, until yield returns false.
func (n *sharing) window(
	view projections.View, from, to int64, yield func(projections.Key, *projections.UsageHour) (bool, error),
	backwards bool,
) error {
	rows := make([]map[int64]*projections.UsageHour, len(n.others))
	var hours []int64
	for i, o := range n.others {
		rows[i] = map[int64]*projections.UsageHour{}
		if o.to <= from || to <= o.from {
			continue
		}
		query := projections.Query{Table: projections.TableUsage, Scope: o.Cluster, ID: o.Node, From: from, To: to}
		err := view.Scan(query, func(k projections.Key, row projections.Row) error {
			rows[i][k.Hour] = row.(*projections.UsageHour)
			hours = append(hours, k.Hour)
			return nil
		})
		if err != nil {
			return err
		}
	}
	slices.Sort(hours)
	hours = slices.Compact(hours)
	if backwards {
		slices.Reverse(hours)
	}
	at := make(map[*sharing]*projections.UsageHour, len(n.others))
	for _, hour := range hours {
		for i, o := range n.others {
			at[o] = rows[i][hour]
		}
		row := n.resolve(hour, at)
		if row == nil {
			continue
		}
		key := projections.Key{Table: projections.TableUsage, Scope: n.Cluster, ID: n.Node, Hour: hour}
		if more, err := yield(key, row); err != nil || !more {
			return err
		}
	}
	return nil
}

// resolve returns the hour of a node with the reports of its GPUs under all names, and without what
// is assigned to another name; nil if nothing is left.
func (n *sharing) resolve(hour int64, rows map[*sharing]*projections.UsageHour) *projections.UsageHour {
	own := rows[n]
	var moved map[domain.GPUID][]projections.Span // the parts of the hour of a GPU that are assigned here
	for gpu, names := range n.gpus {
		if home := homeOf(gpu, hour, names, rows); home != nil {
			if moved == nil {
				moved = map[domain.GPUID][]projections.Span{}
			}
			moved[gpu] = n.entry(gpu, hour, names, home)
		}
	}
	if moved == nil {
		return own
	}
	out := &projections.UsageHour{}
	// Of equal rank, the later one is more trusted.
	for i := len(n.others) - 1; i >= 0; i-- {
		if o := n.others[i]; o != n && rows[o] != nil {
			out.Join(rows[o], func(id domain.GPUID) []projections.Span { return moved[id] })
		}
	}
	if own != nil {
		out.Join(own, func(id domain.GPUID) []projections.Span {
			if spans, ok := moved[id]; ok {
				return spans
			}
			return projections.WholeHour
		})
	}
	if len(out.Observers) == 0 {
		return nil
	}
	return out
}

// entry returns the parts of an hour in which a GPU's reports are assigned to this name: those in
// which it declares the GPU and, for the home, those in which no other name does. The parts of all
// names together are the hour.
func (n *sharing) entry(gpu domain.GPUID, hour int64, names []*sharing, home *sharing) []projections.Span {
	var out []projections.Span
	start := domain.Instant(hour) * domain.Hour
	add := func(parts []domain.Interval) {
		for _, p := range parts {
			s := projections.Span{
				From: uint32((p.From - start) / projections.NsPerMs),
				To:   uint32((p.To - start) / projections.NsPerMs),
			}
			if s.From < s.To {
				out = append(out, s)
			}
		}
	}
	if n != home {
		add(n.declares(gpu, hour))
		return out
	}
	var elsewhere []domain.Interval
	for _, o := range names {
		if o != n {
			elsewhere = append(elsewhere, o.declares(gpu, hour)...)
		}
	}
	slices.SortFunc(elsewhere, func(a, b domain.Interval) int { return cmp.Compare(a.From, b.From) })
	add(Without(nil, domain.Interval{From: start, To: start + domain.Hour}, elsewhere))
	return out
}

// declares returns when within an hour a name declares a GPU and has it, ascending.
func (n *sharing) declares(gpu domain.GPUID, hour int64) (times []domain.Interval) {
	if n.declared == nil {
		return nil
	}
	start := domain.Instant(hour) * domain.Hour
	for i := range n.declared.Service {
		times = append(times, n.declared.Service[i].has(gpu, domain.Interval{From: start, To: start + domain.Hour})...)
	}
	return times
}

// homeOf returns the name that an undeclared GPU is assigned to in an hour (see entry). It returns
// nil if nothing needs to be reassigned: only one name reports the GPU, or each reports it at
// different times.
func homeOf(gpu domain.GPUID, hour int64, names []*sharing, rows map[*sharing]*projections.UsageHour) *sharing {
	var home *sharing
	var rank int
	var known []domain.Interval
	speak, clash := 0, false
	for _, n := range names {
		times, r := n.times(gpu, hour, rows[n])
		if len(times) == 0 {
			continue
		}
		speak++
		clash = clash || slices.ContainsFunc(times, func(t domain.Interval) bool {
			return slices.ContainsFunc(known, func(k domain.Interval) bool { return !t.Intersect(k).Empty() })
		})
		known = append(known, times...)
		if home == nil || r < rank {
			home, rank = n, r
		}
	}
	if speak < 2 || !clash {
		return nil
	}
	return home
}

// times returns when within an hour a name declares or reports a GPU, and the rank of its observer:
// less is more trusted.
func (n *sharing) times(gpu domain.GPUID, hour int64, row *projections.UsageHour) (times []domain.Interval, rank int) {
	start := domain.Instant(hour) * domain.Hour
	rank = math.MaxInt
	if times = n.declares(gpu, hour); len(times) > 0 {
		rank = -1
	}
	if row == nil {
		return times, rank
	}
	for i := range row.Observers {
		o := &row.Observers[i]
		for j := range o.Devices {
			d := &o.Devices[j]
			if o.Physical(d) != gpu {
				continue
			}
			if rank >= 0 {
				rank = min(rank, projections.ObserverRank(o))
			}
			for _, s := range d.Segments {
				times = append(times, domain.Interval{
					From: start + domain.Instant(s.From)*projections.NsPerMs,
					To:   start + domain.Instant(s.To)*projections.NsPerMs,
				})
			}
		}
	}
	return times, rank
}

// underOther is the part of a node's last report that is assigned to other names.
type underOther struct {
	at   domain.Instant            // the end of the hour
	gpus map[domain.GPUID]*sharing // by GPU, the other name
}

// entered returns, for each name, the GPUs of its last report that are assigned to another.
func (a *Aliases) entered(view projections.View) (map[NodeName]*underOther, error) {
	out := map[NodeName]*underOther{}
	for _, n := range a.nodes {
		if n.reported == 0 {
			continue
		}
		rows := map[*sharing]*projections.UsageHour{}
		for _, o := range n.others {
			row, err := view.Get(projections.Key{Table: projections.TableUsage, Scope: o.Cluster, ID: o.Node, Hour: n.reported})
			if err != nil {
				return nil, fmt.Errorf("read usage: %w", err)
			}
			rows[o], _ = row.(*projections.UsageHour)
		}
		for gpu, names := range n.gpus {
			if home := homeOf(gpu, n.reported, names, rows); home != nil && home != n {
				if out[n.NodeName] == nil {
					out[n.NodeName] = &underOther{domain.Instant(n.reported+1) * domain.Hour, map[domain.GPUID]*sharing{}}
				}
				out[n.NodeName].gpus[gpu] = home
			}
		}
	}
	return out, nil
}
