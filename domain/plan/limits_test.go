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
