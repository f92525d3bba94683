package packing_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"quartermaster/domain/packing"
)

// firstFitByGPU does what cluster autoscalers do: the replicas with the most GPUs first, then those
// with the most CPU, each on the first machine and GPU that takes it.
func firstFitByGPU(kind packing.Node, loads []packing.Workload) int {
	loads = slices.Clone(loads)
	slices.SortStableFunc(loads, func(a, b packing.Workload) int {
		return cmp.Or(cmp.Compare(b.GPUMilli, a.GPUMilli), cmp.Compare(b.CPUMilli, a.CPUMilli), cmp.Compare(b.MemoryMiB, a.MemoryMiB))
	})
	var all []*box
	fits := func(b *box, w *packing.Workload) []int {
		if b.cpu < w.CPUMilli || b.mem < w.MemoryMiB {
			return nil
		}
		each, gpus := min(w.GPUMilli, 1000), []int{}
		for i, f := range b.gpu {
			if w.GPUMilli > 0 && f >= each && int64(len(gpus))*each < w.GPUMilli {
				gpus = append(gpus, i)
			}
		}
		if int64(len(gpus))*each < w.GPUMilli {
			return nil
		}
		return gpus
	}
	for i := range loads {
		w := &loads[i]
		from := 0 // equal replicas need not try full machines again
		for range w.Replicas {
			for ; ; from++ {
				if from == len(all) {
					all = append(all, newBox(&kind))
				}
				if gpus := fits(all[from], w); gpus != nil {
					if err := all[from].put(w, gpus); err != nil {
						panic(err)
					}
					break
				}
			}
		}
	}
	return len(all)
}

// mix generates workloads in the proportions of the openb trace (Weng et al., ATC 2023): of the
// pods 13% need no GPU, 38% a part of one, 48% one and 1% two, four or eight; CPU and memory per
// GPU vary widely.
func mix(pods int) []packing.Workload {
	var loads []packing.Workload
	add := func(permille int, milli, cpu, mem int64) {
		loads = append(loads, packing.Workload{
			ID: fmt.Sprintf("w%03d", len(loads)), Replicas: max(1, pods*permille/10_000), GPUMilli: milli, CPUMilli: cpu, MemoryMiB: mem,
		})
	}
	state := uint64(1) // any fixed sequence
	next := func(n int64) int64 {
		state = state*6364136223846793005 + 1442695040888963407
		return int64(state>>33) % n
	}
	for range 20 {
		add(67, 0, 1000+500*next(40), 2048+512*next(100)) // 13.4% without
	}
	for range 42 {
		add(90, 100+10*next(80), 1000+500*next(24), 4096+512*next(90)) // 37.8% a part
	}
	for range 53 {
		add(90, 1000, 2000+500*next(30), 4096+512*next(110)) // 47.7% one
	}
	for _, n := range []int64{2, 2, 4, 4, 8, 8, 8, 8, 8} {
		add(12, 1000*n, 4000*n+500*next(60), 8192*n+512*next(200)) // 1.1% more
	}
	return loads
}

// BenchmarkPack packs a mix like openb's onto machines of one kind and onto a
// fleet of several, as large and ten times as large. "of-first-fit" is the
// machines used over those of first fit decreasing by GPU, "of-bound" over the
// proven bound.
func BenchmarkPack(b *testing.B) {
	kind := packing.Node{ID: "kind", GPUs: 8, CPUMilli: 96_000, MemoryMiB: 384 << 10}
	for _, pods := range []int{8_000, 80_000} {
		loads := mix(pods)
		b.Run(fmt.Sprintf("need/%d", pods), func(b *testing.B) {
			var r *packing.Result
			var err error
			for b.Loop() {
				if r, err = packing.Need([]packing.Node{kind}, loads, packing.Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(r.NodesUsed)/float64(firstFitByGPU(kind, loads)), "of-first-fit")
			b.ReportMetric(float64(r.NodesUsed)/float64(r.LowerBound), "of-bound")
		})
		b.Run(fmt.Sprintf("first-fit/%d", pods), func(b *testing.B) {
			for b.Loop() {
				firstFitByGPU(kind, loads)
			}
		})
		b.Run(fmt.Sprintf("fleet/%d", pods), func(b *testing.B) {
			var nodes []packing.Node
			for i, n := range []packing.Node{
				{Count: 6 * pods / 100, Model: "a", GPUs: 8, CPUMilli: 96_000, MemoryMiB: 384 << 10},
				{Count: 4 * pods / 100, Model: "b", GPUs: 2, CPUMilli: 104_000, MemoryMiB: 512 << 10},
				{Count: pods / 100, Model: "c", GPUs: 8, CPUMilli: 128_000, MemoryMiB: 768 << 10},
				{Count: pods / 100, Model: "d", GPUs: 4, CPUMilli: 32_000, MemoryMiB: 128 << 10},
			} {
				n.ID = fmt.Sprint("kind", i)
				nodes = append(nodes, n)
			}
			var r *packing.Result
			var err error
			for b.Loop() {
				if r, err = packing.Pack(nodes, loads, packing.Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(100*float64(r.GPUMilliPlaced)/float64(r.GPUMilliTotal), "%allocated")
		})
	}
}

// BenchmarkNeed packs two traces of openb onto standard machines, greedily and by
// column generation; "of-first-fit" is over first fit decreasing by GPU. The time
// of the solver's first start, which may compile it, is left out.
func BenchmarkNeed(b *testing.B) {
	for _, trace := range []string{"default", "gpushare100"} {
		for _, columns := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/columns=%v", trace, columns), func(b *testing.B) {
				pods := forStandard(b, trace)
				opts := packing.Options{}
				if columns {
					opts.LP = lp(b)
					if _, err := packing.Need(standard, pods[:1], opts); err != nil {
						b.Fatal(err)
					}
				}
				var r *packing.Result
				var err error
				for b.Loop() {
					if r, err = packing.Need(standard, pods, opts); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(r.NodesUsed), "machines")
				b.ReportMetric(float64(r.LowerBound), "bound")
				b.ReportMetric(float64(r.NodesUsed)/float64(firstFitByGPU(standard[0], pods)), "of-first-fit")
			})
		}
	}
}
