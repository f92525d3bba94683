package attribution

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
)

// divideByUse reads usage once and divides each line as soon as the last machine of its match has
// been read.
func (r *run) divideByUse(in *Input, order []int32) error {
	spans := spans(r.book.records)
	read := r.sharing.with(spans)
	mt := &meter{keys: r.keys, names: r.names, ex: r.ex, idleToPlatform: in.Policy.IdleToPlatform}
	current, hour := int32(0), domain.Instant(0)
	// done divides the matches whose last machine comes before next.
	done := func(next int32) error {
		for len(order) > 0 && r.matches[order[0]].last < next {
			if err := r.divideMatch(&r.matches[order[0]]); err != nil {
				return err
			}
			order = order[1:]
		}
		current, hour = next, 0
		return nil
	}
	if len(read) > 0 && in.Usage != nil {
		err := in.Usage(read, r.cuts, func(h *NodeHour) error {
			if h.Node < 0 || h.Node >= len(r.fleet.index) {
				return fmt.Errorf("usage is of node %d, of %d", h.Node, len(r.fleet.index))
			}
			d := &r.fleet.descs[r.fleet.index[h.Node]]
			if d.machine < current || d.machine == current && h.Hour < hour || h.Hour != h.Hour.HourStart() {
				return fmt.Errorf("usage of node %s/%s at %s is not in the order of cluster, node and hour",
					d.Cluster, d.Node.Node, h.Hour)
			}
			if d.machine > current {
				if err := done(d.machine); err != nil {
					return err
				}
			}
			hour = h.Hour
			held := within(h, d)
			if held.Empty() || held.From < h.Hour || held.To > h.Hour+domain.Hour {
				return fmt.Errorf("usage of node %s/%s at %s is of %s to %s, which is not within the hour",
					d.Cluster, d.Node.Node, h.Hour, held.From, held.To)
			}
			mt.quiet = r.sharing != nil && overlap(spans, domain.Interval{From: h.Hour, To: h.Hour + domain.Hour}) == 0
			uses, seen, err := mt.read(h, d)
			if err != nil {
				return err
			}
			r.sharing.use(held, uses, r)
			if mt.quiet {
				return nil
			}
			return r.use(h, d, uses, seen, spans)
		})
		if err != nil {
			return err
		}
	}
	if err := done(int32(len(r.fleet.machines))); err != nil {
		return err
	}
	r.machines(spans)
	return nil
}

// use adds an hour to the matches of its node. It also notes the time, within the requested spans,
// that no line covers.
func (r *run) use(h *NodeHour, d *desc, uses []use, seen bool, spans []domain.Interval) error {
	held, node := within(h, d), h.Node
	m := &r.fleet.machines[d.machine]
	m.seen = m.seen || seen
	bought := domain.Instant(0)
	for _, id := range d.matches {
		x := &r.matches[id]
		r.open(x)
		var entered func(*slot, use)
		if r.trace != nil && r.trace.match == id {
			entered = func(s *slot, u use) { r.trace.use(r.fleet.index[node], s, u, x.whole) }
		}
		covered, ok := x.grid.add(held, uses, r.hardware, entered)
		if !ok {
			return fmt.Errorf("usage of node %s/%s from %s to %s is not cut where charges begin and end",
				d.Cluster, d.Node.Node, held.From, held.To)
		}
		if x.buys {
			bought = max(bought, covered)
		}
	}
	if d.due.Empty() || bought == held.Length() {
		return nil
	}
	asked := domain.Instant(0)
	first, _ := slices.BinarySearchFunc(spans, held.From, func(s domain.Interval, t domain.Instant) int {
		return cmp.Compare(s.To, t)
	})
	for _, s := range spans[first:] {
		if s.From >= held.To {
			break
		}
		asked += s.Intersect(held).Intersect(d.due).Length()
	}
	if asked <= bought { // what is bought outside of the account's bills is bought all the same
		return nil
	}
	var micros int64
	for _, u := range uses {
		micros += u.micros
	}
	m.unbilledMs += int64(u128{0, uint64(micros)}.scale64(uint64(asked-bought), 1000*uint64(held.Length())).lo)
	return nil
}

// cuts returns the times within an hour at which slots of the node's matches begin or end.
func (r *run) cuts(node int, hour domain.Instant) []domain.Instant {
	r.cut = r.cut[:0]
	if node < 0 || node >= len(r.fleet.index) {
		return nil
	}
	for _, id := range r.fleet.descs[r.fleet.index[node]].matches {
		x := &r.matches[id]
		r.open(x)
		if !x.grid.cutsHours {
			continue
		}
		for i := x.grid.find(hour); i < len(x.grid.slots) && x.grid.slots[i].from < hour+domain.Hour; i++ {
			for _, t := range [...]domain.Instant{x.grid.slots[i].from, x.grid.slots[i].to} {
				if hour < t && t < hour+domain.Hour {
					r.cut = append(r.cut, t)
				}
			}
		}
	}
	slices.Sort(r.cut)
	r.cut = slices.Compact(r.cut)
	return r.cut
}

// open makes the slots of a match when it is first used.
func (r *run) open(x *match) {
	if x.grid.slots == nil {
		periods := make([]domain.Interval, 0, len(x.lines))
		for _, i := range x.lines {
			if p := r.book.records[i].charge; len(periods) == 0 || periods[len(periods)-1] != p {
				periods = append(periods, p)
			}
		}
		x.grid = newGrid(periods, !x.whole)
	}
}

// cell is the lines of one match and one charge period.
type cell struct {
	match  *match
	grid   *grid // the usage that divides it
	period domain.Interval
	lines  []int32
	net    int64 // GPU time that the lines buy in total
}

func (r *run) cell(x *match, lines []int32) *cell {
	c := &cell{match: x, grid: &x.grid, period: r.book.records[lines[0]].charge, lines: lines}
	for _, l := range lines {
		c.net += r.book.records[l].bought
	}
	return c
}

// divideMatch divides the lines of a match and releases its usage.
func (r *run) divideMatch(x *match) error {
	r.open(x)
	sum := matchSum{seen: x.grid.sum() / 1000}
	lines := x.lines
	if x.ownersFirst {
		var err error
		if lines, err = r.divideOwners(x, &sum); err != nil {
			return err
		}
	}
	for len(lines) > 0 {
		n := r.samePeriod(lines)
		if err := r.divideCell(r.cell(x, lines[:n]), &sum); err != nil {
			return err
		}
		lines = lines[n:]
	}
	r.foundOut(x, &sum)
	x.grid = grid{}
	return nil
}

// samePeriod returns how many lines, starting with the first, share its charge period.
func (r *run) samePeriod(lines []int32) int {
	n := 1
	for n < len(lines) && r.book.records[lines[n]].charge == r.book.records[lines[0]].charge {
		n++
	}
	return n
}

// matchSum holds the totals over the cells of a match.
type matchSum struct {
	bought     int64 // net, of lines that buy machines
	excess     int64 // beyond the time in service, cell by cell
	unreported int64 // bought in cells without observations
	unmeasured bool  // some line buys time without a stated quantity
	seen       int64 // time in service, in all cells together
}

// divideCell divides the lines of a cell by the GPU time of its machines and by the excess that was
// bought. Lines that were reversed in the cell buy nothing. A cell of only reversals is divided as
// the cell that it reverses.
//
// If nothing is known of the machines in the period, all of it is Unseen, spread evenly. Lines that
// buy no machines have no Unseen part: in that case the platform is charged for them as Unmatched.
func (r *run) divideCell(c *cell, sum *matchSum) error {
	r.weights = r.weightsOf(c.grid, c.period, c.match.whole, r.weights[:0])
	var seen, unobserved int64
	for _, w := range r.weights {
		seen += w.micros
		if r.keys.all[w.key].component == Unobserved {
			unobserved += w.micros
		}
	}
	excess := 1000*int64(magnitude(c.net)) - seen
	if seen == 0 && c.net == 0 {
		if !c.match.buys {
			return r.withoutUsers(c)
		}
		excess = max(1, 1000*int64(c.period.Length()/millisecond))
	}
	if excess > 0 {
		key := r.keys.id(allocationKey{PlatformUnobserved, r.clusterOf(c.match), "", Unseen})
		from := len(r.weights)
		of := use{key: key, hardware: r.fleet.hardwareOf(r.hardware, c.match.descs, c.period)}
		r.weights = overHours(c.period, c.match.whole, of, excess, r.machineOf(c.match), r.weights)
		r.mergeHours(from)
		if c.net != 0 {
			sum.excess += excess / 1000
		}
	}
	if seen == unobserved {
		sum.unreported += c.net
	}
	for _, l := range c.lines {
		rec := &r.book.records[l]
		if rec.stance == buysTime || rec.stance == shared {
			sum.bought += rec.bought
			sum.unmeasured = sum.unmeasured || rec.bought == 0
		}
		r.begin(rec)
		if excess > 0 && r.trace != nil && r.trace.current {
			r.trace.unseen = excess / 1000
		}
		if err := r.divideLine(rec); err != nil {
			return err
		}
	}
	return nil
}

// mergeHours merges the weights from an index on, which are sorted by hour, into those before it.
func (r *run) mergeHours(from int) {
	if from == 0 {
		return
	}
	slices.SortStableFunc(r.weights, func(a, b weight) int {
		if a.hour != b.hour {
			if a.hour < b.hour {
				return -1
			}
			return 1
		}
		return r.keys.compare(a.key, b.key)
	})
}

// divideLine divides one line by the current weights.
func (r *run) divideLine(rec *record) error {
	var total, at uint64
	for i := range r.weights {
		total += uint64(r.weights[i].micros)
	}
	billed, effective, time := divisionOf(rec.billed), divisionOf(rec.effective), divisionOfMs(rec.bought)
	r.out.MatchMethod, r.out.Of = rec.method, ofMicros(total)
	for i := range r.weights {
		w := &r.weights[i]
		if w.micros == 0 {
			continue
		}
		at += uint64(w.micros)
		if w.holders == nil && len(w.of) > 0 {
			w.holders = r.names.holders(w.of, r.matches[rec.match].ownersFirst)
		}
		r.out.Hour, r.out.Weight, r.out.Holders = w.hour, ofMicros(uint64(w.micros)), w.holders
		r.out.BoughtMs, r.out.AllocatedMs, r.out.UsefulMs, r.out.MeasuredMs = time.nextMs(at, total), 0, 0, 0
		if r.keys.all[w.key].component == Allocated {
			r.out.AllocatedMs = r.out.BoughtMs
			useful, measured := divisionOfMs(r.out.BoughtMs), divisionOfMs(r.out.BoughtMs)
			r.out.UsefulMs = useful.nextMs(uint64(w.useful), uint64(w.micros))
			r.out.MeasuredMs = measured.nextMs(uint64(w.known), uint64(w.micros))
		}
		if err := r.give(w.key, w.hardware, billed.next64(at, total), effective.next64(at, total)); err != nil {
			return err
		}
	}
	return nil
}

// withoutUsers charges the lines of a cell to the platform.
func (r *run) withoutUsers(c *cell) error {
	for _, l := range c.lines {
		rec := &r.book.records[l]
		r.begin(rec)
		r.out.Holders = r.machineOf(c.match)
		if err := r.unmatched(rec, howNoUsage); err != nil {
			return err
		}
	}
	return nil
}

// machineOf returns the holders of what no unit held of the only machine of a match; nil if there are several.
func (r *run) machineOf(x *match) *Holders {
	machine := r.fleet.descs[x.descs[0]].machine
	for _, d := range x.descs {
		if r.fleet.descs[d].machine != machine {
			return nil
		}
	}
	return r.names.holder(0, uint32(machine)+1)
}

// clusterOf returns the cluster of a match, "" if there are several.
func (r *run) clusterOf(x *match) string {
	cluster := r.fleet.descs[x.descs[0]].Cluster
	for _, d := range x.descs {
		if r.fleet.descs[d].Cluster != cluster {
			return ""
		}
	}
	return cluster
}

// subjectOf names a match: its machine, or what its machines have in common.
func (r *run) subjectOf(x *match) string {
	first := &r.fleet.descs[x.descs[0]]
	if x.method == ByPool {
		rec := &r.book.records[x.lines[0]]
		region := r.book.texts[rec.region]
		if region == "" {
			region = first.Region
		}
		return first.Account + "/" + region + "/" + first.SKU
	}
	if r.fleet.descs[x.descs[len(x.descs)-1]].machine != first.machine {
		return r.book.subject(&r.book.records[x.lines[0]])
	}
	return r.fleet.machines[first.machine].subject(r.fleet)
}
