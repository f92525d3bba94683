package costs

import (
	"quartermaster/domain/attribution"
)

// Who held an allocation is written after its figures, as a number:
//
//	0     nobody, and no machine
//	1     a unit on a machine; their texts follow
//	2     several units or machines; the list follows
//	3     the list that the line before has in the same place: lines of a machine and an hour are divided alike
//	4+2n  unit and machine n, from 0 in the order of their first use
//	5+2n  list n of the lines that follow others, from 0 in the order of their first use
//
// A list is a byte of flags and a number of holders. Each is a unit and a machine (0 and their texts, or their number
// plus 1), and its weights: microseconds, and if the flags say so those that were not measured and those that were
// measured and not useful; or money in both ledgers.
const (
	heldByNobody = iota
	heldByNew
	heldByList
	heldAsBefore
	heldBySome
)

// The flags of a list of holders.
const (
	heldInMoney  = 1 << 0
	heldMeasured = 1 << 1
)

// mostHolders bounds a list.
const mostHolders = 1 << 26

// heldNumbers are what was written of holders.
type heldNumbers struct {
	pairs       map[[2]string]uint64 // by unit and machine
	lists       map[*attribution.Holders]uint64
	before, now []*attribution.Holders // lists of the line before and of the current one
}

func newHeldNumbers() heldNumbers {
	return heldNumbers{pairs: map[[2]string]uint64{}, lists: map[*attribution.Holders]uint64{}}
}

// next begins a line.
func (h *heldNumbers) next() { h.before, h.now = h.now, h.before[:0] }

// holders writes who held an allocation.
func (e *encoder) holders(l *attribution.Allocation) {
	h := l.Holders
	switch h.Len() {
	case 0:
		e.uint(heldByNobody)
		return
	case 1:
		of := h.At(0)
		if of.Unit == "" && of.Node == "" {
			e.uint(heldByNobody)
			return
		}
		e.heldBy(&of, heldByNew, heldBySome, 2)
		return
	}
	if follows(l.MatchMethod) {
		if n, ok := e.held.lists[h]; ok {
			e.uint(heldBySome + 1 + 2*n)
			return
		}
		e.held.lists[h] = uint64(len(e.held.lists))
	} else {
		place := len(e.held.now)
		e.held.now = append(e.held.now, h)
		if place < len(e.held.before) && e.held.before[place] == h {
			e.uint(heldAsBefore)
			return
		}
	}
	e.uint(heldByList)
	e.list(h)
}

// follows reports whether lines of a match method have the holders of other lines.
func follows(m attribution.MatchMethod) bool {
	return m == attribution.ByFollowing || m == attribution.ByCommitment
}

// heldBy writes the number of a unit and a machine, or a number that says that they are new and their texts.
func (e *encoder) heldBy(of *attribution.Holder, isNew, first, step uint64) {
	pair := [2]string{of.Unit, of.Node}
	if n, ok := e.held.pairs[pair]; ok {
		e.uint(first + step*n)
		return
	}
	e.held.pairs[pair] = uint64(len(e.held.pairs))
	e.uint(isNew)
	e.text(of.Unit)
	e.text(of.Node)
}

func (e *encoder) list(h *attribution.Holders) {
	flags := byte(0)
	for i := range h.Len() {
		of := h.At(i)
		if of.Known > 0 {
			flags |= heldMeasured
		}
		if of.Micros == 0 {
			flags |= heldInMoney
		}
	}
	e.b = append(e.b, flags)
	e.uint(uint64(h.Len()))
	for i := range h.Len() {
		of := h.At(i)
		e.heldBy(&of, 0, 1, 1)
		if flags&heldInMoney != 0 {
			e.b = of.Effective.AppendBytes(of.Billed.AppendBytes(e.b))
			continue
		}
		e.uint(of.Micros)
		if flags&heldMeasured != 0 {
			e.uint(of.Micros - of.Known)
			e.uint(of.Known - of.Useful)
		}
	}
}

// heldRead are what was read of holders.
type heldRead struct {
	pairs       [][2]string
	lists       []*attribution.Holders
	before, now []*attribution.Holders
	one         []attribution.Holder
	single      *attribution.Holders // has one
}

// next begins a line.
func (h *heldRead) next() { h.before, h.now = h.now, h.before[:0] }

// holders reads who held an allocation. If it is one, it is reused for the next record.
func (r *decoder) holders(method attribution.MatchMethod) *attribution.Holders {
	n := r.uint()
	switch {
	case r.err != nil || n == heldByNobody:
		return nil
	case n == heldByNew:
		return r.single(r.newPair())
	case n == heldByList:
		h := r.list()
		if follows(method) {
			r.held.lists = append(r.held.lists, h)
		} else {
			r.held.now = append(r.held.now, h)
		}
		return h
	case n == heldAsBefore:
		place := len(r.held.now)
		if place >= len(r.held.before) {
			r.fail("list %d of holders is that of a line with %d", place+1, len(r.held.before))
			return nil
		}
		r.held.now = append(r.held.now, r.held.before[place])
		return r.held.before[place]
	}
	at := (n - heldBySome) / 2
	switch {
	case n%2 == 0 && at < uint64(len(r.held.pairs)):
		return r.single(r.held.pairs[at])
	case n%2 == 1 && at < uint64(len(r.held.lists)):
		return r.held.lists[at]
	}
	r.fail("holder %d of %d and %d lists", n, len(r.held.pairs), len(r.held.lists))
	return nil
}

func (r *decoder) single(pair [2]string) *attribution.Holders {
	h := &r.held
	if h.single == nil {
		h.one = make([]attribution.Holder, 1)
		h.single = attribution.HoldersOf(h.one)
	}
	h.one[0] = attribution.Holder{Unit: pair[0], Node: pair[1], Micros: 1}
	return h.single
}

func (r *decoder) newPair() [2]string {
	pair := [2]string{r.text(), r.text()}
	r.held.pairs = append(r.held.pairs, pair)
	return pair
}

func (r *decoder) list() *attribution.Holders {
	flags, n := r.byte(), r.uint()
	if r.err == nil && (flags&^(heldInMoney|heldMeasured) != 0 || n < 2 || n > mostHolders) {
		r.fail("%d holders with flags %x", n, flags)
	}
	var all []attribution.Holder
	for i := uint64(0); i < n && r.err == nil; i++ {
		var of attribution.Holder
		var pair [2]string
		switch at := r.uint(); {
		case at == 0:
			pair = r.newPair()
		case at <= uint64(len(r.held.pairs)):
			pair = r.held.pairs[at-1]
		default:
			r.fail("unit and machine %d of %d", at, len(r.held.pairs))
		}
		of.Unit, of.Node = pair[0], pair[1]
		switch {
		case flags&heldInMoney != 0:
			of.Billed, of.Effective = r.amount(), r.amount()
		default:
			if of.Micros = r.uint(); flags&heldMeasured != 0 {
				of.Known = of.Micros - r.uint()
				of.Useful = of.Known - r.uint()
			}
			if of.Micros == 0 || of.Known > of.Micros || of.Useful > of.Known {
				r.fail("%q weighs %d, %d of it measured and %d useful", of.Unit, of.Micros, of.Known, of.Useful)
			}
		}
		all = append(all, of)
	}
	return attribution.HoldersOf(all)
}
