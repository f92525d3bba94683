package attribution

import (
	"fmt"
	"slices"

	"quartermaster/domain"
)

// Matching says how attribution matched a line, and why the line buys time there or does not.
type Matching struct {
	// Group is the line's place in [Result.Groups], from 1; 0 for a line that was not divided by use.
	Group  uint32
	how    how
	stance stance
	sold   Meter
}

// Bytes is all of it but the group, for [MatchingOf].
func (m Matching) Bytes() [3]byte { return [...]byte{byte(m.how), byte(m.stance), byte(m.sold)} }

// MatchingOf is a matching from its group and bytes.
func MatchingOf(group uint32, b [3]byte) (Matching, error) {
	m := Matching{Group: group, how: how(b[0]), stance: stance(b[1]), sold: Meter(b[2])}
	if int(m.how) >= len(howTexts) || int(m.stance) >= len(stanceTexts) {
		return Matching{}, fmt.Errorf("no line is matched by %x", b)
	}
	return m, nil
}

// Reason says why a line was divided by use or by nothing; "" for other lines, whose reason is what they
// follow, their commitment or their rule.
func (m Matching) Reason() string { return howTexts[m.how] }

// MeterReason says what the line sells, and why it does or does not buy machine time; "" for a line
// that is not for machines.
func (m Matching) MeterReason(l *Line) string { return sells(m.stance, l.Meter, m.sold, l.MeterReason) }

// Group is a set of machines that lines were matched to.
type Group struct {
	// Nodes are indexes into Input.Nodes, ascending: the first of each description.
	Nodes []int `json:"nodes"`
	// OwnersFirst: what commitments bought of the machines' time went to their owners first.
	OwnersFirst bool `json:"owners_first,omitempty"`
	// Cuts are the times within hours at which charges for the machines begin or end, ascending.
	Cuts []domain.Instant `json:"cuts,omitempty"`
}

// groupsOf numbers the matches that have lines, in the order of division.
func (r *run) groupsOf(order []int32) {
	first := make([]int, len(r.fleet.descs))
	for i, d := range slices.Backward(r.fleet.index) {
		first[d] = i
	}
	r.group, r.nodes = make([]uint32, len(r.matches)), make([]string, len(r.matches))
	for n, id := range order {
		x := &r.matches[id]
		r.group[id], r.nodes[id] = uint32(n+1), r.nodeName(x)
		g := Group{OwnersFirst: x.ownersFirst, Nodes: make([]int, 0, len(x.descs))}
		for _, d := range x.descs {
			g.Nodes = append(g.Nodes, first[d])
		}
		slices.Sort(g.Nodes)
		for _, l := range x.lines {
			for _, t := range [...]domain.Instant{r.book.records[l].charge.From, r.book.records[l].charge.To} {
				if t != t.HourStart() {
					g.Cuts = append(g.Cuts, t)
				}
			}
		}
		slices.Sort(g.Cuts)
		g.Cuts = slices.Compact(g.Cuts)
		r.result.Groups = append(r.result.Groups, g)
	}
}

// matching is that of a record.
func (r *run) matching(rec *record) Matching {
	m := Matching{how: rec.how, stance: rec.stance, sold: rec.sold}
	if rec.match >= 0 {
		m.Group = r.group[rec.match]
	}
	return m
}

// nodeName is the only machine of a match, [Mixed] for several.
func (r *run) nodeName(x *match) string {
	first := &r.fleet.descs[x.descs[0]]
	for _, d := range x.descs {
		if r.fleet.descs[d].machine != first.machine {
			return Mixed
		}
	}
	return first.Cluster + "/" + first.Node.Node
}

// nodeOf is [Line.Node] of a record. Lines that it follows were divided before it.
func (r *run) nodeOf(rec *record) string {
	switch {
	case rec.match >= 0:
		return r.nodes[rec.match]
	case rec.follow >= 0:
		return r.follow.tallies[rec.follow].node
	}
	return ""
}

// Weighing is what [Weigh] needs besides an allocation.
type Weighing struct {
	// Nodes are those of the group of the allocation's line, in its order.
	Nodes       []Node
	OwnersFirst bool
	// Unseen is the sum of the weights of the line's [Unseen] allocations.
	Unseen Amount
	Policy Policy
	// Cuts are the times within hours at which any charge that is for a node begins or ends, ascending.
	Cuts func(node int) []domain.Instant
	// Usage is as [Input.Usage], of these nodes.
	Usage func(spans []domain.Interval, cuts Cuts, yield func(*NodeHour) error) error
}

// Weigh returns what each machine weighs in an allocation that was divided by use: the Machines of its
// [Trace], without dividing anything. ok is false if the usage does not give the allocation: the fleet or the
// usage was another one. Where owners came first, this is not noticed unless nothing of the allocation's
// kind was used.
func Weigh(l *Allocation, in *Weighing) (machines []MachineWeight, ok bool, err error) {
	r := &run{policy: in.Policy, keys: newKeys(), ex: &exceptions{}, hardware: newHardwares()}
	r.fleet = newFleet(in.Nodes, nil, r.hardware, r.ex)
	r.book = &book{records: []record{{common: &common{}, charge: l.Line.ChargePeriod}}}
	x := match{method: l.MatchMethod, whole: l.MatchMethod == ByAccount, ownersFirst: in.OwnersFirst, lines: []int32{0}}
	t := &trace{ref: refOf(l), period: l.Line.ChargePeriod, taken: in.OwnersFirst, had: map[int32]*MachineWeight{}}
	t.key = r.keys.id(allocationKey{l.Workspace, l.Cluster, l.Deployment, l.Component})
	t.line, t.found = *l.Line, &Trace{Allocation: *l}
	for i := range r.fleet.descs {
		x.descs = append(x.descs, int32(i))
		r.fleet.descs[i].matches = []int32{0}
		if !r.fleet.descs[i].Service.Intersect(t.period).Empty() {
			t.at(int32(i))
		}
	}
	r.matches, r.trace, r.names = []match{x}, t, newNames(r.fleet)
	mt := &meter{keys: r.keys, names: r.names, ex: r.ex, idleToPlatform: in.Policy.IdleToPlatform}
	var cut []domain.Instant
	cuts := func(node int, hour domain.Instant) []domain.Instant {
		cut = append(cut[:0], r.cuts(node, hour)...)
		for _, at := range in.Cuts(node) {
			if hour < at && at < hour+domain.Hour {
				cut = append(cut, at)
			}
		}
		slices.Sort(cut)
		cut = slices.Compact(cut)
		return cut
	}
	err = in.Usage([]domain.Interval{t.period}, cuts, func(h *NodeHour) error {
		d := &r.fleet.descs[r.fleet.index[h.Node]]
		uses, seen, err := mt.read(h, d)
		if err != nil {
			return err
		}
		return r.use(h, d, uses, seen, nil)
	})
	if err != nil {
		return nil, false, err
	}
	var weight, period uint64
	for _, m := range t.had {
		weight, period = weight+uint64(m.WeightMs), period+uint64(m.PeriodMs) // in microseconds until they are done
	}
	switch {
	case in.OwnersFirst:
		ok = weight > 0 || l.Component == Unseen
	default:
		ok = ofMicros(period).Add(in.Unseen) == l.Of && (l.Component == Unseen || ofMicros(weight) == l.Weight)
	}
	return t.done(r.fleet).Machines, ok, nil
}
