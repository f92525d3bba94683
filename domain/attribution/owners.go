package attribution

import (
	"cmp"
	"slices"

	"quartermaster/domain"
)

// divideOwners divides the lines of commitments that have owners, when the policy is
// [OwnersFirst], and leaves the remaining usage in the grid. It returns the lines that
// are divided by that remainder.
//
// A commitment's quantity is spread evenly over its charge period. In each hour it
// takes the time that its owners were allocated in the pool, then that of others, each
// in proportion. Any excess is Unseen. Commitments take one after the other, by id and
// charge period.
//
// Lines that take nothing follow the lines that they belong to:
//
//   - Lines of a commitment that buys in their charge period share its part: that of
//     the lines with the same charge period if there are any, else all that it took
//     within their period. So the negation of a savings plan cancels what was covered.
//   - Refunds without such a commitment are divided by the remainder if other lines buy
//     in their charge period.
//   - All others, such as licences, are divided as if no commitment had taken anything.
func (r *run) divideOwners(x *match, sum *matchSum) (rest []int32, err error) {
	buys := map[name][]domain.Interval{} // when each commitment buys; 0 stands for lines without an owned commitment
	for _, l := range x.lines {
		if rec := &r.book.records[l]; rec.bought != 0 {
			c := r.ownedBy(rec)
			buys[c] = append(buys[c], rec.charge)
		}
	}
	for c := range buys {
		buys[c] = merge(buys[c])
	}
	var first, others []int32
	for _, l := range x.lines {
		rec := &r.book.records[l]
		c := r.ownedBy(rec)
		within := rec.bought != 0 || overlap(buys[c], rec.charge) > 0
		switch {
		case c != 0 && within:
			first = append(first, l)
		case rec.bought != 0, (rec.stance == givesBack || rec.stance == refunded) && within:
			rest = append(rest, l)
		default:
			others = append(others, l)
		}
	}
	if err := r.divideUntaken(x, others, sum); err != nil {
		return nil, err
	}
	slices.SortStableFunc(first, func(a, b int32) int {
		return cmp.Compare(r.book.records[a].commit, r.book.records[b].commit)
	})
	for len(first) > 0 {
		commit, n := r.book.records[first[0]].commit, 1
		for n < len(first) && r.book.records[first[n]].commit == commit {
			n++
		}
		if err := r.divideOwned(x, first[:n], sum); err != nil {
			return nil, err
		}
		first = first[n:]
	}
	return rest, nil
}

// ownedBy returns the commitment of a line if it has owners, else 0.
func (r *run) ownedBy(rec *record) name {
	if rec.class == Committed && len(r.owners.shares[r.book.texts[rec.commit]]) > 0 {
		return rec.commit
	}
	return 0
}

// divideOwned divides the lines of one commitment.
func (r *run) divideOwned(x *match, lines []int32, sum *matchSum) error {
	var taken grid
	var followers []*cell
	of := r.owners.shares[r.book.texts[r.book.records[lines[0]].commit]]
	for len(lines) > 0 {
		n := r.samePeriod(lines)
		c := r.cell(x, lines[:n])
		lines = lines[n:]
		if !slices.ContainsFunc(c.lines, func(l int32) bool { return r.book.records[l].bought != 0 }) {
			followers = append(followers, c)
			continue
		}
		c.grid = r.take(&x.grid, c, of)
		taken.slots = append(taken.slots, c.grid.slots...)
		if err := r.divideCell(c, sum); err != nil {
			return err
		}
	}
	if len(followers) == 0 {
		return nil
	}
	taken.byHour()
	for _, c := range followers {
		c.grid = &taken
		if err := r.divideCell(c, sum); err != nil {
			return err
		}
	}
	return nil
}

// byHour merges the slots of each hour into one.
func (g *grid) byHour() {
	slices.SortStableFunc(g.slots, func(a, b slot) int { return cmp.Compare(a.from.HourStart(), b.from.HourStart()) })
	var out []slot
	for _, s := range g.slots {
		if n := len(out); n > 0 && out[n-1].from.HourStart() == s.from.HourStart() {
			x := &out[n-1]
			x.from, x.to, x.settled = min(x.from, s.from), max(x.to, s.to), false
			x.uses = append(x.uses, s.uses...)
			continue
		}
		s.uses = slices.Clone(s.uses)
		out = append(out, s)
	}
	g.slots = out
}

// divideUntaken divides lines that take nothing as if no line took anything first.
func (r *run) divideUntaken(x *match, lines []int32, sum *matchSum) error {
	for all := x.lines; len(lines) > 0; {
		n := r.samePeriod(lines)
		c := r.cell(x, lines[:n])
		for byPeriod(r.book.records[all[0]].charge, c.period) < 0 {
			all = all[1:]
		}
		c.net = r.cell(x, all[:r.samePeriod(all)]).net
		var own matchSum // only unmeasured is kept: the lines that buy report the rest
		if err := r.divideCell(c, &own); err != nil {
			return err
		}
		sum.unmeasured = sum.unmeasured || own.unmeasured
		lines = lines[n:]
	}
	return nil
}

// take moves what a cell bought out of a grid, and returns it. It works hour by hour of the cell's
// period, however other lines split the hours.
func (r *run) take(from *grid, c *cell, of []share) *grid {
	taken := &grid{}
	spread := divisionOfMs(1000 * int64(magnitude(c.net)))
	owners := func(u *use) bool {
		k := &r.keys.all[u.key]
		return k.component == Allocated && slices.ContainsFunc(of, func(s share) bool { return s.workspace == k.workspace })
	}
	for i := from.find(c.period.From); i < len(from.slots) && from.slots[i].from < c.period.To; {
		n := i + 1
		for n < len(from.slots) && from.slots[n].from < c.period.To &&
			from.slots[n].from.HourStart() == from.slots[i].from.HourStart() {
			n++
		}
		hour := from.slots[i:n]
		for j := range hour {
			hour[j].settle(r)
		}
		t := slot{from: hour[0].from, to: hour[len(hour)-1].to, settled: true}
		want := spread.nextMs(uint64(t.to-c.period.From), uint64(c.period.Length()))
		want -= r.moveUses(hour, &t, want, owners)
		r.moveUses(hour, &t, want, func(u *use) bool { return !owners(u) })
		t.uses = r.settle(t.uses)
		taken.slots = append(taken.slots, t)
		i = n
	}
	return taken
}

func microsOf(uses []use) (micros int64) {
	for i := range uses {
		micros += uses[i].micros
	}
	return micros
}

// moveParts moves a part of microseconds of one key to others, in proportion by unit and machine. Of the key as a whole
// it moves as much as if it had one unit on one machine.
func moveParts(to, of []use, micros, part int64) []use {
	var useful, known, atUseful, atKnown uint64
	for i := range of {
		useful, known = useful+uint64(of[i].useful), known+uint64(of[i].known)
	}
	share := func(n uint64) division {
		return division{whole: u128{0, n}.scale64(uint64(part), uint64(micros))}
	}
	byUse, byUseful, byKnown, at := divisionOfMs(part), share(useful), share(known), uint64(0)
	next := func(d *division, at, total uint64) int64 {
		if total == 0 {
			return 0
		}
		return d.nextMs(at, total)
	}
	var owedKnown, owedUseful int64
	for i := range of {
		x := &of[i]
		at, atUseful, atKnown = at+uint64(x.micros), atUseful+uint64(x.useful), atKnown+uint64(x.known)
		moved := *x
		moved.micros = byUse.nextMs(at, uint64(micros))
		// Each sum is rounded by itself, so a part may get a microsecond more than its time has, or leave one. The next part
		// gets the difference.
		owedKnown += next(&byKnown, atKnown, known)
		moved.known = min(max(owedKnown, x.known-(x.micros-moved.micros), 0), x.known, moved.micros)
		owedUseful += next(&byUseful, atUseful, useful)
		moved.useful = min(max(owedUseful, x.useful-(x.known-moved.known), 0), x.useful, moved.known)
		owedKnown, owedUseful = owedKnown-moved.known, owedUseful-moved.useful
		to = append(to, moved)
		x.micros, x.useful, x.known = x.micros-moved.micros, x.useful-moved.useful, x.known-moved.known
	}
	return to
}

// moveUses moves up to want of the matching time out of an hour's slots, in proportion by key and
// then by slot. It returns how much it moved.
func (r *run) moveUses(hour []slot, to *slot, want int64, which func(*use) bool) int64 {
	var all []use
	for i := range hour {
		for uses := hour[i].uses; len(uses) > 0; {
			n := sameKey(uses)
			if which(&uses[0]) {
				all = append(all, use{key: uses[0].key, micros: microsOf(uses[:n])})
			}
			uses = uses[n:]
		}
	}
	if len(hour) > 1 {
		all = r.settle(all)
	}
	all = slices.DeleteFunc(all, func(u use) bool { return u.micros == 0 })
	var have uint64
	for i := range all {
		have += uint64(all[i].micros)
	}
	want = min(want, int64(have))
	if want <= 0 {
		return 0
	}
	byKey, at := divisionOfMs(want), uint64(0)
	for _, u := range all {
		at += uint64(u.micros)
		bySlot, done := divisionOfMs(byKey.nextMs(at, have)), uint64(0)
		for i := range hour {
			byKey := func(x use, key uint32) int { return r.keys.compare(x.key, key) }
			n, ok := slices.BinarySearchFunc(hour[i].uses, u.key, byKey)
			if !ok {
				continue
			}
			// The search may end anywhere among the key's uses.
			for n > 0 && hour[i].uses[n-1].key == u.key {
				n--
			}
			of := hour[i].uses[n:]
			of = of[:sameKey(of)]
			micros := microsOf(of)
			if micros == 0 {
				continue
			}
			done += uint64(micros)
			to.uses = moveParts(to.uses, of, micros, bySlot.nextMs(done, uint64(u.micros)))
		}
	}
	return want
}
