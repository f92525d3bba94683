package packing

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawPricing draws a machine and items small enough to try everything.
func drawPricing(t *rapid.T) *pricing {
	q := &pricing{
		cpu: rapid.Int64Range(0, 12).Draw(t, "CPU"), mem: rapid.Int64Range(0, 12).Draw(t, "memory"),
		gpus: rapid.IntRange(0, 5).Draw(t, "GPUs"), work: 1 << 30, threshold: rapid.Int64Range(0, 40).Draw(t, "threshold"),
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "items") {
		it := item{demand: i, price: rapid.Int64Range(0, 20).Draw(t, "price"),
			cpu: rapid.Int64Range(0, 8).Draw(t, "CPU"), mem: rapid.Int64Range(0, 8).Draw(t, "memory"), most: 50}
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			it.gpus = rapid.IntRange(1, 5).Draw(t, "GPUs")
		case 1, 2:
			it.part = uint16(rapid.SampledFrom([]int{250, 300, 340, 500, 510, 700}).Draw(t, "part"))
		case 3:
			it.cpu = max(it.cpu, 2) // without GPUs, few enough fit
		case 4:
			it.gpus = 1
		}
		q.items = append(q.items, it)
	}
	return q
}

// dearest tries every set of items.
func dearest(q *pricing) int64 {
	free := make([]uint16, q.gpus)
	for i := range free {
		free[i] = 1000
	}
	var try func(k int, cpu, mem int64, free []uint16) int64
	try = func(k int, cpu, mem int64, free []uint16) int64 {
		if k == len(q.items) {
			return 0
		}
		it := q.items[k]
		best := try(k+1, cpu, mem, free)
		if cpu < it.cpu || mem < it.mem || it.price == 0 {
			return best
		}
		if it.part == 0 {
			whole := 0
			rest := slices.Clone(free)
			for i, f := range rest {
				if f == 1000 && whole < it.gpus {
					rest[i] = 0
					whole++
				}
			}
			if whole == it.gpus {
				best = max(best, it.price+try(k, cpu-it.cpu, mem-it.mem, rest))
			}
			return best
		}
		for i, f := range free {
			if f >= it.part && slices.Index(free, f) == i {
				rest := slices.Clone(free)
				rest[i] -= it.part
				best = max(best, it.price+try(k, cpu-it.cpu, mem-it.mem, rest))
			}
		}
		return best
	}
	return try(0, q.cpu, q.mem, free)
}

// Pricing finds the same as trying everything, and the returned sets fit and have the stated value.
func TestPricingIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := drawPricing(t)
		for _, it := range q.items {
			if it.cpu+it.mem+int64(it.gpus)+int64(it.part) == 0 || it.gpus == 0 && it.part == 0 && it.cpu == 0 {
				t.Skip("takes nothing, or too many fit to try everything")
			}
		}
		threshold := q.threshold
		want := max(threshold, dearest(q))
		bound, sets := q.solve(1 << 20)
		if bound != want {
			t.Fatalf("%+v: %d, want %d", q.items, bound, want)
		}
		for i, s := range sets {
			var cpu, mem, val int64
			gpus := 0
			for _, fill := range s.fills {
				part := 0
				for _, k := range fill {
					it := q.items[k.item]
					cpu, mem, val = cpu+it.cpu, mem+it.mem, val+it.price
					part += int(it.part)
					gpus += it.gpus
				}
				if part > 0 {
					gpus++
				}
				if part > 1000 || part == 0 && len(fill) != 1 {
					t.Fatalf("set %d fills a GPU with %v", i, fill)
				}
			}
			if cpu > q.cpu || mem > q.mem || gpus > q.gpus || val != s.val || val <= threshold {
				t.Fatalf("set %d %+v takes %d, %d and %d GPUs, and is worth %d", i, s, cpu, mem, gpus, val)
			}
		}
		if want > threshold && sets[0].val != want {
			t.Fatalf("the best set is worth %d", sets[0].val)
		}
	})
}

// Cut short, or with the largest numbers, the bound is still valid.
func TestPricingCutShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := drawPricing(t)
		scale := rapid.SampledFrom([]int64{1, 1 << 20, 1 << 32}).Draw(t, "scale")
		money := rapid.SampledFrom([]int64{1, 1 << 29}).Draw(t, "price scale")
		want := dearest(q) * money
		for i := range q.items {
			it := &q.items[i]
			if it.cpu+it.mem+int64(it.gpus)+int64(it.part) == 0 || it.gpus == 0 && it.part == 0 && it.cpu == 0 {
				t.Skip("takes nothing, or too many fit to try everything")
			}
			it.cpu, it.mem, it.price = it.cpu*(scale/16+1), it.mem*(scale/16+1), it.price*money
		}
		q.cpu, q.mem, q.threshold = q.cpu*(scale/16+1), q.mem*(scale/16+1), q.threshold*money
		q.work = rapid.SampledFrom([]int64{0, 10, 100, 1 << 30}).Draw(t, "work")
		if bound, _ := q.solve(5); bound < want {
			t.Fatalf("%+v on %d, %d, %d GPUs: at most %d, but %d is there", q.items, q.cpu, q.mem, q.gpus, bound, want)
		}
	})
}
