package plan

import (
	"slices"
	"strings"
	"testing"
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
