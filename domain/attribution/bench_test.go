package attribution_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// fleetOf is a month of a fleet and its bill, generated while it is read: its usage is not stored.
// Nine of ten machines are billed by name every few hours, the others through two pools by the
// hour. Support, tax and credits are added.
type fleetOf struct {
	machines, lines, workspaces int
	nodes                       []attribution.Node
}

const monthHours = 744

func newFleetOf(machines, lines int) *fleetOf {
	f := &fleetOf{machines: machines, lines: lines, workspaces: 1000}
	for i := range machines {
		n := attribution.Node{
			Cluster: fmt.Sprintf("cluster-%02d", i*20/machines), Node: fmt.Sprintf("node-%04d", i), Account: "123456789012",
			Region: fmt.Sprintf("region-%d", i%2), SKU: "gpu.8x", Billing: domain.BillingOnDemand, GPUs: 8, CPUMilli: 192_000, MemoryMiB: 2 << 20, Registered: true, Service: month,
		}
		if i/2%10 != 0 {
			n.Resource = fmt.Sprintf("i-%08x", i)
		}
		f.nodes = append(f.nodes, n)
	}
	return f
}

func (f *fleetOf) usage(spans []domain.Interval, _ attribution.Cuts, yield func(*attribution.NodeHour) error) error {
	names := make([]string, f.workspaces)
	for i := range names {
		names[i] = fmt.Sprintf("workspace-%03d", i)
	}
	parts := make([]attribution.Part, 0, 8)
	for n := range f.nodes {
		for h := range monthHours {
			at := start + domain.Instant(h)*domain.Hour
			if at < spans[0].From || at >= spans[len(spans)-1].To {
				continue
			}
			// Two or three holders of whole GPUs that change every few hours.
			parts = parts[:0]
			left := 8 * hour
			for k := 0; k < 2+(n+h/5)%2; k++ {
				g := 3 * hour
				if k == 2 {
					g = hour
				}
				w := (n*7 + h/5*13 + k*101) % f.workspaces
				parts = append(parts, attribution.Part{Component: attribution.Allocated, Workspace: names[w], Deployment: "train", Unit: names[w],
					GPUMs: g, UsefulMs: g * 7 / 10, KnownMs: g, HeldMs: hour, CPUMilli: 24_000, MemoryMiB: 1 << 18})
				left -= g
			}
			if n%50 == h%50 {
				parts = append(parts, attribution.Part{Component: attribution.Failed, GPUMs: left})
			} else if left > 0 {
				parts = append(parts, attribution.Part{Component: attribution.Idle, GPUMs: left})
			}
			if err := yield(&attribution.NodeHour{Node: n, Hour: at, Owner: "workspace-000", Parts: parts}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fleetOf) eachLine(yield func(*attribution.Line) error) error {
	price, _ := attribution.ParseAmount("27.123456789")
	line := attribution.Line{Issuer: "Cloud", Account: "123456789012", Currency: "USD", BillingPeriod: month, Category: "Usage", Invoice: "INV-1",
		Class: attribution.OnDemand, SKU: "gpu.8x"}
	n := 0
	give := func(resource, region string, machines, from, to int) error {
		l := line
		l.ID = fmt.Sprintf("line-%08d", n)
		n++
		l.ChargePeriod = domain.Interval{From: start + domain.Instant(from)*domain.Hour, To: start + domain.Instant(to)*domain.Hour}
		l.Resource, l.Region = resource, region
		l.NodeMs = int64(machines*(to-from)) * hour
		for range machines * (to - from) {
			l.Billed = l.Billed.Add(price)
		}
		l.Effective = l.Billed
		return yield(&l)
	}
	pooled := map[string]int{}
	named := 0
	for _, x := range f.nodes {
		if x.Resource == "" {
			pooled[x.Region]++
		} else {
			named++
		}
	}
	left := f.lines - len(pooled)*monthHours - 3
	for _, x := range f.nodes {
		if x.Resource == "" {
			continue
		}
		of := left / named // spread the remaining lines over the remaining machines
		named, left = named-1, left-of
		for k := range of {
			if err := give(x.Resource, x.Region, 1, k*monthHours/of, (k+1)*monthHours/of); err != nil {
				return err
			}
		}
	}
	for region := range 2 {
		name := fmt.Sprintf("region-%d", region)
		for h := 0; h < monthHours && pooled[name] > 0; h++ {
			if err := give("", name, pooled[name], h, h+1); err != nil {
				return err
			}
		}
	}
	for k, c := range []attribution.Class{attribution.Shared, attribution.Tax, attribution.Credit} {
		l := line
		l.ID, l.Class, l.Category, l.ChargePeriod = fmt.Sprintf("other-%d", k), c, []string{"Usage", "Tax", "Credit"}[k], month
		l.Billed = attribution.Whole([]int64{10_000, 1_000_000, -5_000}[k])
		l.Effective = l.Billed
		if err := yield(&l); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleetOf) input() *attribution.Input {
	return &attribution.Input{Lines: f.eachLine, Nodes: f.nodes, Usage: f.usage}
}

// BenchmarkRun divides a month of 10,000 GPUs of 1,000 workspaces, billed in 200,000 lines, and
// half of that: time is linear in it. It samples the heap every few thousand allocations.
func BenchmarkRun(b *testing.B) {
	for _, size := range []struct{ machines, lines int }{{625, 100_000}, {1250, 200_000}} {
		b.Run(fmt.Sprintf("GPUs=%d/lines=%d", size.machines*8, size.lines), func(b *testing.B) {
			f := newFleetOf(size.machines, size.lines)
			debug.FreeOSMemory()
			var peak uint64
			allocations := 0
			for b.Loop() {
				allocations = 0
				_, err := attribution.Run(f.input(), func(*attribution.Allocation) error {
					if allocations++; allocations%100_000 == 0 {
						var m runtime.MemStats
						runtime.ReadMemStats(&m)
						peak = max(peak, m.HeapInuse)
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(allocations)*float64(b.N)/b.Elapsed().Seconds(), "allocations/s")
			b.ReportMetric(float64(allocations), "allocations")
			b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
		})
	}
}
