package plan

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// shared is a pool of eight machines wanted by search and, half of the day, six by lab.
func shared() *Question {
	p := even("2026-06-01", 8)
	p.Series[0].Workspace = "search"
	lab := Series{Source: "lab", Workspace: "lab", From: p.Series[0].From, Milli: slices.Clone(p.Series[0].Milli)}
	for h := range lab.Milli {
		lab.Milli[h] = 0
		if h%24 < 12 {
			lab.Milli[h] = 6000
		}
	}
	p.Series = append(p.Series, lab)
	return over(1, p)
}

// Of the six GPUs that lab wants, four are planned for, and of the fourteen of both, eleven.
func TestHardQuotaBoundsDemand(t *testing.T) {
	for name, c := range map[string]struct {
		limits      []Limit
		peak, hours int64
	}{
		"none":           {nil, 14, 8*720 + 6*360},
		"lab":            {[]Limit{{ID: "q", Workspaces: []string{"lab"}, GPUs: dec("4")}}, 12, 8*720 + 4*360},
		"both":           {[]Limit{{ID: "q", Workspaces: []string{"root", "lab", "search"}, GPUs: dec("11")}}, 11, 8*720 + 3*360},
		"lab and both":   {[]Limit{{ID: "all", Workspaces: []string{"root", "lab", "search"}, GPUs: dec("11")}, {ID: "q", Workspaces: []string{"lab"}, GPUs: dec("2")}}, 10, 8*720 + 2*360},
		"region":         {[]Limit{{ID: "q", Workspaces: []string{"lab"}, Region: "r", Model: "K", GPUs: dec("0")}}, 8, 8 * 720},
		"another region": {[]Limit{{ID: "q", Workspaces: []string{"lab"}, Region: "s", GPUs: dec("0")}}, 14, 8*720 + 6*360},
		"another model":  {[]Limit{{ID: "q", Workspaces: []string{"lab"}, Model: "L", GPUs: dec("0")}}, 14, 8*720 + 6*360},
		"of no demand":   {[]Limit{{ID: "q", Workspaces: []string{"ops"}, GPUs: dec("0")}}, 14, 8*720 + 6*360},
		"wide":           {[]Limit{{ID: "q", Workspaces: []string{"lab"}, GPUs: dec("1e30")}}, 14, 8*720 + 6*360},
	} {
		q := shared()
		q.Limits = c.limits
		p := compute(t, q)
		pool := &p.Regions[0].Pools[0]
		if d := pool.Demand; int64(d.Peak) != c.peak || d.UnitHours != c.hours {
			t.Errorf("%s: peak %d in %d unit-hours, want %d in %d", name, d.Peak, d.UnitHours, c.peak, c.hours)
		}
		bound := slices.ContainsFunc(pool.Notes, func(n string) bool { return strings.Contains(n, "hard quota") })
		if bound != (c.peak < 14 || name == "wide") {
			t.Errorf("%s: notes %q", name, pool.Notes)
		}
		in, err := q.Instance()
		if err != nil {
			t.Fatal(err)
		}
		if m := int64(slices.Max(in.Demands[0].Hourly)); m != c.peak {
			t.Errorf("%s: the problem wants %d, the plan %d", name, m, c.peak)
		}
	}
}

// Demand that grows meets its quota later, and grows no further.
func TestHardQuotaBoundsGrowth(t *testing.T) {
	q := shared()
	q.Pools[0].Series = q.Pools[0].Series[:1]
	q.Assumptions.Months, q.Assumptions.MonthlyGrowth = 3, dec("0.25")
	q.Limits = []Limit{{ID: "q", Workspaces: []string{"search"}, GPUs: dec("12")}}
	in, err := q.Instance()
	if err != nil {
		t.Fatal(err)
	}
	// 8 grow to 10, 12.5 and 15.6.
	got := []int{in.Demands[0].Hourly[0], in.Demands[0].Hourly[30*24], in.Demands[0].Hourly[61*24]}
	if !slices.Equal(got, []int{10, 12, 12}) {
		t.Errorf("machines by month %v", got)
	}
}

// Machines of eight GPUs: a quota of 20 GPUs is two of them.
func TestHardQuotaOfMachines(t *testing.T) {
	q := shared()
	p := &q.Pools[0]
	p.Unit, p.Kind = "vm", "big"
	for i := range p.Offers {
		p.Offers[i].GPUCount, p.Offers[i].GPUModel = 8, "K"
	}
	q.Limits = []Limit{{ID: "q", Workspaces: []string{"lab"}, Model: "K", GPUs: dec("20")}}
	if d := compute(t, q).Regions[0].Pools[0].Demand; d.Peak != 10 {
		t.Errorf("%d machines at peak, want 8 and 2", d.Peak)
	}
}

// No machine of consumer cards is shared by workspaces. Five GPUs of search and, half of the day, two of
// lab are two machines of four and one more then. Of data-centre cards they are two all day.
func TestConsumerCardsHaveOneTenant(t *testing.T) {
	for _, c := range []struct {
		model       string
		limits      []Limit
		peak, hours int64
	}{
		{"RTX 4090", nil, 3, 2*720 + 360},
		{"RTX 4090", []Limit{{ID: "q", Workspaces: []string{"lab"}, GPUs: dec("0")}}, 2, 2 * 720},
		{"L40S", nil, 2, 2 * 720},
	} {
		q := shared()
		p := &q.Pools[0]
		p.Kind, p.NodeGPUs, p.Offers[0].GPUModel, p.Offers[0].GPUCount = c.model, 4, c.model, 4
		for h := range p.Series[0].Milli {
			p.Series[0].Milli[h] = 5000
			p.Series[1].Milli[h] = min(2000, p.Series[1].Milli[h])
		}
		q.Limits = c.limits
		plan := compute(t, q)
		pool := &plan.Regions[0].Pools[0]
		if d := pool.Demand; int64(d.Peak) != c.peak || d.UnitHours != c.hours {
			t.Errorf("%s: peak %d in %d unit-hours, want %d in %d", c.model, d.Peak, d.UnitHours, c.peak, c.hours)
		}
		said := slices.ContainsFunc(pool.Notes, func(n string) bool {
			return strings.HasPrefix(n, "RTX 4090 is a consumer card: no machine is shared by workspaces")
		})
		if said != (c.model == "RTX 4090") {
			t.Errorf("%s: notes %q", c.model, pool.Notes)
		}
		in, err := q.Instance()
		if err != nil {
			t.Fatal(err)
		}
		if m := int64(slices.Max(in.Demands[0].Hourly)); m != c.peak || int64(slices.Max(in.Demands[0].Past)) != c.peak {
			t.Errorf("%s: the problem wants %d, the plan %d", c.model, m, c.peak)
		}
	}
}

// everywhere is search and lab in two regions: eight GPUs of search in r and four in s, and in r also lab's six
// half of the day.
func everywhere() *Question {
	q := shared()
	s := even("2026-06-01", 4)
	s.Region, s.Offers[0].Market.Region, s.Series[0].Workspace = "s", "s", "search"
	q.Pools = append(q.Pools, s)
	return q
}

// A quota of several pools is shared in proportion to what they want. Of search's twelve GPUs nine are planned
// for: six in r and three in s.
func TestHardQuotaSpansPools(t *testing.T) {
	for name, c := range map[string]struct {
		limits []Limit
		both   [2]int64 // unit-hours in r and s
		peak   [2]int
	}{
		"none": {peak: [2]int{14, 4}, both: [2]int64{8*720 + 6*360, 4 * 720}},
		"search": {
			limits: []Limit{{ID: "q", Workspaces: []string{"search"}, GPUs: dec("9")}},
			peak:   [2]int{12, 3}, both: [2]int64{6*720 + 6*360, 3 * 720},
		},
		"wide": {
			limits: []Limit{{ID: "q", Workspaces: []string{"search"}, GPUs: dec("12")}},
			peak:   [2]int{14, 4}, both: [2]int64{8*720 + 6*360, 4 * 720},
		},
		"one model": {
			limits: []Limit{{ID: "q", Workspaces: []string{"search"}, Model: "K", GPUs: dec("0")}},
			peak:   [2]int{6, 0}, both: [2]int64{6 * 360, 0},
		},
		// At night twelve of twelve are planned for. By day r may have twelve of fourteen by itself: 12 × 12/16
		// and 12 × 4/16 are planned for.
		"both": {
			limits: []Limit{{ID: "q", Workspaces: []string{"root", "lab", "search"}, GPUs: dec("12")}},
			peak:   [2]int{9, 4}, both: [2]int64{8*360 + 9*360, 4*360 + 3*360},
		},
		// At night nine of search's twelve. By day r may have ten by itself, lab's first: 10 × 10/14 and 10 × 4/14 are
		// planned for, rounded up to whole machines.
		"both, and search": {
			limits: []Limit{
				{ID: "all", Workspaces: []string{"root", "lab", "search"}, GPUs: dec("10")},
				{ID: "q", Workspaces: []string{"search"}, GPUs: dec("9")},
			},
			peak: [2]int{8, 3}, both: [2]int64{6*360 + 8*360, 3*360 + 3*360},
		},
	} {
		q := everywhere()
		q.Limits = c.limits
		p := compute(t, q)
		for i := range 2 {
			pool := &p.Regions[i].Pools[0]
			if d := pool.Demand; d.Peak != c.peak[i] || d.UnitHours != c.both[i] {
				t.Errorf("%s: peak %d in %d unit-hours of %s, want %d in %d", name, d.Peak, d.UnitHours, p.Regions[i].Region,
					c.peak[i], c.both[i])
			}
			if said := notes(pool, "is for r K, s K together"); said != (c.limits != nil) {
				t.Errorf("%s: notes %q", name, pool.Notes)
			}
		}
		in, err := q.Instance()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if m := slices.Max(in.Demands[i].Hourly); m != c.peak[i] {
				t.Errorf("%s: the problem wants %d, the plan %d", name, m, c.peak[i])
			}
		}
		slices.Reverse(q.Pools)
		if again := compute(t, q); again.ID != p.ID {
			t.Errorf("%s: another order of pools is another plan", name)
		}
	}
}

// A plan of one region does not know what the quota's other regions take of it, and says so.
func TestHardQuotaBeyondThePlan(t *testing.T) {
	q := everywhere()
	q.Pools, q.Only = q.Pools[:1], []string{"r"}
	q.Limits = []Limit{{ID: "q", Workspaces: []string{"search"}, GPUs: dec("7")}}
	pool := &compute(t, q).Regions[0].Pools[0]
	if pool.Demand.Peak != 13 || !notes(pool, "also holds in regions that this plan leaves out") {
		t.Errorf("peak %d, notes %q", pool.Demand.Peak, pool.Notes)
	}
}

// Demand in machines of eight GPUs is rounded down to whole ones: 20 GPUs are shared as 10 and 10, of which
// each pool can have one machine.
func TestHardQuotaSpansMachines(t *testing.T) {
	q := everywhere()
	for i := range q.Pools {
		p := &q.Pools[i]
		p.Unit, p.Kind, p.Series = "vm", "big", p.Series[:1]
		for h := range p.Series[0].Milli {
			p.Series[0].Milli[h] = 2000
		}
		p.Offers[0].GPUCount = 8
	}
	q.Limits = []Limit{{ID: "q", Workspaces: []string{"search"}, GPUs: dec("20")}}
	for _, r := range compute(t, q).Regions {
		if d := r.Pools[0].Demand; d.Peak != 1 {
			t.Errorf("%s: %d machines, want 1", r.Region, d.Peak)
		}
	}
}

// A quota of consumer cards in two regions is shared workspace by workspace. By itself r may have eight GPUs of
// lab and four of search. With the eight of s they are 20, of which twelve are planned for: 4.8, 2.4 and 4.8.
func TestHardQuotaSpansTenants(t *testing.T) {
	q := everywhere()
	for i := range q.Pools {
		p := &q.Pools[i]
		p.Kind, p.NodeGPUs, p.Offers[0].GPUModel, p.Offers[0].GPUCount = "RTX 4090", 4, "RTX 4090", 4
		for _, s := range p.Series {
			for h := range s.Milli {
				s.Milli[h] = 8000
			}
		}
	}
	q.Limits = []Limit{{ID: "q", Workspaces: []string{"lab", "search"}, GPUs: dec("12")}}
	p := compute(t, q)
	for i, want := range []int{2 + 1, 2} {
		if d := p.Regions[i].Pools[0].Demand; d.Peak != want {
			t.Errorf("%s: %d machines, want %d", p.Regions[i].Region, d.Peak, want)
		}
	}
}

// Permission never costs demand: under a larger quota no pool is planned for less in any hour, and what pools
// hold together keeps each quota. Without growth a quota that is not reached changes nothing.
func TestLargerQuotasPlanForMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools, now := rapid.IntRange(2, 4).Draw(t, "pools"), []wants{}
		for range pools {
			now = append(now, wants{parts: rapid.SliceOfN(rapid.Int64Range(0, 50_000), 3, 3).Draw(t, "wants")})
		}
		draw := func(name string) together {
			x := together{most: uint64(rapid.IntRange(0, 200_000).Draw(t, name))}
			for at := range pools {
				parts := []int{0, 1, 2}[:rapid.IntRange(1, 3).Draw(t, "parts")]
				x.members = append(x.members, member{at, uint64(rapid.IntRange(1, 8).Draw(t, "gpus")), parts})
			}
			return x
		}
		limits := []together{draw("first"), draw("second")}
		of := func(limits []together) []wants {
			out := make([]wants, len(now))
			for i := range now {
				out[i].parts = slices.Clone(now[i].parts)
			}
			limit(out, limits)
			return out
		}
		held := func(l *together, now []wants) (sum uint64) {
			for _, m := range l.members {
				for _, j := range m.parts {
					sum += uint64(now[m.at].parts[j]) * m.gpus
				}
			}
			return sum
		}
		kept := of(limits)
		for i := range limits {
			if sum := held(&limits[i], kept); sum > limits[i].most {
				t.Fatalf("quota of %d holds %d", limits[i].most, sum)
			}
		}
		if held(&limits[0], now) <= limits[0].most && held(&limits[1], now) <= limits[1].most {
			for i := range now {
				if kept[i].bound || !slices.Equal(kept[i].parts, now[i].parts) {
					t.Fatalf("quotas that are not reached lower %v to %v", now[i].parts, kept[i].parts)
				}
			}
		}
		last := slices.Clone(limits)
		last[1].most += uint64(rapid.IntRange(0, 100_000).Draw(t, "more"))
		for i, x := range of(last) {
			for j := range x.parts {
				if x.parts[j] < kept[i].parts[j] {
					t.Fatalf("a larger quota lowers %d to %d", kept[i].parts[j], x.parts[j])
				}
			}
		}
	})
}

// A quota of all workspaces of two pools bounds their forecasts together, in every hour of every scenario. One
// of some of their workspaces bounds no forecast.
func TestHardQuotaSpansForecasts(t *testing.T) {
	most := func(names ...string) (most, hours int) {
		q := forecastQuestion()
		for i := range q.Pools {
			p := &q.Pools[i]
			p.Series = append(p.Series, p.Series[0])
			p.Series[0].Workspace, p.Series[1].Workspace, p.Series[1].Source = "search", "lab", "lab"
		}
		q.Limits = []Limit{{ID: "q", Workspaces: names, GPUs: dec("150")}}
		in, err := q.Instance()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range in.Scenarios {
			for h := range s.Hourly["east A100 80GB"] {
				gpus := 8 * (s.Hourly["east A100 80GB"][h] + s.Hourly["west A100 80GB"][h])
				most, hours = max(most, gpus), hours+gpus
			}
		}
		for _, r := range compute(t, q).Regions {
			if said := notes(&r.Pools[0], "each is planned for in proportion"); said != (len(names) == 3) {
				t.Errorf("quota of %v: notes %q", names, r.Pools[0].Notes)
			}
		}
		return most, hours
	}
	peak, hours := most("root", "lab", "search")
	free, more := most("search")
	if peak > 150+2*7 || free <= 200 || hours >= more { // each pool in whole machines of eight
		t.Errorf("%d GPUs at most in %d hours, without a quota of all %d in %d", peak, hours, free, more)
	}
}
