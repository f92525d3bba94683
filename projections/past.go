package projections

import (
	"cmp"
	"slices"
)

// Past is the part of a source's row of incarnation 0 about incarnations that have ended. An
// incarnation is moved there, and its own row removed, once the next one has named its last
// sequence and everything up to that has arrived. The row's Mark counts the events.
type Past struct {
	Incarnations uint64 `json:"incarnations"`
	// Lives are the highest of these incarnations, ascending: see [maxLives].
	Lives []Life `json:"lives"`
	// First and Last are the bounds of the others.
	First uint64 `json:"first,omitempty"`
	Last  uint64 `json:"last,omitempty"`
}

// Life is an incarnation that ended, with its last sequence.
type Life struct {
	_           struct{} `cbor:",toarray"`
	Incarnation uint64   `json:"incarnation"`
	Mark        uint64   `json:"mark"`
}

// maxLives bounds the incarnations that a row lists. One takes about 12 bytes.
const maxLives = 128

func (p *Past) find(incarnation uint64) (int, bool) {
	return slices.BinarySearchFunc(p.Lives, incarnation, func(l Life, n uint64) int { return cmp.Compare(l.Incarnation, n) })
}

// judge classifies a sequence of an incarnation without a row of its own. A sequence beyond the end
// of a listed incarnation counts: its row is opened again. Of the others only the bounds are known,
// and anyone may have claimed them. A sequence within the bounds is uncertain.
func (p *Past) judge(incarnation, seq uint64) verdict {
	if i, ok := p.find(incarnation); ok {
		if seq <= p.Lives[i].Mark {
			return repeat
		}
		return news
	}
	if incarnation < p.First || incarnation > p.Last {
		return news
	}
	return uncertain
}

func (p *Past) enter(l Life) {
	i, _ := p.find(l.Incarnation)
	p.Lives = slices.Insert(p.Lives, i, l)
	p.Incarnations++
	if len(p.Lives) <= maxLives {
		return
	}
	l = p.Lives[0]
	p.Lives = slices.Delete(p.Lives, 0, 1)
	if p.Last == 0 {
		p.First = l.Incarnation
	}
	p.First, p.Last = min(p.First, l.Incarnation), max(p.Last, l.Incarnation)
}

func (f *Projector) pastKey(source string) Key { return f.streamKey(source, 0) }

// open returns the row of an incarnation for changes. If the incarnation had ended, it continues
// from there.
func (f *Projector) open(rows *WorkingSet, source string, incarnation uint64) *Stream {
	key := f.streamKey(source, incarnation)
	s := change[*Stream](rows, key)
	if s.Source != "" {
		return s
	}
	s.Source, s.Incarnation = key.clone().ID, incarnation
	sum, _ := rows.Get(f.pastKey(source)).(*Stream)
	if sum == nil {
		return s
	}
	if i, ok := sum.Past.find(incarnation); ok {
		sum = change[*Stream](rows, f.pastKey(source))
		s.Mark, s.Ended = sum.Past.Lives[i].Mark, sum.Past.Lives[i].Mark
		sum.Past.Lives = slices.Delete(sum.Past.Lives, i, i+1)
		sum.Past.Incarnations--
		sum.Mark -= s.Mark
	}
	return s
}

// end records that an incarnation ended with a sequence, as the next incarnation says.
func (f *Projector) end(rows *WorkingSet, source string, incarnation, seq uint64) {
	if rows.Get(f.streamKey(source, incarnation)) == nil {
		sum, _ := rows.Get(f.pastKey(source)).(*Stream)
		if sum != nil && sum.Past.judge(incarnation, seq) != news {
			return
		}
	}
	s := f.open(rows, source, incarnation)
	s.reach(seq)
	s.Ended = max(s.Ended, seq)
	f.close(rows, s)
}

// close moves an incarnation that has ended and completely arrived into the row of its source. An
// incarnation that continued beyond its end keeps its row.
func (f *Projector) close(rows *WorkingSet, s *Stream) {
	if s.Ended == 0 || s.Mark != s.Ended || s.Missing() > 0 {
		return
	}
	sum := change[*Stream](rows, f.pastKey(s.Source))
	if sum.Source == "" {
		sum.Source, sum.Past = s.Source, &Past{Lives: []Life{}}
	}
	sum.Past.enter(Life{Incarnation: s.Incarnation, Mark: s.Mark})
	sum.Mark += s.Mark
	sum.Uncompared += s.Uncompared
	sum.Last, sum.Ahead = max(sum.Last, s.Last), max(sum.Ahead, s.Ahead)
	rows.remove(f.streamKey(s.Source, s.Incarnation))
}

// Lives counts the incarnations of a source in a partition, for [IncarnationsOf].
type Lives struct {
	Past *Past
	Open []uint64
}

// IncarnationsOf counts the incarnations of a source over its partitions. Listed incarnations are
// counted exactly. Of the others, which several partitions may share, it counts as many as the
// partition with the most.
func IncarnationsOf(parts []*Lives) int {
	var last uint64
	for _, p := range parts {
		if p.Past != nil {
			last = max(last, p.Past.Last)
		}
	}
	named, most := map[uint64]bool{}, 0
	for _, p := range parts {
		below := 0
		count := func(n uint64) {
			if n > last {
				named[n] = true
			} else {
				below++
			}
		}
		for _, n := range p.Open {
			count(n)
		}
		if p.Past != nil {
			below += int(p.Past.Incarnations) - len(p.Past.Lives)
			for _, l := range p.Past.Lives {
				count(l.Incarnation)
			}
		}
		most = max(most, below)
	}
	return len(named) + most
}
