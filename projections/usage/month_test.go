package usage_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// shelf keeps months in memory.
type shelf struct {
	months           map[string]*usage.Month
	found, made, not int
}

func (s *shelf) Month(i usage.Inputs) *usage.Month {
	m := s.months[i.Text]
	if m != nil {
		s.found++
	} else {
		s.not++
	}
	return m
}

func (s *shelf) Keep(m *usage.Month) {
	s.made++
	if s.months == nil {
		s.months = map[string]*usage.Month{}
	}
	s.months[m.Inputs.Text] = m
}

// away moves an event by some days.
func away(env domain.Envelope, days int) domain.Envelope {
	by := domain.Instant(days) * domain.Day
	move := func(i *domain.Interval) { i.From, i.To = i.From+by, i.To+by }
	env.Time += by
	switch ev := env.Event.(type) {
	case *domain.NodeSampled:
		move(&ev.Interval)
	case *domain.UsageCorrected:
		move(&ev.Interval)
	case *domain.MaintenanceScheduled:
		move(&ev.Window)
	case *domain.OutageDeclared:
		move(&ev.Window)
	}
	return env
}

// drawMonths returns events of March to May about two clusters with a common node name and GPUs, and
// about who pays for pods.
func drawMonths(t *rapid.T, events int) (envs []domain.Envelope) {
	days := rapid.SampledFrom([]int{-45, -31, -30, -20, -2, -1, 0, 1})
	for range events {
		day := days.Draw(t, "day")
		if rapid.IntRange(0, 12).Draw(t, "rule") == 0 {
			envs = append(envs, storetest.Root.Sign(domain.Envelope{
				Workspace: "home", Time: storetest.Start + domain.Instant(day)*domain.Day + 90*storetest.Minute,
				Event: &domain.MappingRuleSet{
					Rule: rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "name"), Priority: uint32(rapid.IntRange(0, 1).Draw(t, "priority")),
					Cluster: rapid.SampledFrom([]string{"", "c1"}).Draw(t, "of"), ToWorkspace: rapid.SampledFrom([]string{"acme", "beta"}).Draw(t, "to"),
					EffectiveFrom: storetest.Start + domain.Instant(day)*domain.Day + 90*storetest.Minute,
				},
			}))
			continue
		}
		env := storetest.DrawEvent(t)
		switch ev := env.Event.(type) {
		case *domain.QuotaSet, *domain.DemandObserved, *domain.MetricsObserved, *domain.ServingSampled, *domain.ReplicasObserved:
			continue
		case *domain.NodeSampled:
			// Some are of pods, whose workspace the rules decide.
			if rapid.IntRange(0, 2).Draw(t, "pods") == 0 {
				ev.Strings = append(slices.Clone(ev.Strings), "team/pod")
				for i := range ev.HolderWorkspace {
					ev.HolderWorkspace[i], ev.HolderUnit[i] = 0, uint32(len(ev.Strings))
				}
			}
		}
		envs = append(envs, away(env, day))
	}
	slices.SortStableFunc(envs, func(a, b domain.Envelope) int { return cmp.Compare(a.Time, b.Time) })
	return envs
}

// asked is a random question about usage.
func asked(t *rapid.T) (usage.Filter, []usage.Dimension) {
	var by []usage.Dimension
	for _, d := range usage.Dimensions() {
		if rapid.IntRange(0, 3).Draw(t, string(d)) == 0 {
			by = append(by, d)
		}
	}
	name := func(what string, from ...string) string {
		return rapid.SampledFrom(append(from, "", "", "")).Draw(t, what)
	}
	f := usage.Filter{Workspace: name("workspace", "acme", "beta"), Cluster: name("cluster", "c1"), Region: name("region", "eu")}
	if rapid.IntRange(0, 3).Draw(t, "condition") == 0 {
		f.Where, _ = usage.ParseConditions([]string{rapid.SampledFrom([]string{
			"workspace=acme", "deployment=", "workload_class=serving", "provider=p", "gpu_model=unknown", "node=n1", "day=2026-04-30",
		}).Draw(t, "where")})
	}
	return f, by
}

// An answer from kept months is the same as one from rows, whatever the history, the question and
// the bounds of the period, and whatever was kept before later facts arrived.
func TestKeptMonths(t *testing.T) {
	long.Check(t, 100, 20_000, func(t *rapid.T) {
		l := storetest.NewLog()
		kept := &shelf{}
		ask := func(m *projections.Memory) {
			storetest.Look(t, m, func(v projections.View) error {
				for range rapid.IntRange(1, 4).Draw(t, "questions") {
					filter, by := asked(t)
					bound := func(what string) domain.Instant {
						at := storetest.Start + domain.Instant(rapid.IntRange(-62, 3).Draw(t, what))*domain.Day
						switch rapid.IntRange(0, 3).Draw(t, what+" kind") {
						case 0:
							return at + domain.Instant(rapid.IntRange(0, 86_399_999).Draw(t, what+" ms"))*projections.NsPerMs
						case 1:
							return projections.BillingMonth(at).From
						}
						return at
					}
					from, to := bound("from"), bound("to")
					if to <= from {
						from, to = to, from+1
					}
					sealed := projections.HourOf(storetest.Start) - rapid.SampledFrom([]int64{0, 0, 0, 24}).Draw(t, "sealed")
					want, err := usage.NewReport(v, from, to, filter, by...)
					if err != nil {
						return err
					}
					got, err := usage.NewReportFrom(v, kept, sealed, from, to, filter, by...)
					if err != nil {
						return err
					}
					a, _ := json.Marshal(want)
					b, _ := json.Marshal(got)
					if string(a) != string(b) {
						t.Fatalf("%s to %s by %v of %+v: from kept months\n%s\nwant\n%s", from, to, by, filter, b, a)
					}
				}
				return nil
			})
		}
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			l.Append(drawMonths(t, rapid.IntRange(1, 15).Draw(t, "events"))...)
			ask(storetest.Fold(t, l))
		}
	})
}

// A month whose inputs are the same is the same, so inputs name everything that a month depends on.
// Its days add up to it, and it changes with every fact about it.
func TestMonthInputs(t *testing.T) {
	changed, same := 0, 0
	april := domain.Interval{From: storetest.Start - 30*domain.Day, To: storetest.Start}
	long.Check(t, 150, 20_000, func(t *rapid.T) {
		l := storetest.NewLog()
		month := func() (m *usage.Month) {
			storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
				kept := &shelf{}
				r, err := usage.NewReportFrom(v, kept, projections.HourOf(april.To), april.From, april.To, usage.Filter{})
				if err != nil {
					return err
				}
				for _, m = range kept.months {
					var sum int64
					for i := range m.Days {
						sum += m.Days[i].Time.Service
					}
					if sum != r.Total.Service || kept.made != 1 {
						t.Errorf("the days of %d months have %d, the month %d", kept.made, sum, r.Total.Service)
					}
				}
				return nil
			})
			return m
		}
		l.Append(drawMonths(t, rapid.IntRange(1, 15).Draw(t, "events"))...)
		before := month()
		l.Append(drawMonths(t, rapid.IntRange(1, 4).Draw(t, "more"))...)
		after := month()
		if before.Inputs.Digest() != after.Inputs.Digest() {
			changed++
			return
		}
		same++
		if !reflect.DeepEqual(before, after) {
			t.Errorf("inputs are the same, and the month was\n%+v\nis\n%+v\n%s", before.Days, after.Days, after.Inputs.Text)
		}
	})
	if !t.Failed() && (changed == 0 || same == 0) {
		t.Errorf("inputs changed %d times and were the same %d times: the test shows nothing", changed, same)
	}
}

// The second answer about a sealed month reads no rows of usage, and a longer history adds none. A
// late fact makes the month be computed again.
func TestKeptMonthsAreNotRead(t *testing.T) {
	log := func(months int) *storetest.Log {
		l := storetest.NewLog()
		l.Batch = 1000
		first := domain.InstantOf(storetest.Start.Time().AddDate(0, -months, 0))
		l.Append(storetest.Cluster("c", "home", "p", "eu", first), storetest.Node("c", "n", "H100 80GB", 1, first))
		for at := first; at < storetest.Start+2*domain.Day; at += 6 * domain.Hour {
			i := domain.Interval{From: at, To: at + domain.Hour}
			l.Append(domain.Envelope{Source: "reporter/n", Cluster: "c", Time: i.To, Event: storetest.Sample("n", i, storetest.Held("a"))})
		}
		return l
	}
	april := domain.Interval{From: storetest.Start - 30*domain.Day, To: storetest.Start}
	read := func(l *storetest.Log, kept *shelf, p domain.Interval) (rows map[projections.Table]int) {
		storetest.FoldView(t, l, func(v projections.View) {
			c := storetest.Count(v)
			if _, err := usage.NewReportFrom(c, kept, projections.HourOf(april.To), p.From, p.To, usage.Filter{}, usage.ByDay, usage.ByWorkspace); err != nil {
				t.Fatal(err)
			}
			rows = maps.Clone(c.Rows)
			delete(rows, projections.TableStreams)
		})
		return rows
	}
	short, long := log(2), log(14)
	kept := &shelf{}
	for _, c := range []struct {
		name  string
		p     domain.Interval
		usage int // rows of usage hours
	}{
		{"a month for the first time", april, 120},
		{"again", april, 0},
		{"a day of it", domain.Interval{From: april.From + 3*domain.Day, To: april.From + 4*domain.Day}, 0},
		{"with an edge", domain.Interval{From: april.From + 3*domain.Day - domain.Hour, To: april.From + 4*domain.Day}, 0},
		{"with a day of the open month", domain.Interval{From: april.From, To: april.To + domain.Day}, 4},
	} {
		if got := read(long, kept, c.p)[projections.TableUsage]; got != c.usage {
			t.Errorf("%s: %d rows of usage were read, want %d", c.name, got, c.usage)
		}
	}
	for _, p := range []domain.Interval{april, {From: april.To, To: april.To + domain.Day}} {
		if a, b := read(short, &shelf{}, p), read(long, &shelf{}, p); !maps.Equal(a, b) {
			t.Errorf("%v: after 2 months %v rows are read, after 14 %v", p, a, b)
		}
	}
	i := domain.Interval{From: april.To - 2*domain.Hour, To: april.To - domain.Hour}
	long.AppendAt(domain.Envelope{Source: "import/late", Cluster: "c", Time: i.To, Event: storetest.Sample("n", i, storetest.Held("b"))}, april.To+domain.Day)
	if got := read(long, kept, april)[projections.TableUsage]; got != 121 || kept.made != 2 {
		t.Errorf("after a late fact %d rows were read, and %d months kept; want 121 and 2", got, kept.made)
	}
	for _, m := range kept.months {
		if m.Inputs.Month != april {
			t.Errorf("kept %v", fmt.Sprint(m.Inputs))
		}
	}
}
