package joint_test

import (
	"context"
	"math"
	"math/big"
	"testing"

	"quartermaster/adapters/highs"
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// program is a whole problem as one linear program: every slot of every epoch and case with all its
// columns. It shares nothing with the solver's view of an hour. Money is in millions of Nano. The
// first columns are the choices, in lots if integers are requested.
type program struct {
	linear.Program
	rows []map[int]float64
}

func (g *program) column(cost, upper float64) int {
	g.Cost = append(g.Cost, cost)
	g.Lower = append(g.Lower, 0)
	g.Upper = append(g.Upper, upper)
	return len(g.Cost) - 1
}

func (g *program) row(lower, upper float64) map[int]float64 {
	r := map[int]float64{}
	g.rows = append(g.rows, r)
	g.RowLower, g.RowUpper = append(g.RowLower, lower), append(g.RowUpper, upper)
	return r
}

func (g *program) finish() *linear.Program {
	type entry struct {
		row   int
		value float64
	}
	by := make([][]entry, len(g.Cost))
	for i, r := range g.rows {
		for j, v := range r {
			if v != 0 {
				by[j] = append(by[j], entry{i, v})
			}
		}
	}
	g.Start = []int{0}
	for j := range by {
		for _, e := range by[j] {
			g.Index, g.Value = append(g.Index, e.row), append(g.Value, e.value)
		}
		g.Start = append(g.Start, len(g.Index))
	}
	return &g.Program
}

var inf = math.Inf(1)

func extensive(p *joint.Problem, units []int, whole bool) *linear.Program {
	g := &program{}
	money := func(n procurement.Nano) float64 { return float64(n) / million }
	limits := make([]map[int]float64, len(p.Limits))
	for l := range p.Limits {
		most := float64(p.Limits[l].Most)
		if !p.Limits[l].Unserved && !p.Limits[l].Spot {
			most = money(p.Limits[l].Most)
		}
		limits[l] = g.row(-inf, most*float64(p.Weight))
	}
	groups := map[string]map[int]float64{}
	for j := range p.Choices {
		c := &p.Choices[j]
		most := inf
		if c.Max >= 0 {
			most = float64(c.Max)
		}
		g.column(money(c.Cost)*float64(p.Weight), most)
		if units != nil {
			g.Lower[j], g.Upper[j] = float64(units[j]), float64(units[j])
		}
		for l, v := range c.Spent {
			limits[l][j] = money(v) * float64(p.Weight)
			if p.Limits[l].Unserved || p.Limits[l].Spot {
				limits[l][j] = float64(v) * float64(p.Weight)
			}
		}
	}
	if whole {
		g.Whole = make([]bool, len(p.Choices))
		for j := range p.Choices {
			c := &p.Choices[j]
			g.Whole[j] = true
			if c.Lot > 1 { // x = Lot·k
				k := g.column(0, inf)
				g.Whole = append(g.Whole, true)
				r := g.row(0, 0)
				r[j], r[k] = 1, float64(-c.Lot)
			}
			if c.Least > 1 || c.Group != "" { // bought or not
				b := g.column(0, 1)
				g.Whole = append(g.Whole, true)
				most := 1000.
				if c.Max >= 0 {
					most = float64(c.Max)
				}
				r := g.row(-inf, 0)
				r[j], r[b] = 1, -most
				r = g.row(0, inf)
				r[j], r[b] = 1, float64(-c.Least)
				if c.Group != "" {
					if groups[c.Group] == nil {
						groups[c.Group] = g.row(-inf, 1)
					}
					groups[c.Group][b] = 1
				}
			}
		}
	}
	cover := func(r map[int]float64, m, pool int, guaranteed bool, sign float64) {
		for j := range p.Choices {
			for _, k := range p.Choices[j].Cover {
				if k.Pool == pool && k.Guaranteed == guaranteed && k.From <= m && m < k.To {
					r[j] += sign * float64(k.Units)
				}
			}
		}
	}
	for i := range p.Needs {
		need := &p.Needs[i]
		for _, m := range need.Epochs {
			least := float64(need.Least)
			r := g.row(0, inf)
			for _, t := range need.Terms {
				least -= float64(t.PerUnit * p.Epochs[m].Pools[t.Pool].HeldGuaranteed)
				cover(r, m, t.Pool, true, float64(t.PerUnit))
			}
			g.RowLower[len(g.rows)-1] = least
		}
	}
	for m := range p.Epochs {
		e := &p.Epochs[m]
		for c := range e.Cases {
			runs := make([]map[int]float64, len(p.Demands)) // what has come in the window runs
			waited := make([]float64, len(p.Demands))
			for h, s := range e.Cases[c].Slots {
				weight := float64(s.Hours * e.Cases[c].Weight)
				serve := func(price procurement.Nano, upper float64, kind string) int {
					j := g.column(money(price)*weight, upper)
					for l := range p.Limits {
						limit := &p.Limits[l]
						if limit.Serving == nil {
							continue
						}
						v := 0.0
						switch {
						case limit.Unserved && kind == "short", limit.Spot && kind == "spot":
							v = weight
						case !limit.Unserved && !limit.Spot && kind != "short":
							v = money(price) * weight
						}
						limits[l][j] = v * float64(limit.Serving[m]) / 1000
					}
					return j
				}
				demand, share := make([]map[int]float64, len(p.Demands)), make([]map[int]float64, len(p.Demands))
				for d, u := range s.Units {
					demand[d] = g.row(float64(u), inf)
					share[d] = g.row(-inf, float64(u*p.Demands[d].Interruptible/1000))
					demand[d][serve(e.Shortage[d], inf, "short")] = 1
					w := p.Demands[d].Window
					if w == 0 {
						continue
					}
					if h%w == 0 {
						runs[d], waited[d] = map[int]float64{}, 0
					}
					now := 0
					if s.Waits != nil {
						now = s.Waits[d]
					}
					waited[d] += float64(now)
					run := g.column(0, inf)
					runs[d][run] = 1
					share[d][run] = -float64(p.Demands[d].Interruptible) / 1000
					g.RowUpper[len(g.rows)-1] = float64((u-now)*p.Demands[d].Interruptible) / 1000
					demand[d][run] = -1
					g.RowLower[len(g.rows)-2] = float64(u - now)
					r := g.row(waited[d], waited[d])
					if h+1 < len(e.Cases[c].Slots) && (h+1)%w != 0 {
						g.RowLower[len(g.rows)-1] = -inf
					}
					for j := range runs[d] {
						r[j] = 1
					}
				}
				firm, spot := make([]map[int]float64, len(p.Pools)), make([]map[int]float64, len(p.Pools))
				quota, spend := make([]map[int]float64, len(p.Quotas)), make([]map[int]float64, len(p.Spends))
				for q, v := range e.Quotas {
					if v < 0 {
						quota[q] = g.row(-inf, inf)
					} else {
						quota[q] = g.row(-inf, float64(v))
					}
				}
				for k, v := range e.Spends {
					spend[k] = g.row(-inf, money(v))
					for j := range p.Choices {
						for _, x := range p.Choices[j].Spend {
							if x.Spend == k && x.From <= m && m < x.To {
								spend[k][j] -= money(x.PerHour)
							}
						}
					}
				}
				for k := range p.Pools {
					v := &e.Pools[k]
					firm[k] = g.row(-inf, float64(v.HeldGuaranteed))
					cover(firm[k], m, k, true, -1)
					spot[k] = g.row(-inf, 0)
					if v.Spot >= 0 {
						most := inf
						if z := e.Cases[c].Spot[k]; z >= 0 {
							most = float64(z)
						}
						spot[k][serve(v.Spot, most, "spot")] = -1
					}
					if v.OnDemand < 0 {
						continue
					}
					y, b := serve(v.OnDemand, inf, "on-demand"), g.column(0, inf)
					firm[k][y], firm[k][b] = -1, -1
					r := g.row(-inf, float64(v.HeldDiscountOnly))
					r[b] = 1
					cover(r, m, k, false, -1)
					on := []int{y, b}
					if v.Spend >= 0 {
						w := g.column(0, inf)
						firm[k][w] = -1
						spend[v.Spend][w] = money(v.SpendPrice)
						on = append(on, w)
					}
					if v.Quota >= 0 {
						for _, j := range on {
							quota[v.Quota][j] = float64(v.QuotaPerUnit)
						}
					}
				}
				for i, r := range p.Routes {
					ratio := float64(r.Num) / float64(r.Den)
					f := serve(e.Routes[i], inf, "route")
					demand[r.Demand][f] = 1
					firm[r.Pool][f] = ratio
					f = serve(e.Routes[i], inf, "route")
					demand[r.Demand][f], share[r.Demand][f] = 1, 1
					spot[r.Pool][f] = ratio
				}
			}
		}
	}
	if len(g.Whole) == 0 {
		g.Whole = nil
	}
	for len(g.Whole) > 0 && len(g.Whole) < len(g.Cost) {
		g.Whole = append(g.Whole, false)
	}
	return g.finish()
}

var solver linear.Solver

// lp is the solver that all tests share.
func lp(t testing.TB) linear.Solver {
	t.Helper()
	if !highs.Available() {
		t.Skip("this build has no solver of linear programs: run make highs")
	}
	if solver == nil {
		s, err := highs.Open(highs.Options{})
		if err != nil {
			t.Fatal(err)
		}
		solver = s
	}
	return solver
}

// optimum solves the whole program. It returns the cost in Nano, and whether the problem is
// feasible.
func optimum(t testing.TB, p *joint.Problem, units []int, whole bool) (float64, bool) {
	t.Helper()
	g := extensive(p, units, whole)
	s, err := lp(t).Solve(context.Background(), g, linear.Limits{Gap: 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	switch s.Status {
	case linear.Optimal:
		return s.Objective * million, true
	case linear.Infeasible:
		return 0, false
	}
	t.Fatalf("the whole program is %s", s.Status)
	return 0, false
}

func float(x *big.Int) float64 {
	f, _ := new(big.Float).SetInt(x).Float64()
	return f
}
