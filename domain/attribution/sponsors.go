package attribution

import (
	"cmp"
	"slices"
)

// divideSponsors divides the lines of commitments that have sponsors, when the
// policy is [SponsorsFirst], and leaves in the grid what they did not take. It
// returns the lines that are divided by that.
//
// A commitment's quantity is spread evenly over its charge period. In each hour
// it takes the time that its sponsors were allocated in the pool, then that of
// others, each in proportion; what is more than there is, is Unseen. Commitments
// take one after the other, by id and charge period. A line that says no
// quantity takes nothing and is among the rest.
func (r *run) divideSponsors(x *match, sum *matchSum) (rest []int32, err error) {
	var first []int32
	for _, l := range x.lines {
		rec := &r.book.records[l]
		if rec.class == Committed && rec.bought != 0 && len(r.spons.shares[r.book.texts[rec.commit]]) > 0 {
			first = append(first, l)
		} else {
			rest = append(rest, l)
		}
	}
	slices.SortStableFunc(first, func(a, b int32) int {
		return cmp.Compare(r.book.records[a].commit, r.book.records[b].commit)
	})
	for len(first) > 0 {
		commit, n := r.book.records[first[0]].commit, 1
		for end := r.samePeriod(first); n < end && r.book.records[first[n]].commit == commit; {
			n++
		}
		c := r.cell(x, first[:n])
		c.grid = r.take(&x.grid, c, r.spons.shares[r.book.texts[commit]])
		if err := r.divideCell(c, sum); err != nil {
			return nil, err
		}
		first = first[n:]
	}
	return rest, nil
}

// take moves what a cell bought out of a grid, and returns it.
func (r *run) take(from *grid, c *cell, of []share) *grid {
	taken := &grid{}
	spread := divisionOfMs(int64(magnitude(c.net)))
	for i := from.find(c.period.From); i < len(from.slots) && from.slots[i].from < c.period.To; i++ {
		s := &from.slots[i]
		s.settle(r.keys)
		want := spread.nextMs(uint64(s.to-c.period.From), uint64(c.period.Length()))
		t := slot{from: s.from, to: s.to, settled: true}
		sponsors := func(u *use) bool {
			k := &r.keys.all[u.key]
			return k.component == Allocated && slices.ContainsFunc(of, func(s share) bool { return s.workspace == k.workspace })
		}
		want -= moveUses(s, &t, want, sponsors)
		moveUses(s, &t, want, func(u *use) bool { return !sponsors(u) })
		t.uses = settle(t.uses, r.keys)
		taken.slots = append(taken.slots, t)
	}
	return taken
}

// moveUses moves up to want of the time of some uses, in proportion, and returns
// how much it moved.
func moveUses(from, to *slot, want int64, which func(*use) bool) int64 {
	var have uint64
	for i := range from.uses {
		if which(&from.uses[i]) {
			have += uint64(from.uses[i].gpuMs)
		}
	}
	want = min(want, int64(have))
	if want <= 0 {
		return 0
	}
	d, at := divisionOfMs(want), uint64(0)
	for i := range from.uses {
		u := &from.uses[i]
		if u.gpuMs == 0 || !which(u) {
			continue
		}
		at += uint64(u.gpuMs)
		ms := d.nextMs(at, have)
		useful := int64(u128{0, uint64(u.usefuls)}.scale64(uint64(ms), uint64(u.gpuMs)).lo)
		to.uses = append(to.uses, use{u.key, ms, useful})
		u.gpuMs, u.usefuls = u.gpuMs-ms, u.usefuls-useful
	}
	return want
}
