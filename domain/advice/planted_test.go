package advice

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// planted is a fleet with figures that are noise around what is usual, with decoys near the thresholds, and with causes that
// were put there: of each rule in about a third of the fleets.
type planted struct {
	f     *Figures
	r     *rand.Rand
	truth map[string]bool // rule and subject
	some  bool            // false: a clean fleet
}

// cause reports whether a cause is planted now, and notes it.
func (p *planted) cause(rule RuleID, s Subject) bool {
	if !p.some || p.r.IntN(3) > 0 {
		return false
	}
	p.truth[string(rule)+" "+s.String()] = true
	return true
}

// pick returns a value around planted, decoy or usual figures, each with a deviation of at most 3%.
func (p *planted) pick(is bool, planted, decoy, usual float64) float64 {
	of := usual
	if is {
		of = planted
	} else if p.r.IntN(4) == 0 {
		of = decoy
	}
	return of * (1 + 0.03*(2*p.r.Float64()-1))
}

// poisson draws a count.
func (p *planted) poisson(mean float64) (n int64) {
	for t := p.r.ExpFloat64(); t < mean; t += p.r.ExpFloat64() {
		n++
	}
	return n
}

func dec(f float64) decimal.Decimal { return decimal.New(int64(f*1e6), -6) }

func plantedFleet(seed uint64, some bool) *planted {
	p := &planted{f: &Figures{At: tick, Position: "p"}, r: rand.New(rand.NewPCG(seed, 23)), truth: map[string]bool{}, some: some}
	f := p.f
	usd := func(x float64) domain.Money { return domain.Money{Amount: dec(x), Currency: "USD"} }
	week := domain.Interval{From: tick - 7*domain.Day, To: tick}
	for i := range 3 + p.r.IntN(4) {
		id := fmt.Sprintf("c%d", i)
		f.Clusters = append(f.Clusters, Cluster{ID: id, Workspace: "w" + id, Provider: fmt.Sprintf("p%d", i%2), Region: fmt.Sprintf("r%d", i)})
		f.Prices = append(f.Prices, Price{Cluster: id, GPUModel: "H100", PerGPUHour: usd(2)})
		s := Subject{Provider: fmt.Sprintf("p%d", i%2), Region: fmt.Sprintf("r%d", i), Cluster: id}
		for _, of := range []struct {
			rule   RuleID
			window domain.Interval
		}{{UtilizationDay, day}, {UtilizationWeek, week}} {
			ms := 64 * int64(of.window.Length()/domain.Hour) * gpuHour
			activity := p.pick(p.cause(of.rule, s), 0.30, 0.50, 0.62)
			known := int64(float64(ms) * (0.9 + 0.1*p.r.Float64()))
			f.Use = append(f.Use, Use{
				Window: of.window, Cluster: id, GPUModel: "H100", Service: ms, Measured: known, Active: int64(float64(known) * activity * 1000),
			})
		}
		low := p.pick(p.cause(TierMismatch, s), 0.30, 0.125, 0.06)
		f.Devices = append(f.Devices, Devices{Window: day, Cluster: id, GPUModel: "H100", All: 400, Known: 400, Low: int(400 * low), LowMs: gpuHour})
		// Nodes, their failures, and the cluster's.
		var sum int64
		const nodes, rate = 8, 2e-5
		for n := range nodes {
			node := fmt.Sprintf("n%d", n)
			f.Nodes = append(f.Nodes, Node{Cluster: id, Node: node, GPUs: 8})
			at := s
			at.Node = node
			count := p.poisson(8 * 168 * rate)
			if n == 0 && p.cause(Failures, at) {
				count = 5 + p.poisson(1)
			} else {
				sum += count
			}
			f.Failed = append(f.Failed, Failed{
				Window: week, Subject: Subject{Cluster: id, Node: node}, Level: "node", GPUHours: decimal.NewFromInt(8 * 168), Interruptions: count,
				PriorShape: 4, PriorPerGPUHour: dec(rate),
			})
		}
		f.Failed = append(f.Failed, Failed{
			Window: week, Subject: Subject{Cluster: id}, Level: "cluster", GPUHours: decimal.NewFromInt(8 * 8 * 168), Interruptions: sum,
			PriorShape: 4, PriorPerGPUHour: dec(rate),
		})
		// Requests of two models, and the servers of one.
		kv := Subject{Provider: s.Provider, Region: s.Region, Cluster: id, Model: "m0", Class: "serving"}
		server := Served{
			Window: domain.Interval{From: tick - domain.Hour, To: tick}, Cluster: id, Model: "m0", Class: "serving", Requests: 5000,
			KVCache:       int64(1000 * min(1, p.pick(p.cause(KVCache, kv), 0.96, 0.86, 0.6))),
			WaitP95:       uint64(p.pick(p.cause(QueueWait, kv), 3e6, 8.5e5, 2e5)),
			FirstTokenP95: uint64(p.pick(p.cause(FirstToken, kv), 5e6, 1.7e6, 6e5)),
		}
		f.Servers = append(f.Servers, server)
		// Weeks: busy by day, and at night never less than a fifth; a decoy is idle for three hours.
		w := Week{Window: domain.Interval{From: tick - 28*domain.Day, To: tick}, Cluster: id, GPUModel: "H100"}
		idle := s
		idle.GPUModel = "H100"
		hours := int(p.pick(p.cause(IdleWindow, idle), 7, 3, 0))
		for h := range 4 * 168 {
			unused := int64(64 * (0.2 + 0.5*p.r.Float64()))
			if h%24 < hours {
				unused = 64 - p.r.Int64N(3)
			}
			w.Service, w.Unused = append(w.Service, 64*gpuHour), append(w.Unused, unused*gpuHour)
		}
		f.Weeks = append(f.Weeks, w)
		// Deployments and what is not known.
		d := Sighting{Window: server.Window, Workspace: "w" + id, Cluster: id, Model: "m", Deployment: "x", Known: true}
		at := Subject{Workspace: d.Workspace, Provider: s.Provider, Region: s.Region, Cluster: id, Model: "m", Deployment: "x"}
		if p.cause(Shadow, at) {
			d.Shadow = true
			f.Deployments = append(f.Deployments, d)
		} else if p.cause(Unseen, at) {
			f.Deployments = append(f.Deployments, d)
		}
		if gap := (Subject{Provider: s.Provider, Region: s.Region, Cluster: id, Component: "samples_dropped"}); p.cause(Evidence, gap) {
			f.Gaps = append(f.Gaps, Gap{Kind: "samples_dropped", Subject: Subject{Cluster: id}, Count: 3, Window: day})
		}
		if fit := (Subject{Workspace: "w" + id, Provider: s.Provider, Region: s.Region, Cluster: id, GPUModel: "H100", Deployment: "small"}); p.cause(Oversized, fit) {
			f.Holdings = append(f.Holdings, Fit{
				Window: week, Workspace: "w" + id, Cluster: id, Deployment: "small", GPUModel: "H100", To: "1g.10gb", PeakMiB: 8000, GPUMs: 168 * gpuHour,
				SavedMs: 147 * gpuHour, Coverage: 950,
			})
		}
		own := Subject{Region: s.Region, GPUModel: "H100"}
		f.Owning = append(f.Owning, Owning{
			Window: domain.Interval{From: tick - 30*domain.Day, To: tick}, Region: s.Region, GPUModel: "H100", BreakEven: 550, Coverage: 1000, Rented: gpuHour,
			Used: int64(1000 * p.pick(p.cause(OwnInstead, own), 0.8, 0.53, 0.4)), RentPerHour: usd(3), OwnPerHour: usd(1.6),
		})
		// Limits and commitments of its workspace.
		limit := func(rule RuleID) {
			is := p.cause(rule, Subject{Workspace: "w" + id, Name: "l"})
			f.Limits = append(f.Limits, Limit{
				Rule: rule, Workspace: "w" + id, Name: "l", Window: day, Unit: "u", Used: dec(p.pick(is, 95, 77, 40)), Limit: decimal.NewFromInt(100),
			})
		}
		limit(Quota)
		limit(Budget)
		k := Commitment{Workspace: "w" + id, Commitment: "k" + id, Window: week}
		about := Subject{Workspace: "w" + id, Name: "k" + id}
		unused := p.pick(p.cause(UnusedCommitment, about), 0.2, 0.047, 0.01)
		k.Unused, k.Used = usd(1000*unused), usd(1000*(1-unused))
		k.Ends = tick + domain.Instant(24*p.pick(p.cause(CommitmentEnds, about), 40, 94, 300))*domain.Hour
		k.NoticeBy = tick + domain.Instant(24*p.pick(p.cause(NoticeDue, about), 20, 94, 200))*domain.Hour
		f.Commitments = append(f.Commitments, k)
		// Cost of four weeks and a day, with a weekly course, and of all regions together.
		c := Course{Workspace: "w" + id, Component: "allocated", Region: s.Region, Currency: "USD", Last: day}
		jump := 1.0
		if p.cause(CostAnomaly, Subject{Workspace: c.Workspace, Component: c.Component, Region: c.Region, Name: "USD"}) {
			jump = 1.6
		} else if p.r.IntN(4) == 0 {
			jump = 1.05
		}
		for n := range courseDays + 1 {
			x := 1000 * (1 + 0.2*float64(n%7)/7) * (1 + 0.04*p.r.NormFloat64())
			if n == courseDays {
				x *= jump
			}
			c.Days = append(c.Days, dec(x))
		}
		f.Courses = append(f.Courses, c)
		spot := Spot{Window: week, Provider: s.Provider, Region: s.Region, GPUModel: "H100", UnitHours: decimal.NewFromInt(3360), AssumedPerHour: dec(0.001), Plan: "plan-x"}
		if p.cause(SpotLosses, Subject{Provider: s.Provider, Region: s.Region, GPUModel: "H100"}) {
			spot.Interrupted = p.poisson(20)
		} else {
			spot.Interrupted = p.poisson(3.36)
		}
		f.Spot = append(f.Spot, spot)
	}
	// A useful GPU-hour at six providers: one may be dear.
	dear := -1
	for i := range 6 {
		if dear < 0 && p.cause(ProviderCost, Subject{Provider: fmt.Sprintf("p%d", i), GPUModel: "H100", Class: "training"}) {
			dear = i
		}
	}
	for i := range 6 {
		f.ProviderCosts = append(f.ProviderCosts, ProviderTime{
			Month: week, Provider: fmt.Sprintf("p%d", i), GPUModel: "H100", Class: "training", Useful: 1000 * gpuHour, Coverage: 980,
			Cost: usd(1000 * p.pick(i == dear, 3.2, 2.15, 2)),
		})
	}
	slow := p.cause(Routing, Subject{Model: "m1", Class: "serving"})
	for i, c := range f.Clusters {
		x := 1.0
		if slow && i == 0 {
			x = 3
		}
		f.FirstTokens = append(f.FirstTokens, Served{
			Window: day, Cluster: c.ID, Model: "m1", Class: "serving", Requests: 10_000, FirstTokenP50: uint64(x * p.pick(false, 0, 2.3e5, 2e5)),
			FirstTokenP95: uint64(x * p.pick(false, 0, 7e5, 6e5)),
		})
	}
	return p
}

// Precision and recall of each rule, over fleets whose causes are known.
func TestPlantedCauses(t *testing.T) {
	type count struct{ right, wrong, missed int }
	counts := map[RuleID]*count{}
	for _, r := range Rules() {
		counts[r.ID] = &count{}
	}
	for seed := range uint64(300) {
		p := plantedFleet(seed, true)
		found := map[string]bool{}
		for _, x := range Evaluate(p.f, nil) {
			if x.Status == Firing {
				found[string(x.Rule)+" "+x.Subject.String()] = true
			}
		}
		of := func(key string) *count { rule, _, _ := strings.Cut(key, " "); return counts[RuleID(rule)] }
		for key := range p.truth {
			if found[key] {
				of(key).right++
			} else {
				of(key).missed++
			}
		}
		for key := range found {
			if !p.truth[key] {
				of(key).wrong++
			}
		}
	}
	for _, r := range Rules() {
		c := counts[r.ID]
		t.Logf("%-20s %4d right, %d wrong, %d missed", r.ID, c.right, c.wrong, c.missed)
		if c.right == 0 || c.wrong*20 > c.right+c.wrong || c.missed*20 > c.right+c.missed {
			t.Errorf("%s: %d right, %d wrong, %d missed; want precision and recall of 0.95", r.ID, c.right, c.wrong, c.missed)
		}
	}
}

// Fleets in which nothing was planted have no finding, however near the thresholds some of their figures are.
func TestCleanFleetsHaveNoFinding(t *testing.T) {
	var disturbed []string
	for seed := range uint64(100) {
		p := plantedFleet(seed+10_000, false)
		for _, x := range Evaluate(p.f, nil) {
			if x.Status == Firing {
				disturbed = append(disturbed, fmt.Sprintf("%d: %s %s %s of %s", seed, x.Rule, x.Subject, x.Value, x.Threshold))
			}
		}
	}
	fleets := map[string]bool{}
	for _, d := range disturbed {
		seed, _, _ := strings.Cut(d, ":")
		fleets[seed] = true
	}
	t.Logf("%d of 100 clean fleets have a finding", len(fleets))
	if len(fleets) > 1 {
		slices.Sort(disturbed)
		t.Errorf("%d of 100 clean fleets have a finding:\n%s", len(fleets), strings.Join(disturbed, "\n"))
	}
}
