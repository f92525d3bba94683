package joint

import (
	"slices"

	"quartermaster/domain/procurement"
)

// mostRounds bounds the rounds of a part.
const mostRounds = 600

// rounded is a [Round], ready to be used.
type rounded struct {
	Round
	epoch           int   // of the problem
	divisor, modulo int64 // modulo of what the need lacks
	most            int64 // F of what the need lacks
}

type roundPrice struct {
	rounded
	price procurement.Nano
}

// round reads a round; false if it rounds nothing.
func (p *Problem) round(r Round) (rounded, bool) {
	if r.Need < 0 || r.Need >= len(p.Needs) || r.Epoch < 0 || r.Epoch >= len(p.Needs[r.Need].Epochs) || r.Divisor < 1 {
		return rounded{}, false
	}
	n := &p.Needs[r.Need]
	out := rounded{Round: r, epoch: n.Epochs[r.Epoch], divisor: int64(r.Divisor)}
	left := n.left(p, out.epoch)
	if left < 1 || left%out.divisor == 0 {
		return rounded{}, false
	}
	out.modulo = left % out.divisor
	out.most = out.of(left)
	return out, true
}

// of is F.
func (r *rounded) of(t int64) int64 { return r.modulo*(t/r.divisor) + min(r.modulo, t%r.divisor) }

// counts is what a unit of a choice counts for the need of a round.
func (r *rounded) counts(p *Problem, j int) int64 {
	sum := int64(0)
	for _, k := range p.Choices[j].Cover {
		if !k.Guaranteed || r.epoch < k.From || r.epoch >= k.To {
			continue
		}
		for _, t := range p.Needs[r.Need].Terms {
			if t.Pool == k.Pool {
				sum += int64(t.PerUnit) * int64(k.Units)
			}
		}
	}
	return sum
}

// each is F of what a unit of a choice counts.
func (r *rounded) each(p *Problem, j int) int64 { return r.of(r.counts(p, j)) }

// rounds are the needs of a part, rounded by what the units of its choices count.
func (p *Problem) rounds(part *Part) []rounded {
	var out []rounded
	for _, n := range part.Needs {
		for k := range p.Needs[n].Epochs {
			var sizes []int64
			probe := rounded{Round: Round{Need: n, Epoch: k}, epoch: p.Needs[n].Epochs[k]}
			for _, j := range part.Choices {
				if v := probe.counts(p, j); v > 1 && v < 1<<31 {
					sizes = append(sizes, v)
				}
			}
			slices.Sort(sizes)
			for _, v := range slices.Compact(sizes) {
				if r, ok := p.round(Round{n, k, int(v)}); ok {
					out = append(out, r)
				}
			}
		}
	}
	if len(out) > mostRounds {
		return nil
	}
	return out
}
