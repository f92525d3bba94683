package packing

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// oneByOne does the same as run without any shortcut: it looks at all machines for each replica.
func (p *problem) oneByOne(o *order) *run {
	r := p.start(o)
	r.placeGangs()
	for _, s := range p.steps(o) {
		for range s.n {
			var best choice
			for _, g := range r.groups {
				if g.n == 0 {
					continue
				}
				if c, ok := r.weigh(&g.state, s.demand); ok && (best.group == nil || c.before(&best)) {
					best, best.group = c, g
				}
			}
			if best.group == nil {
				break
			}
			end := best.group.with(s.demand, &p.demands[s.demand], best.from)
			r.hold(&best.group.state, s.demand)
			r.move(best.group, &end, 1, s.demand, []took{{best.from, 1}})
			r.left[s.demand]--
		}
	}
	return r
}

// machines counts the machines in each state.
func (r *run) machines() map[string]int {
	m := map[string]int{}
	for _, g := range r.groups {
		if g.n > 0 {
			m[string(g.key(nil))] = g.n
		}
	}
	return m
}

func TestBulkIsOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		open := rapid.Bool().Draw(t, "open")
		var nodes []Node
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			n := Node{
				ID: fmt.Sprint("n", i), Count: rapid.IntRange(1, 6).Draw(t, "count"),
				Cluster:  rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "cluster"),
				Region:   rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "region"),
				GPUs:     rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "GPUs"),
				CPUMilli: rapid.Int64Range(4, 16).Draw(t, "CPU"), MemoryMiB: rapid.Int64Range(4, 16).Draw(t, "memory"),
			}
			if !open {
				n.Held.GPUMilli = []int64{rapid.Int64Range(0, 3).Draw(t, "held") * 300}
			}
			nodes = append(nodes, n)
		}
		var loads []Workload
		for i := range rapid.IntRange(1, 7).Draw(t, "workloads") {
			w := Workload{
				ID: fmt.Sprint("w", i), Replicas: rapid.IntRange(1, 30).Draw(t, "replicas"),
				GPUMilli: rapid.SampledFrom([]int64{0, 150, 300, 450, 500, 810, 1000, 2000, 4000}).Draw(t, "GPU"),
				CPUMilli: rapid.Int64Range(0, 6).Draw(t, "CPU"), MemoryMiB: rapid.Int64Range(0, 6).Draw(t, "memory"),
			}
			switch rapid.IntRange(0, 8).Draw(t, "kind") {
			case 0:
				w.MaxPerNode = rapid.IntRange(1, 3).Draw(t, "max per node")
			case 1:
				w.ApartNode = []string{"w0", "w1"}
			case 2:
				w.ApartCluster = []string{"w1", "w2"}
			case 3:
				w.Dedicated = true
			case 4:
				w.ApartIn = []Apart{{Workloads: []string{"w0", "w1", "w2", "w3"}, Cluster: rapid.Bool().Draw(t, "whole cluster"), In: Place{Regions: []string{"r1"}}}}
			}
			loads = append(loads, w)
		}
		p, err := compile(nodes, loads, open, Options{})
		if err != nil {
			t.Fatal(err)
		}
		orders := packOrders
		if open {
			orders = needOrders
		}
		for i := range orders {
			o := &orders[i]
			bulk, single := p.run(o), p.oneByOne(o)
			if fmt.Sprint(bulk.left) != fmt.Sprint(single.left) || fmt.Sprint(bulk.machines()) != fmt.Sprint(single.machines()) {
				t.Fatalf("%s: %v left, %s\none by one %v left, %s", o.name, bulk.left, fmt.Sprintf("%q", fmt.Sprint(bulk.machines())), single.left, fmt.Sprintf("%q", fmt.Sprint(single.machines())))
			}
		}
	})
}
