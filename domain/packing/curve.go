package packing

import (
	"context"
	"fmt"
	"math/big"
	"slices"
)

// Point is the machines needed for a demand of Level thousandths of a mix.
type Point struct {
	Level int64 `json:"level"` // in thousandths; replicas, counted over equal workloads, are rounded up
	// GPUMilli is the need of the replicas in thousandths of a GPU. With few replicas of each
	// workload it exceeds Level of the mix.
	GPUMilli int64 `json:"gpu_milli"`
	// Nodes is a number of nodes that holds the demand; LowerBound is proven. Neither falls as
	// demand rises.
	Nodes      int `json:"nodes"`
	LowerBound int `json:"lower_bound"`
	// The same in cost, 0 if no kind has a cost.
	Cost           int64  `json:"cost"`
	CostLowerBound int64  `json:"cost_lower_bound"`
	Used           []Used `json:"used"`     // nodes by kind
	Unplaced       int    `json:"unplaced"` // replicas without a machine, which Nodes leaves out
}

// curvePoints is the largest number of levels that a curve packs.
const curvePoints = 48

// Curve returns how many machines of given kinds a mix of workloads needs at levels of demand, in
// thousandths of the mix. The answer is ascending and has no duplicates. Columns and prices are
// found once, at the highest level, and are used for all. At most 48 levels are packed, so that
// time does not grow with the number of hours: other levels get the nodes of the next higher packed
// level, and the bound of the next lower one.
//
// It fails as [NeedContext] does, and if a level is negative or there are too many replicas.
func Curve(ctx context.Context, kinds []Node, mix []Workload, levels []int64, opts Options) ([]Point, error) {
	levels = set(levels)
	if len(levels) == 0 {
		return []Point{}, nil
	}
	p, err := compile(kinds, mix, true, opts)
	if err != nil {
		return nil, err
	}
	var replicas int64
	for i := range p.loads {
		replicas += int64(p.loads[i].Replicas)
	}
	top := levels[len(levels)-1]
	if levels[0] < 0 || top > 0 && replicas > 0 && top/1000 > maxReplicas/replicas {
		return nil, fmt.Errorf("levels of demand from %d to %d thousandths of %d replicas: none may be negative, "+
			"or need more than %d replicas", levels[0], top, replicas, maxReplicas)
	}
	packed := levels
	if len(levels) > curvePoints {
		packed = make([]int64, 0, curvePoints)
		for i := range curvePoints {
			packed = append(packed, levels[i*(len(levels)-1)/(curvePoints-1)])
		}
	}
	points := make([]Point, len(packed))
	var above *master
	for i, level := range slices.Backward(packed) {
		q := p.scaled(level)
		best, starts := q.best(needOrders, opts)
		m := &master{bound: new(big.Rat)}
		if opts.LP != nil {
			if above == nil {
				best, m, err = q.improve(ctx, best, starts, opts.LP)
				above = m
			} else {
				best, m, err = q.improveBy(above, best)
			}
			if err != nil {
				return nil, err
			}
		}
		r := best.result()
		if m.p != nil {
			m.tell(r)
		}
		points[i] = Point{
			Level: level, GPUMilli: r.GPUMilliNeeded, Nodes: r.NodesUsed, LowerBound: r.LowerBound, Cost: r.Cost,
			CostLowerBound: r.CostLowerBound, Used: r.Used,
		}
		for _, u := range r.Unplaced {
			points[i].Unplaced += u.Replicas
		}
	}
	// Whatever holds more demand also holds less, and a bound for less demand also holds for more.
	for i := len(points) - 2; i >= 0; i-- {
		a, b := &points[i], &points[i+1]
		if b.Unplaced == 0 && (a.Unplaced > 0 || a.Cost > b.Cost || a.Cost == b.Cost && a.Nodes > b.Nodes) {
			a.Nodes, a.Cost, a.Used, a.Unplaced = b.Nodes, b.Cost, slices.Clone(b.Used), 0
		}
	}
	for i := 1; i < len(points); i++ {
		a, b := &points[i-1], &points[i]
		b.LowerBound, b.CostLowerBound = max(b.LowerBound, a.LowerBound), max(b.CostLowerBound, a.CostLowerBound)
	}
	if len(packed) == len(levels) {
		return points, nil
	}
	all := make([]Point, 0, len(levels))
	for _, level := range levels {
		i, exact := slices.BinarySearch(packed, level)
		point := points[i]
		if !exact {
			point.Level, point.GPUMilli, point.Used = level, p.scaled(level).gpuMilli(), slices.Clone(point.Used)
			point.LowerBound, point.CostLowerBound = points[i-1].LowerBound, points[i-1].CostLowerBound
		}
		all = append(all, point)
	}
	return all, nil
}

// gpuMilli is the need of all demands, in thousandths of a GPU.
func (p *problem) gpuMilli() (sum int64) {
	for i := range p.demands {
		sum += int64(p.demands[i].replicas) * p.demands[i].gpuMilli()
	}
	return sum
}

// scaled is the problem with the given thousandths of each demand's replicas, rounded up.
func (p *problem) scaled(level int64) *problem {
	q := *p
	q.loads, q.demands = slices.Clone(p.loads), slices.Clone(p.demands)
	for i := range q.demands {
		d := &q.demands[i]
		all := int64(d.replicas)
		n := (all*level + 999) / 1000
		d.replicas = int(n)
		before := int64(0) // replicas of the previous workloads, which share in order
		for _, w := range d.loads {
			after := before + int64(p.loads[w].Replicas)
			if all > 0 {
				q.loads[w].Replicas = int(after*n/all - before*n/all)
			}
			before = after
		}
		d.load = &q.loads[d.loads[0]]
	}
	q.prepare()
	return &q
}

// improveBy does the same as improve with the columns and prices of a similar problem that has at
// least as much of every demand.
func (p *problem) improveBy(above *master, best *run) (*run, *master, error) {
	m := &master{p: p, ctx: above.ctx, lp: above.lp, unit: above.unit, costs: above.costs, bound: new(big.Rat)}
	m.told.State, m.rowOf = above.told.State, make([]int, len(p.demands))
	for i := range p.demands {
		m.rowOf[i] = -1
		if above.rowOf[i] >= 0 && p.demands[i].replicas > 0 {
			m.rowOf[i] = len(m.rows)
			m.rows = append(m.rows, i)
		}
	}
	if len(m.rows) == 0 || above.told.State == ColumnsUnavailable {
		return best, m, nil
	}
	if above.prices != nil {
		m.prove(above.prices, above.worth)
	}
	for _, col := range above.columns {
		c := *col
		c.sums = slices.DeleteFunc(slices.Clone(col.sums), func(x count) bool { return m.rowOf[x.demand] < 0 })
		m.columns = append(m.columns, &c)
	}
	if m.proven(best) {
		return best, m, nil
	}
	left, machines := m.all()
	s, err := m.solve(left, machines)
	if err == nil && s != nil {
		best, err = m.round(best, s, curveDives)
	}
	return best, m, err
}

// curveDives is the number of rounding dives per level of a curve.
const curveDives = 3
