package joint

import (
	"slices"

	"quartermaster/domain"
)

// blocks are the problem's blocks in the order of their first pools. Demands without a route and
// commitments that no pool uses are in the first.
func (p *Problem) blocks() []*block {
	var out []*block
	for _, b := range p.Blocks() {
		out = append(out, newBlock(p, b))
	}
	return out
}

// Blocks returns what is served together hour by hour, in the order of the first pools. Demands
// without a route, and quotas and spends of no pool, are in the first.
func (p *Problem) Blocks() []Block {
	pools, demands, quotas := len(p.Pools), len(p.Demands), len(p.Quotas)
	at := func(kind, i int) int {
		return []int{0, pools, pools + demands, pools + demands + quotas}[kind] + i
	}
	s := domain.NewSets(at(3, len(p.Spends)))
	linked := make([]bool, len(s))
	join := func(pool, kind, i int) {
		s.Join(pool, at(kind, i))
		linked[at(kind, i)] = true
	}
	for _, r := range p.Routes {
		join(r.Pool, 1, r.Demand)
	}
	for m := range p.Epochs {
		for i := range p.Epochs[m].Pools {
			if q := p.Epochs[m].Pools[i].Quota; q >= 0 {
				join(i, 2, q)
			}
			if c := p.Epochs[m].Pools[i].Spend; c >= 0 {
				join(i, 3, c)
			}
		}
	}
	place := make([]int, len(s))
	var out []Block
	for i := range p.Pools {
		if r := s.Find(i); r == i {
			place[i] = len(out)
			out = append(out, Block{})
		}
		b := &out[place[s.Find(i)]]
		b.Pools = append(b.Pools, i)
	}
	put := func(kind, n int, list func(*Block) *[]int) {
		for i := range n {
			b := &out[0]
			if k := at(kind, i); linked[k] {
				b = &out[place[s.Find(k)]]
			}
			to := list(b)
			*to = append(*to, i)
		}
	}
	put(1, demands, func(b *Block) *[]int { return &b.Demands })
	put(2, quotas, func(b *Block) *[]int { return &b.Quotas })
	put(3, len(p.Spends), func(b *Block) *[]int { return &b.Spends })
	return out
}

// parts are blocks with what couples them, in the order of their first blocks. Choices that cover
// nothing, and limits and needs without terms, are in the first.
func (p *Problem) parts() []Part {
	blocks := p.Blocks()
	of, ofSpend := make([]int, len(p.Pools)), make([]int, len(p.Spends))
	for b := range blocks {
		for _, i := range blocks[b].Pools {
			of[i] = b
		}
		for _, i := range blocks[b].Spends {
			ofSpend[i] = b
		}
	}
	// Blocks, then choices, needs, limits, groups.
	choice := len(blocks)
	need := choice + len(p.Choices)
	limit := need + len(p.Needs)
	s := domain.NewSets(limit + len(p.Limits))
	groups := map[string]int{}
	for j := range p.Choices {
		c := &p.Choices[j]
		for _, k := range c.Cover {
			s.Join(of[k.Pool], choice+j)
		}
		for _, k := range c.Spend {
			s.Join(ofSpend[k.Spend], choice+j)
		}
		for l, v := range c.Spent {
			if v != 0 {
				s.Join(choice+j, limit+l)
			}
		}
		if c.Group != "" {
			if first, ok := groups[c.Group]; ok {
				s.Join(choice+first, choice+j)
			} else {
				groups[c.Group] = j
			}
		}
	}
	for i := range p.Needs {
		for _, t := range p.Needs[i].Terms {
			s.Join(of[t.Pool], need+i)
		}
	}
	for l := range p.Limits {
		if p.Limits[l].Serving != nil {
			for b := range blocks {
				s.Join(b, limit+l)
			}
		}
	}
	// Whatever is in no block's set joins the first block's.
	inBlock := make([]bool, len(s))
	for b := range blocks {
		inBlock[s.Find(b)] = true
	}
	for i := choice; i < len(s); i++ {
		if r := s.Find(i); !inBlock[r] {
			s.Join(0, i)
			inBlock[s.Find(0)] = true
		}
	}
	place := make([]int, len(s))
	var out []Part
	for b := range blocks {
		r := s.Find(b)
		if r == b {
			place[b] = len(out)
			out = append(out, Part{})
		}
		to := &out[place[r]]
		to.Blocks = append(to.Blocks, blocks[b])
	}
	for j := range p.Choices {
		to := &out[place[s.Find(choice+j)]]
		to.Choices = append(to.Choices, j)
	}
	for i := range p.Needs {
		to := &out[place[s.Find(need+i)]]
		to.Needs = append(to.Needs, i)
	}
	for l := range p.Limits {
		to := &out[place[s.Find(limit+l)]]
		to.Limits = append(to.Limits, l)
	}
	for i := range out {
		slices.Sort(out[i].Choices)
	}
	return out
}
