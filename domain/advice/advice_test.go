package advice

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"
)

var (
	tick = domain.Instant(1_780_315_200e9) // 2026-06-01T12:00:00Z
	day  = domain.Interval{From: tick - domain.Day, To: tick}
)

const gpuHour = int64(3_600_000)

// fleet is figures of clusters of four nodes with eight GPUs each, all used at an activity in per mille.
func fleet(clusters, activity int) *Figures {
	f := &Figures{At: tick, Position: "p"}
	for i := range clusters {
		id := fmt.Sprintf("c%02d", i)
		f.Clusters = append(f.Clusters, Cluster{ID: id, Workspace: "w" + id, Provider: "prov", Region: fmt.Sprintf("r%d", i%2)})
		for n := range 4 {
			f.Nodes = append(f.Nodes, Node{Cluster: id, Node: fmt.Sprintf("n%d", n), GPUs: 8})
		}
		f.Prices = append(f.Prices, Price{Cluster: id, GPUModel: "H100", PerGPUHour: domain.Money{Amount: decimal.NewFromInt(2), Currency: "USD"}})
		for _, window := range []domain.Interval{day, {From: tick - 7*domain.Day, To: tick}} {
			ms := 32 * int64(window.Length()/domain.Hour) * gpuHour
			f.Use = append(f.Use, Use{Window: window, Cluster: id, GPUModel: "H100", Service: ms, Measured: ms, Active: ms * int64(activity)})
		}
	}
	return f
}

func rulesOf(all []Finding) (rules []string) {
	for _, x := range all {
		rules = append(rules, string(x.Rule)+" "+string(x.Status)+" "+x.Subject.String())
	}
	return rules
}

func want(t *testing.T, got []string, lines ...string) {
	t.Helper()
	if !slices.Equal(got, lines) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
}

func TestUtilization(t *testing.T) {
	f := fleet(3, 600)
	want(t, rulesOf(Evaluate(f, nil)))
	// One cluster at 30%: a third of its price is more than the work needs at 45%.
	f.Use[0].Active /= 2
	found := Evaluate(f, nil)
	want(t, rulesOf(found), "utilization-day firing provider=prov region=r0 cluster=c00")
	if m := found[0].PerMonth; m == nil || m.Amount.Round(6).String() != decimal.NewFromInt(32*2*730).DivRound(decimal.NewFromInt(3), 6).String() {
		t.Errorf("it costs %v a month, want a third of 32 GPUs × 2 USD × 730 h", m)
	}
	if !strings.Contains(found[0].Question.Command, "usage --by cluster --cluster c00 --from 2026-05-31T12:00:00Z") {
		t.Errorf("its question is %q", found[0].Question.Command)
	}
	// A GPU without a holder does nothing, and a GPU that nobody observes is not known.
	f = fleet(1, 600)
	f.Use[0].Measured, f.Use[0].Active, f.Use[0].Idle = f.Use[0].Measured/2, f.Use[0].Active/2, f.Use[0].Service/2
	want(t, rulesOf(Evaluate(f, nil)), "utilization-day firing provider=prov region=r0 cluster=c00")
	f.Use[0].Idle /= 2
	want(t, rulesOf(Evaluate(f, nil)), "utilization-day unknown provider=prov region=r0 cluster=c00")
	f.Use[0].Idle, f.Use[0].Measured, f.Use[0].Active = 0, 0, 0
	want(t, rulesOf(Evaluate(f, nil)), "utilization-day unknown provider=prov region=r0 cluster=c00")
	// All a little below: every cluster, and one case of the fleet.
	f = fleet(4, 440)
	found = Evaluate(f, nil)
	if len(found) != 8 {
		t.Errorf("%d findings, want one for each of four clusters and two windows: %v", len(found), rulesOf(found))
	}
	if cases := Correlate(f, found); len(cases) != 1 || cases[0].Subject != (Subject{}) || cases[0].Parts != 4 || cases[0].Workspace != Platform {
		t.Errorf("cases %+v, want one of the fleet", cases)
	}
	// Just above the threshold holds an incident, and does not open one.
	want(t, rulesOf(Evaluate(fleet(1, 455), nil)),
		"utilization-day holding provider=prov region=r0 cluster=c00", "utilization-week holding provider=prov region=r0 cluster=c00")
}

// What no cluster shows: each cluster may be less busy than the fleet.
func TestFleetIsBelowWhereNoClusterIs(t *testing.T) {
	f := fleet(3, 440)
	var overrides []Override
	for _, c := range f.Clusters {
		overrides = append(overrides, Override{Rule: UtilizationDay, Cluster: c.ID, Value: ratio(400), SetBy: "platform/" + c.ID})
	}
	th, err := NewThresholds(overrides)
	if err != nil {
		t.Fatal(err)
	}
	found := slices.DeleteFunc(Evaluate(f, th), func(x Finding) bool { return x.Rule != UtilizationDay })
	want(t, rulesOf(found), "utilization-day firing fleet")
	if found[0].SetBy != "default" || found[0].PerMonth == nil {
		t.Errorf("finding %+v", found[0])
	}
}

func TestThresholds(t *testing.T) {
	for want, o := range map[string]Override{
		"there is no rule":       {Rule: "utilisation"},
		"is below 0":             {Rule: Quota, Value: decimal.NewFromInt(-1)},
		"is above 1":             {Rule: UtilizationDay, Value: decimal.NewFromInt(45)},
		"nothing is below":       {Rule: UtilizationDay},
		"is not from 0 to 1":     {Rule: TierMismatch, Value: ratio(1), Coverage: decimal.NewNullDecimal(decimal.NewFromInt(2))},
		"everything would be a ": {Rule: Failures, Value: decimal.NewFromInt(2)},
	} {
		if _, err := NewThresholds([]Override{o}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	th, err := NewThresholds([]Override{
		{Rule: UtilizationDay, Value: ratio(500), SetBy: "platform/all"},
		{Rule: UtilizationDay, Workspace: "wc00", Value: ratio(300), SetBy: "wc00/mine"},
		{Rule: UtilizationDay, Cluster: "c01", Off: true, SetBy: "platform/c01"},
	})
	if err != nil {
		t.Fatal(err)
	}
	found := slices.DeleteFunc(Evaluate(fleet(3, 440), th), func(x Finding) bool { return x.Rule != UtilizationDay || x.Subject == Subject{} })
	want2 := []string{"utilization-day firing provider=prov region=r0 cluster=c02"}
	want(t, rulesOf(found), want2...)
	if found[0].SetBy != "platform/all" || !found[0].Threshold.Equal(ratio(500)) {
		t.Errorf("threshold %s by %s", found[0].Threshold, found[0].SetBy)
	}
}

// The chance of at least n interruptions, against values of scipy.stats.nbinom.sf and poisson.sf.
func TestTail(t *testing.T) {
	for _, c := range []struct {
		n, shape int64
		mean     string
		want     string
	}{
		{1, 1, "0.5", "0.333333333333"},       // geometric: q = 1/3
		{3, 1, "1", "0.125"},                  // q³
		{3, 2, "2", "0.3125"},                 // NB(2, 1/2): 1 − 1/4 − 1/4 − 3/16
		{2, 2, "2", "1"},                      // not more than was to be expected
		{1, 1_000_000, "0.01", "0.009950166"}, // Poisson: 1 − e^−0.01
		{5, 1_000_000, "1", "0.003659847"},    // Poisson
		{200, 50, "10", "0"},
	} {
		got := tail(c.n, c.shape, decimal.RequireFromString(c.mean))
		if got.Sub(decimal.RequireFromString(c.want)).Abs().GreaterThan(decimal.New(1, -6)) {
			t.Errorf("tail(%d, %d, %s) = %v, want %v", c.n, c.shape, c.mean, got, c.want)
		}
	}
}

// Quantiles of Student's t with 20 degrees of freedom, from tables: two-sided 5%, 1% and 0.1%.
func TestStudent(t *testing.T) {
	for square, want := range map[string]string{"4.351244": "0.05", "8.095958": "0.01", "14.818776": "0.001", "0": "1"} {
		got := student20(decimal.RequireFromString(square))
		if d := got.Sub(decimal.RequireFromString(want)).Abs(); d.GreaterThan(decimal.New(2, -5)) {
			t.Errorf("t² = %s: %s, want %s", square, got, want)
		}
	}
}

func TestCourses(t *testing.T) {
	f := fleet(0, 0)
	course := func(region string, last int64, noise func(int) int64) Course {
		c := Course{Workspace: "w", Component: "used", Region: region, Currency: "USD", Last: day}
		for i := range courseDays {
			c.Days = append(c.Days, decimal.NewFromInt(1000+100*int64(i%7)+noise(i)))
		}
		c.Days = append(c.Days, decimal.NewFromInt(last))
		return c
	}
	wobble := func(i int) int64 { return int64(i*i*7919%41) - 20 }
	f.Courses = []Course{course("a", 1003, wobble), course("b", 990, wobble)}
	want(t, rulesOf(Evaluate(f, nil)))
	// One region costs twice as much: it, and not the sum as well.
	f.Courses = []Course{course("", 3000, wobble), course("a", 2000, wobble), course("b", 990, wobble)}
	want(t, rulesOf(Evaluate(f, nil)), "cost-anomaly firing workspace=w region=a component=used name=USD")
	// Nothing in a region, and a fifth in the sum of many that usually move against each other.
	f.Courses = []Course{course("", 1200, func(int) int64 { return 0 }), course("a", 1040, wobble)}
	want(t, rulesOf(Evaluate(f, nil)), "cost-anomaly firing workspace=w component=used name=USD")
	// A cost where there never was one.
	f.Courses = []Course{{Workspace: "w", Component: "used", Region: "a", Currency: "USD", Last: day, Days: append(make([]decimal.Decimal, courseDays), decimal.NewFromInt(1))}}
	want(t, rulesOf(Evaluate(f, nil)), "cost-anomaly firing workspace=w region=a component=used name=USD")
}

func TestVariation(t *testing.T) {
	for _, c := range []struct {
		of   []uint64
		want string
	}{{[]uint64{100, 100}, "0"}, {[]uint64{50, 150}, "0.5"}, {[]uint64{0, 0}, "0"}, {[]uint64{1, 2, 3}, "0.408248"}} {
		if got := variation(c.of).String(); got != c.want {
			t.Errorf("variation of %v is %s, want %s", c.of, got, c.want)
		}
	}
}

func TestIdleWindows(t *testing.T) {
	f := fleet(1, 600)
	w := Week{Window: domain.Interval{From: tick - 28*domain.Day, To: tick}, Cluster: "c00", GPUModel: "H100"}
	for h := range 28 * 24 {
		at := (w.Window.From + domain.Instant(h)*domain.Hour).Time()
		unused := int64(0)
		if at.Hour() >= 22 || at.Hour() < 3 { // five hours over midnight
			unused = 32 * gpuHour
		}
		w.Service, w.Unused = append(w.Service, 32*gpuHour), append(w.Unused, unused)
	}
	f.Weeks = []Week{w}
	found := Evaluate(f, nil)
	want(t, rulesOf(found), "idle-window firing provider=prov region=r0 cluster=c00 gpu_model=H100")
	// 5 hours of 24, of 32 GPUs at 2 USD, in 730 hours.
	if m := found[0].PerMonth; m == nil || !m.Amount.Round(2).Equal(decimal.NewFromInt(32*2*730*5).DivRound(decimal.NewFromInt(24), 2)) {
		t.Errorf("it costs %v", m)
	}
	if !found[0].Value.Equal(decimal.NewFromInt(5)) {
		t.Errorf("%s hours, want 5", found[0].Value)
	}
	w.Unused[24] = 0 // in one of the weeks it was used at noon: no part of a window
	w.Unused[12] = 0 // and once at midnight, which cuts the window of that weekday
	f.Weeks = []Week{w}
	want(t, rulesOf(Evaluate(f, nil)), "idle-window firing provider=prov region=r0 cluster=c00 gpu_model=H100")
}

// storm is the loss of provider prov in region r0: nodes of all its clusters fail.
func storm(clusters int) (*Figures, []Finding) {
	f := fleet(clusters, 600)
	total := map[string]int64{}
	for _, n := range f.Nodes {
		region := f.Clusters[slices.IndexFunc(f.Clusters, func(c Cluster) bool { return c.ID == n.Cluster })].Region
		x := Failed{
			Window: day, Subject: Subject{Cluster: n.Cluster, Node: n.Node}, Level: "node", GPUHours: decimal.NewFromInt(192),
			PriorShape: 1, PriorPerGPUHour: decimal.New(2, -5),
		}
		if region == "r0" {
			x.Interruptions = 2
			total[region] += 2
		}
		f.Failed = append(f.Failed, x)
	}
	f.Failed = append(f.Failed, Failed{
		Window: day, Subject: Subject{Provider: "prov", Region: "r0"}, Level: "provider", GPUHours: decimal.NewFromInt(192 * 4 * int64(clusters) / 2),
		Interruptions: total["r0"], PriorShape: 1, PriorPerGPUHour: decimal.New(2, -5),
	}, Failed{
		Window: day, Subject: Subject{GPUModel: "H100"}, Level: "gpu_model", GPUHours: decimal.NewFromInt(192 * 4 * int64(clusters)),
		Interruptions: total["r0"], PriorShape: 1, PriorPerGPUHour: decimal.New(2, -5),
	})
	return f, Evaluate(f, nil)
}

func TestALostProviderIsOneCase(t *testing.T) {
	f, found := storm(40)
	cases := Correlate(f, found)
	if len(cases) != 1 {
		t.Fatalf("%d cases, want one", len(cases))
	}
	c := cases[0]
	if c.Subject != (Subject{Provider: "prov", Region: "r0"}) || c.Parts != 81 || len(c.Names) != MostNames || c.Severity != domain.SeverityCritical {
		t.Errorf("case of %s with %d parts, %d names, severity %s; want 80 nodes and a model", c.Subject, c.Parts, len(c.Names), c.Severity)
	}
}

func TestOneClusterIsNotAProvider(t *testing.T) {
	f := fleet(4, 600)
	for _, i := range []int{0, 1} { // both nodes of c00, of four
		n := f.Nodes[i]
		f.Gaps = append(f.Gaps, Gap{Kind: "collector_silent", Subject: Subject{Cluster: n.Cluster, Node: n.Node}, Count: 1, Window: day})
	}
	if cases := Correlate(f, Evaluate(f, nil)); len(cases) != 2 {
		t.Errorf("two of four silent collectors are %d cases, want two", len(cases))
	}
	n := f.Nodes[2]
	f.Gaps = append(f.Gaps, Gap{Kind: "collector_silent", Subject: Subject{Cluster: n.Cluster, Node: n.Node}, Count: 1, Window: day})
	cases := Correlate(f, Evaluate(f, nil))
	if len(cases) != 1 || cases[0].Subject != (Subject{Provider: "prov", Region: "r0", Cluster: "c00"}) || cases[0].Parts != 3 {
		t.Errorf("three of four silent collectors: %+v, want one case of the cluster", cases)
	}
}

func apply(t *testing.T, known []Incident, changes []Change) []Incident {
	t.Helper()
	known, err := Apply(known, changes)
	if err != nil {
		t.Fatal(err)
	}
	return known
}

func TestLifeOfAnIncident(t *testing.T) {
	var known []Incident
	step := func(after domain.Instant, f *Figures) (names []string) {
		t.Helper()
		found := Evaluate(f, nil)
		changes, err := Step(known, Correlate(f, found), found, tick+after, "p")
		if err != nil {
			t.Fatal(err)
		}
		known = apply(t, known, changes)
		again, _ := Step(known, Correlate(f, found), found, tick+after, "p")
		if len(again) > 0 {
			t.Errorf("the same tick again has %d changes", len(again))
		}
		for _, c := range changes {
			names = append(names, string(c.Event.Type()))
		}
		return names
	}
	const minutes = 60 * domain.Second
	low := fleet(1, 300)
	want(t, step(0, low), "IncidentOpened")
	want(t, step(5*minutes, low))
	want(t, step(10*minutes, fleet(1, 455))) // within the margin
	want(t, step(15*minutes, fleet(1, 600)), "IncidentResolved")
	want(t, step(20*minutes, low), "IncidentChanged") // flapping is one incident
	want(t, step(25*minutes, fleet(1, 600)), "IncidentResolved")
	want(t, step(25*minutes+Reopen, low), "IncidentOpened")
	if len(known) != 2 || known[0].Reopened != 1 {
		t.Errorf("%d incidents, the first reopened %d times", len(known), known[0].Reopened)
	}
}

// A part that comes and goes is no event at each tick, and more parts are one at once.
func TestPartsThatComeAndGo(t *testing.T) {
	var known []Incident
	step := func(tick domain.Instant, parts int) int {
		t.Helper()
		c := Case{Family: FamilyFailure, Rule: Evidence, Subject: Subject{Cluster: "c"}, Workspace: Platform, Severity: domain.SeverityInfo, Parts: parts}
		changes, err := Step(known, []Case{c}, nil, tick, "p")
		if err != nil {
			t.Fatal(err)
		}
		known = apply(t, known, changes)
		return len(changes)
	}
	n := 0
	for i := range 24 {
		n += step(tick+domain.Instant(i)*5*60*domain.Second, 5+i%2)
	}
	if n > 6 {
		t.Errorf("%d events in two hours", n)
	}
	if step(tick+3*domain.Hour, 6); step(tick+3*domain.Hour+1, 60) != 1 || known[0].Case.Parts != 60 {
		t.Errorf("ten times as many parts are not said at once: %+v", known)
	}
}

func TestASmallerIncidentBecomesPartOfALarger(t *testing.T) {
	f := fleet(4, 600)
	n := f.Nodes[0]
	f.Gaps = []Gap{{Kind: "collector_silent", Subject: Subject{Cluster: n.Cluster, Node: n.Node}, Count: 1, Window: day}}
	found := Evaluate(f, nil)
	changes, err := Step(nil, Correlate(f, found), found, tick, "p")
	if err != nil || len(changes) != 1 {
		t.Fatal(changes, err)
	}
	known := apply(t, nil, changes)
	for _, n := range f.Nodes[1:3] {
		f.Gaps = append(f.Gaps, Gap{Kind: "collector_silent", Subject: Subject{Cluster: n.Cluster, Node: n.Node}, Count: 1, Window: day})
	}
	found = Evaluate(f, nil)
	changes, _ = Step(known, Correlate(f, found), found, tick+domain.Hour, "p")
	known = apply(t, known, changes)
	if len(known) != 2 || known[0].State != Resolved || known[0].Reason != "part of incident "+known[1].ID {
		t.Errorf("incidents %+v", known)
	}
}

// Whoever reads the first event about an incident reads the others, so findings of another workspace are never added to it.
func TestAnIncidentStaysWithItsWorkspace(t *testing.T) {
	f := fleet(1, 600)
	f.Clusters[0].Workspace = "a"
	for _, n := range f.Nodes {
		f.Gaps = append(f.Gaps, Gap{Kind: "collector_silent", Subject: Subject{Cluster: n.Cluster, Node: n.Node}, Count: 1, Window: day})
	}
	var known []Incident
	step := func(after domain.Instant, of string) (names []string) {
		t.Helper()
		f.Clusters[0].Workspace = of
		found := Evaluate(f, nil)
		changes, err := Step(known, Correlate(f, found), found, tick+after, "p")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			names = append(names, c.Workspace+" "+string(c.Event.Type()))
			if o, ok := c.Event.(*domain.IncidentOpened); ok && !strings.Contains(string(o.Document), `"workspace":"`+c.Workspace+`"`) {
				t.Errorf("an incident of %s says %s", c.Workspace, o.Document)
			}
		}
		known = apply(t, known, changes)
		return names
	}
	want(t, step(0, "a"), "a IncidentOpened")
	want(t, step(domain.Hour, "b"), "a IncidentResolved", "b IncidentOpened")
	want(t, step(2*domain.Hour, Platform), "b IncidentResolved", "platform IncidentOpened")
	want(t, step(3*domain.Hour, "b")) // several may be concerned again at the next tick
	f.Gaps = nil
	want(t, step(4*domain.Hour, "b"), "platform IncidentResolved")
	want(t, step(5*domain.Hour, "b"))
}

func TestARuleThatFiresForEverythingIsOneCase(t *testing.T) {
	f := fleet(0, 0)
	for i := range mostCases + 1 {
		f.Limits = append(f.Limits, Limit{
			Rule: Quota, Workspace: fmt.Sprintf("w%03d", i), Name: "q", Unit: "nvidia.com/gpu", Used: decimal.NewFromInt(9), Limit: decimal.NewFromInt(10), Window: day,
		})
	}
	cases := Correlate(f, Evaluate(f, nil))
	if len(cases) != 1 || cases[0].Parts != mostCases+1 || !strings.Contains(cases[0].Summary, "about 101 subjects") {
		t.Errorf("%d cases, want one that says so: %+v", len(cases), cases[:1])
	}
}

// Equal figures give equal findings and cases, in whatever order they were gathered where that has no meaning.
func TestEqualFiguresGiveEqualBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fleet(rapid.IntRange(1, 6).Draw(t, "clusters"), 600)
		for i := range f.Use {
			f.Use[i].Active = f.Use[i].Measured * int64(rapid.IntRange(200, 700).Draw(t, "activity"))
		}
		for _, n := range f.Nodes {
			if rapid.Bool().Draw(t, "silent") {
				f.Gaps = append(f.Gaps, Gap{Kind: "collector_silent", Subject: Subject{Cluster: n.Cluster, Node: n.Node}, Count: 1, Window: day})
			}
		}
		text := func() string {
			var b strings.Builder
			found := Evaluate(f, nil)
			for _, c := range Correlate(f, found) {
				document, err := c.Document()
				if err != nil {
					t.Fatal(err)
				}
				back, err := ParseCase(document)
				if again, _ := back.Document(); err != nil || string(again) != string(document) {
					t.Fatalf("a case is read back as\n%s\nnot\n%s", again, document)
				}
				b.Write(document)
			}
			return b.String()
		}
		first := text()
		for range 3 {
			if again := text(); again != first {
				t.Fatalf("first\n%s\nthen\n%s", first, again)
			}
		}
	})
}

// Ten nodes, of which five and six are silent by turns: at half of them the cluster is the cause, and it stays so until fewer
// than a quarter of those are left.
func TestAPlaceKeepsItsParts(t *testing.T) {
	f := fleet(1, 600)
	f.Nodes = nil
	for n := range 10 {
		f.Nodes = append(f.Nodes, Node{Cluster: "c00", Node: fmt.Sprintf("n%d", n), GPUs: 8})
	}
	var known []Incident
	at := tick
	step := func(silent int) (events int) {
		t.Helper()
		f.Gaps = nil
		for _, n := range f.Nodes[:silent] {
			f.Gaps = append(f.Gaps, Gap{Kind: "collector_silent", Subject: Subject{Cluster: n.Cluster, Node: n.Node}, Count: 1, Window: day})
		}
		at += 5 * 60 * domain.Second
		found := Evaluate(f, nil)
		changes, err := Step(known, Correlate(f, found), found, at, "p")
		if err != nil {
			t.Fatal(err)
		}
		known = apply(t, known, changes)
		return len(changes)
	}
	open := func() (all []string) {
		for _, x := range known {
			if x.State == Open {
				all = append(all, x.Case.Subject.String())
			}
		}
		return all
	}
	events := 0
	for i := range 288 {
		events += step(6 - i%2)
	}
	want(t, open(), "provider=prov region=r0 cluster=c00")
	if events > 30 { // one an hour
		t.Errorf("%d events in a day", events)
	}
	step(2)
	want(t, open(), "provider=prov region=r0 cluster=c00")
	step(1)
	want(t, open(), "provider=prov region=r0 cluster=c00 node=n0")
	step(0)
	want(t, open())
}
