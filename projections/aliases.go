package projections

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Within a cluster the UUID of a GPU is one device, whatever its node is called: a
// reporter takes the machine's name, and an exporter may name its pod or an address.
// So usage hours are read through eachUsage, which enters what was reported of a GPU
// at a moment under one name alone: that of the node that declares the GPU then. What
// is left of an hour is entered under one name: of a node that declares the GPU within
// the hour, else of the one whose observer is believed most (see observerRank), else
// the first. There the observers of all names stand side by side, and which of them
// counts at a moment is decided as ever. So a node that is renamed and registered anew
// within an hour has its reports on both sides of that moment, whichever name they
// bear. A GPU that moves from one node to another is in neither at the time of the
// other, and stays where it was.
//
// Which GPUs have two names is known from what is declared and from [NodeGPUs], whose
// size follows nodes and months. Only the hours of nodes that share a GPU are read
// again, a month at a time.

// aliases are the nodes that share GPUs, by name.
type aliases struct {
	nodes []*sharing
	index map[nodeName]*sharing
}

// sharing is a name under which GPUs are known that are known under others too.
type sharing struct {
	nodeName
	declared *nodeTime // nil: nobody declared a node of that name
	gpus     map[domain.GPUID][]*sharing
	// others are the names that it shares GPUs with, itself among them.
	others []*sharing
	// From and to bound the hours of the GPUs that it shares, half-open; reported is
	// the last in which one was reported under this name, 0 for none.
	from, to, reported int64
}

// gpuClaim says that a GPU is known under a name in the hours from first to last.
type gpuClaim struct {
	nodeName
	gpu         domain.GPUID
	first, last int64
	reported    bool // and not only declared
}

// claimants finds GPUs that may be known under several names. It goes by a part of
// their ids, so it may find too many, and never too few.
type claimants struct {
	first   map[uint64]nodeName
	several map[uint64]bool
}

func partOf(id domain.GPUID) uint64 { return binary.BigEndian.Uint64(id[8:]) }

func (c *claimants) add(id domain.GPUID, name nodeName) {
	if c.first == nil {
		c.first = map[uint64]nodeName{}
	}
	switch had, known := c.first[partOf(id)]; {
	case !known:
		c.first[partOf(id)] = name
	case had != name:
		if c.several == nil {
			c.several = map[uint64]bool{}
		}
		c.several[partOf(id)] = true
	}
}

func (c *claimants) has(id domain.GPUID) bool { return c.several[partOf(id)] }

// findAliases returns the nodes that share GPUs in the hours that a query names; of
// each node's last month alone where it asks for the last hour since ever, so that
// what is read does not grow with history.
func findAliases(view View, nodes map[nodeName]*nodeTime, q Query) (*aliases, error) {
	end := int64(math.MaxInt64)
	if q.To != 0 {
		end = q.To
	}
	months := Query{Table: TableNodeGPUs, Scope: q.Scope, To: q.To, Last: q.Last && q.From == 0}
	if q.From > 0 {
		months.From = monthOf(domain.Instant(q.From) * domain.Hour)
	}
	type month struct {
		nodeName
		gpus []ReportedGPU
	}
	var reported []month
	var twice claimants
	err := view.Scan(months, func(k Key, row Row) error {
		m := month{nodeName{strings.Clone(k.Scope), strings.Clone(k.ID)}, row.(*NodeGPUs).GPUs}
		reported = append(reported, m)
		for i := range m.gpus {
			twice.add(m.gpus[i].ID, m.nodeName)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", TableNodeGPUs, err)
	}
	declares := func(yield func(nodeName, *service, domain.GPUID)) {
		for name, n := range nodes {
			if q.Scope != "" && q.Scope != name.cluster {
				continue
			}
			for i := range n.service {
				for j := range n.service[i].gpus {
					yield(name, &n.service[i], n.service[i].gpus[j].id)
				}
			}
		}
	}
	declares(func(name nodeName, _ *service, id domain.GPUID) { twice.add(id, name) })
	a := &aliases{index: map[nodeName]*sharing{}}
	if len(twice.several) == 0 {
		return a, nil // as in nearly every fleet
	}
	var claims []gpuClaim
	claim := func(name nodeName, gpu domain.GPUID, first, last int64, reported bool) {
		if first, last = max(first, q.From), min(last, end-1); first <= last && twice.has(gpu) {
			claims = append(claims, gpuClaim{name, gpu, first, last, reported})
		}
	}
	for _, m := range reported {
		for _, g := range m.gpus {
			claim(m.nodeName, g.ID, g.First, g.Last, true)
		}
	}
	declares(func(name nodeName, s *service, id domain.GPUID) {
		claim(name, id, hourOf(s.From), hourOf(s.To-1), false)
	})
	slices.SortFunc(claims, func(a, b gpuClaim) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), bytes.Compare(a.gpu[:], b.gpu[:]), cmp.Compare(a.node, b.node))
	})
	for i := 0; i < len(claims); {
		j := i
		for j < len(claims) && claims[j].cluster == claims[i].cluster && claims[j].gpu == claims[i].gpu {
			j++
		}
		if claims[i].node != claims[j-1].node {
			a.enter(claims[i:j], nodes)
		}
		i = j
	}
	slices.SortFunc(a.nodes, func(x, y *sharing) int {
		return cmp.Or(cmp.Compare(x.cluster, y.cluster), cmp.Compare(x.node, y.node))
	})
	return a, nil
}

// enter notes that a GPU is known under several names, given by name.
func (a *aliases) enter(claims []gpuClaim, nodes map[nodeName]*nodeTime) {
	var names []*sharing
	for _, c := range claims {
		n := a.index[c.nodeName]
		if n == nil {
			n = &sharing{nodeName: c.nodeName, declared: nodes[c.nodeName], gpus: map[domain.GPUID][]*sharing{}, from: c.first, to: c.last + 1}
			a.index[c.nodeName], a.nodes = n, append(a.nodes, n)
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

// eachUsage calls take with the usage hours that a query names, by node and hour,
// each GPU of a cluster under one name and every holder with the workspace that pays.
// nodes are those declared. What take gets is not to be changed, nor kept.
func eachUsage(view View, nodes map[nodeName]*nodeTime, q Query, take func(Key, *UsageHour) error) error {
	q.Table = TableUsage
	p, err := readPayers(view)
	if err != nil {
		return err
	}
	yield := func(k Key, row *UsageHour) error { return take(k, p.paid(k, row)) }
	a, err := findAliases(view, nodes, q)
	if err != nil {
		return err
	}
	pending := a.nodes
	// upTo yields the hours of the nodes that share GPUs and come before a name.
	upTo := func(name nodeName, all bool) error {
		for ; len(pending) > 0; pending = pending[1:] {
			n := pending[0]
			if !all && cmp.Or(cmp.Compare(n.cluster, name.cluster), cmp.Compare(n.node, name.node)) > 0 {
				return nil
			}
			if err := n.hours(view, q, yield); err != nil {
				return err
			}
		}
		return nil
	}
	err = view.Scan(q, func(k Key, row Row) error {
		if len(a.nodes) > 0 {
			name := nodeName{k.Scope, k.ID}
			if err := upTo(name, false); err != nil {
				return err
			}
			if a.index[name] != nil {
				return nil
			}
		}
		return yield(k, row.(*UsageHour))
	})
	if err != nil {
		return err
	}
	return upTo(nodeName{}, true)
}

// hours yields the usage hours of one node within [from, to), as eachUsage does but for
// who pays. The aliases MUST be those of these hours or more.
func (a *aliases) hours(view View, name nodeName, from, to int64, yield func(Key, *UsageHour) error) error {
	q := Query{Table: TableUsage, Scope: name.cluster, ID: name.node, From: from, To: to}
	if n := a.index[name]; n != nil {
		return n.hours(view, q, func(k Key, row *UsageHour) error {
			if !q.Holds(k) {
				return nil
			}
			return yield(k, row)
		})
	}
	return view.Scan(q, func(k Key, row Row) error { return yield(k, row.(*UsageHour)) })
}

// hours yields the hours of a node that shares GPUs.
func (n *sharing) hours(view View, q Query, yield func(Key, *UsageHour) error) error {
	span := Query{Table: TableUsage, Scope: n.cluster, ID: n.node, From: q.From, To: q.To}
	// The months in which it shares a GPU are gone through together with the other
	// names; those before and after are its own.
	if q.Last {
		return n.last(view, span, yield)
	}
	before, after := span, span
	before.To, after.From = n.from, n.to
	own := func(q Query) error {
		return view.Scan(q, func(k Key, row Row) error { return yield(k, row.(*UsageHour)) })
	}
	if span.From < n.from {
		if err := own(before); err != nil {
			return err
		}
	}
	for from := n.from; from < n.to; from += shelfHours {
		if err := n.window(view, from, min(n.to, from+shelfHours), func(k Key, row *UsageHour) (bool, error) { return true, yield(k, row) }, false); err != nil {
			return err
		}
	}
	if span.To == 0 || n.to < span.To {
		return own(after)
	}
	return nil
}

// last yields the last hour of a node that shares GPUs.
func (n *sharing) last(view View, q Query, yield func(Key, *UsageHour) error) error {
	found := false
	take := func(k Key, row *UsageHour) (bool, error) {
		found = true
		return false, yield(k, row)
	}
	after := q
	after.From, after.Last = n.to, true
	if q.To == 0 || n.to < q.To {
		if err := view.Scan(after, func(k Key, row Row) error { _, err := take(k, row.(*UsageHour)); return err }); err != nil || found {
			return err
		}
	}
	for to := n.to; to > n.from && !found; to -= shelfHours {
		if err := n.window(view, max(n.from, to-shelfHours), to, take, true); err != nil {
			return err
		}
	}
	if found || q.From == 0 || q.From >= n.from {
		return nil // of a name that shared its last month, the months before are not known
	}
	before := q
	before.To, before.Last = n.from, true
	return view.Scan(before, func(k Key, row Row) error { return yield(k, row.(*UsageHour)) })
}

// window yields the hours of [from, to), the last first where backwards says so,
// until yield returns false.
func (n *sharing) window(view View, from, to int64, yield func(Key, *UsageHour) (bool, error), backwards bool) error {
	rows := make([]map[int64]*UsageHour, len(n.others))
	var hours []int64
	for i, o := range n.others {
		rows[i] = map[int64]*UsageHour{}
		if o.to <= from || to <= o.from {
			continue
		}
		err := view.Scan(Query{Table: TableUsage, Scope: o.cluster, ID: o.node, From: from, To: to}, func(k Key, row Row) error {
			rows[i][k.Hour] = row.(*UsageHour)
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
	at := make(map[*sharing]*UsageHour, len(n.others))
	for _, hour := range hours {
		for i, o := range n.others {
			at[o] = rows[i][hour]
		}
		row := n.resolve(hour, at)
		if row == nil {
			continue
		}
		if more, err := yield(Key{TableUsage, n.cluster, n.node, hour}, row); err != nil || !more {
			return err
		}
	}
	return nil
}

// resolve returns the hour of a node with what any name reported of its GPUs, and
// without what is entered under another name; nil when nothing is left.
func (n *sharing) resolve(hour int64, rows map[*sharing]*UsageHour) *UsageHour {
	own := rows[n]
	var moved map[domain.GPUID][]Span // which part of the hour of a GPU is entered here
	for gpu, names := range n.gpus {
		if home := homeOf(gpu, hour, names, rows); home != nil {
			if moved == nil {
				moved = map[domain.GPUID][]Span{}
			}
			moved[gpu] = n.entry(gpu, hour, names, home)
		}
	}
	if moved == nil {
		return own
	}
	out := &UsageHour{}
	// Whoever stands later is believed before those of its rank.
	for i := len(n.others) - 1; i >= 0; i-- {
		if o := n.others[i]; o != n && rows[o] != nil {
			out.join(rows[o], func(id domain.GPUID) []Span { return moved[id] })
		}
	}
	if own != nil {
		out.join(own, func(id domain.GPUID) []Span {
			if spans, ok := moved[id]; ok {
				return spans
			}
			return wholeHour
		})
	}
	if len(out.Observers) == 0 {
		return nil
	}
	return out
}

var wholeHour = []Span{{0, msPerHour}}

// entry returns the parts of an hour of which a GPU's reports are entered under this
// name: those in which it declares the GPU and, of the home, those in which no other
// name does. Together the parts of all names are the hour.
func (n *sharing) entry(gpu domain.GPUID, hour int64, names []*sharing, home *sharing) []Span {
	var out []Span
	start := domain.Instant(hour) * domain.Hour
	add := func(parts []domain.Interval) {
		for _, p := range parts {
			if s := (Span{uint32((p.From - start) / nsPerMs), uint32((p.To - start) / nsPerMs)}); s.From < s.To {
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
	add(without(nil, domain.Interval{From: start, To: start + domain.Hour}, elsewhere))
	return out
}

// declares returns when within an hour a name declares a GPU and has it, ascending.
func (n *sharing) declares(gpu domain.GPUID, hour int64) (times []domain.Interval) {
	if n.declared == nil {
		return nil
	}
	start := domain.Instant(hour) * domain.Hour
	for i := range n.declared.service {
		times = append(times, n.declared.service[i].has(gpu, domain.Interval{From: start, To: start + domain.Hour})...)
	}
	return times
}

// join adds what a row says of some GPUs in some parts of its hour.
func (u *UsageHour) join(row *UsageHour, of func(domain.GPUID) []Span) {
	base := uint32(len(u.Holders))
	used := false
	for i := range row.Observers {
		o := row.Observers[i]
		var devices []Device
		for _, d := range o.Devices {
			d, ok := d.within(of(o.physical(&d)))
			if !ok {
				continue
			}
			if base > 0 {
				d.Segments = slices.Clone(d.Segments)
				for j := range d.Segments {
					if d.Segments[j].Holder > 0 {
						d.Segments[j].Holder += base
					}
				}
			}
			devices = append(devices, d)
		}
		if len(devices) == 0 {
			continue
		}
		o.Devices, o.Others = devices, nil
		u.Observers = append(u.Observers, o)
		used = true
	}
	if used {
		u.Holders = append(u.Holders, row.Holders...)
	}
}

// within returns what was seen of a device in parts of its hour that are ascending and
// disjoint, with their share of each reading by the time in which the device was seen.
// The shares of parts that make up the hour add up to the reading. It is false where
// nothing was seen of the device then.
func (d Device) within(spans []Span) (Device, bool) {
	if len(spans) == 1 && spans[0] == wholeHour[0] {
		return d, true
	}
	out := d
	out.Segments, out.Unasked, out.Covered = nil, nil, nil
	readings := [...][2]*Reading{
		{&out.Tensor, &d.Tensor}, {&out.DRAM, &d.DRAM}, {&out.Memory, &d.Memory},
		{&out.Power, &d.Power}, {&out.Heat, &d.Heat}, {&out.Clock, &d.Clock},
	}
	for _, r := range readings {
		*r[0] = Reading{Max: r[1].Max}
	}
	seen := d.seenUpTo(msPerHour)
	for _, span := range spans {
		for i := range d.Segments {
			s := &d.Segments[i]
			if from, to := max(s.From, span.From), min(s.To, span.To); from < to {
				known, active := s.measured(from, to)
				out.Segments = append(out.Segments, Segment{From: from, To: to, Holder: s.Holder, Known: uint32(known), Active: uint64(active)})
			}
		}
		for _, s := range d.Unasked {
			if from, to := max(s.From, span.From), min(s.To, span.To); from < to {
				out.Unasked = append(out.Unasked, Span{from, to})
			}
		}
		from, to := d.seenUpTo(span.From), d.seenUpTo(span.To)
		for _, r := range readings {
			r[0].Sum += portion(r[1].Sum, to, seen) - portion(r[1].Sum, from, seen)
			r[0].Known += uint32(portion(uint64(r[1].Known), to, seen) - portion(uint64(r[1].Known), from, seen))
		}
	}
	return out, len(out.Segments) > 0
}

// seenUpTo returns for how many milliseconds of the hour before a time a device was seen.
func (d *Device) seenUpTo(at uint32) (ms uint64) {
	for _, s := range d.Segments {
		if s.From < at {
			ms += uint64(min(s.To, at) - s.From)
		}
	}
	return ms
}

// portion returns sum × part ÷ whole, rounded down. Part is at most whole.
func portion(sum, part, whole uint64) uint64 {
	if part == whole {
		return sum
	}
	hi, lo := bits.Mul64(sum, part)
	out, _ := bits.Div64(hi, lo, whole)
	return out
}

// homeOf returns the name that a GPU is entered under in an hour where nobody declares
// it (see entry), nil when all that is known of it may stay where it is: one name alone
// speaks of it, or each at times of its own.
func homeOf(gpu domain.GPUID, hour int64, names []*sharing, rows map[*sharing]*UsageHour) *sharing {
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

// times returns when within an hour a name speaks of a GPU, by declaration or by
// report, and how much it is believed: less is more.
func (n *sharing) times(gpu domain.GPUID, hour int64, row *UsageHour) (times []domain.Interval, rank int) {
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
			if o.physical(d) != gpu {
				continue
			}
			if rank >= 0 {
				rank = min(rank, observerRank(o))
			}
			for _, s := range d.Segments {
				times = append(times, domain.Interval{From: start + domain.Instant(s.From)*nsPerMs, To: start + domain.Instant(s.To)*nsPerMs})
			}
		}
	}
	return times, rank
}

// underOther is what of a node's last report is entered under another name.
type underOther struct {
	at   domain.Instant            // the end of the hour
	gpus map[domain.GPUID]*sharing // and under which
}

// entered returns, of each name, the GPUs of its last report that are entered under
// another.
func (a *aliases) entered(view View) (map[nodeName]*underOther, error) {
	out := map[nodeName]*underOther{}
	for _, n := range a.nodes {
		if n.reported == 0 {
			continue
		}
		rows := map[*sharing]*UsageHour{}
		for _, o := range n.others {
			row, err := view.Get(Key{TableUsage, o.cluster, o.node, n.reported})
			if err != nil {
				return nil, fmt.Errorf("read usage: %w", err)
			}
			rows[o], _ = row.(*UsageHour)
		}
		for gpu, names := range n.gpus {
			if home := homeOf(gpu, n.reported, names, rows); home != nil && home != n {
				if out[n.nodeName] == nil {
					out[n.nodeName] = &underOther{domain.Instant(n.reported+1) * domain.Hour, map[domain.GPUID]*sharing{}}
				}
				out[n.nodeName].gpus[gpu] = home
			}
		}
	}
	return out, nil
}
