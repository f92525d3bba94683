package packing_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/linear"
	"quartermaster/domain/packing"
)

// liar answers with whatever is drawn: prices and machines that solve nothing.
type liar struct{ t *rapid.T }

func (l liar) Solve(_ context.Context, p *linear.Program, _ linear.Limits) (*linear.Solution, error) {
	s := &linear.Solution{Status: rapid.SampledFrom([]linear.Status{linear.Optimal, linear.Optimal, linear.Optimal, linear.Limited}).Draw(l.t, "status")}
	for range p.Cost {
		s.X = append(s.X, rapid.SampledFrom([]float64{0, 0, 0.5, 1, 3.7, -1}).Draw(l.t, "machines"))
	}
	for range p.RowLower {
		s.Prices = append(s.Prices, rapid.SampledFrom([]float64{0, 0.1, 0.5, 1, 1e9, -3}).Draw(l.t, "price"))
	}
	return s, nil
}

// Whatever a solver says, the answer is valid and no worse than the greedy one, and neither bound
// exceeds the optimum, of machines or of cost.
func TestColumnsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, loads := drawNodes(t, 3, true), drawLoads(t, 5, 3)
		priced := rapid.Bool().Draw(t, "priced")
		var all []*box
		for i := range nodes {
			if nodes[i].Count <= 0 {
				nodes[i].Count = 4
			}
			if priced {
				nodes[i].Cost = rapid.SampledFrom([]int64{0, 1, 7, 10, 1 << 30}).Draw(t, "cost")
			}
			for range nodes[i].Count {
				all = append(all, newBox(&nodes[i]))
			}
		}
		byID := map[string]*packing.Workload{}
		loads = slices.DeleteFunc(loads, func(w packing.Workload) bool {
			return !slices.ContainsFunc(all, func(b *box) bool { return refusal(b, &w, nil, byID) == "" })
		})
		for i, total := 0, 0; i < len(loads); i++ {
			loads[i].Replicas = min(loads[i].Replicas, 4-total)
			total += loads[i].Replicas
		}
		var lp linear.Solver = simplex{}
		honest := rapid.Bool().Draw(t, "honest")
		if !honest {
			lp = liar{t}
		}
		unbounded := slices.Clone(nodes)
		if rapid.Bool().Draw(t, "any number") {
			for i := range unbounded {
				unbounded[i].Count = packing.Unlimited
			}
		}
		pairs := drawPairs(t)
		for _, b := range all {
			b.apart = pairs
		}
		greedy, err := packing.Need(unbounded, loads, packing.Options{ApartClasses: pairs})
		if err != nil {
			t.Fatal(err)
		}
		r, err := packing.Need(unbounded, loads, packing.Options{LP: lp, ApartClasses: pairs})
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(unbounded, loads, r, true, pairs...); err != nil {
			t.Fatalf("%v\n%s", err, text(r))
		}
		if r.Columns.State == packing.ColumnsNotAsked || greedy.Columns.State != packing.ColumnsNotAsked {
			t.Fatalf("%+v and %+v", r.Columns, greedy.Columns)
		}
		if len(greedy.Unplaced) == 0 && (len(r.Unplaced) > 0 || r.Cost > greedy.Cost || r.Cost == greedy.Cost && r.NodesUsed > greedy.NodesUsed) {
			t.Fatalf("%s\nis worse than\n%s", text(r), text(greedy))
		}
		best, ok := optimum(all, loads)
		if !ok {
			return
		}
		if r.LowerBound > best {
			t.Fatalf("the bound is %d, the optimum %d", r.LowerBound, best)
		}
		if cost := leastCost(all, loads); r.CostLowerBound > cost {
			t.Fatalf("the bound of cost is %d, the optimum %d", r.CostLowerBound, cost)
		}
	})
}

// Instances of several profiles, with CPU that binds on some machines: patterns
// that greedy orders miss are found, and the bound meets them.
func TestColumnsOfInstances(t *testing.T) {
	kinds := []packing.Node{{ID: "a100", Model: "A100 80GB", GPUs: 4, MIG: true, CPUMilli: 64, MemoryMiB: 500}}
	loads := []packing.Workload{
		{ID: "tiny", Profile: "1g.10gb", Replicas: 190, CPUMilli: 3, MemoryMiB: 10},
		{ID: "small", Profile: "1g.20gb", Replicas: 60, CPUMilli: 1, MemoryMiB: 20},
		{ID: "medium", Profile: "2g.20gb", Replicas: 70, CPUMilli: 5, MemoryMiB: 20},
		{ID: "half", Profile: "3g.40gb", Replicas: 65, CPUMilli: 2, MemoryMiB: 60},
		{ID: "more", Profile: "4g.40gb", Replicas: 24, CPUMilli: 9, MemoryMiB: 50},
		{ID: "all", Profile: "7g.80gb", Replicas: 7, CPUMilli: 12, MemoryMiB: 100},
		{ID: "part", GPUMilli: 400, Replicas: 11, CPUMilli: 4, MemoryMiB: 10},
		{ID: "two", GPUMilli: 2000, Replicas: 5, CPUMilli: 20, MemoryMiB: 90},
	}
	greedy, err := packing.Need(kinds, loads, packing.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := packing.Need(kinds, loads, packing.Options{LP: simplex{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(kinds, loads, r, true); err != nil {
		t.Fatal(err)
	}
	t.Logf("greedy %d, at least %d; columns %d, at least %d; %+v", greedy.NodesUsed, greedy.LowerBound, r.NodesUsed, r.LowerBound, r.Columns)
	if r.NodesUsed != r.LowerBound || len(r.Unplaced) > 0 {
		t.Errorf("%d machines, at least %d", r.NodesUsed, r.LowerBound)
	}
}

// A build without a solver says so and does the rest; other failures of the solver, such as the end
// of the context, are returned.
func TestColumnsWithoutSolver(t *testing.T) {
	nodes := []packing.Node{{ID: "n", GPUs: 2, CPUMilli: 10, MemoryMiB: 10}}
	loads := []packing.Workload{{ID: "w", Replicas: 5, GPUMilli: 700}}
	r, err := packing.Need(nodes, loads, packing.Options{LP: failing{linear.ErrUnavailable}})
	if err != nil || r.Columns.State != packing.ColumnsUnavailable || r.NodesUsed != 3 {
		t.Errorf("%v %s", err, text(r))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := packing.NeedContext(ctx, nodes, loads, packing.Options{LP: simplex{}}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after the context ended", err)
	}
}

type failing struct{ err error }

func (f failing) Solve(context.Context, *linear.Program, linear.Limits) (*linear.Solution, error) {
	return nil, f.err
}
