package postgres

import (
	"fmt"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// keeper remembers the last month.
type keeper struct{ last *usage.Month }

func (k *keeper) Month(usage.Inputs) *usage.Month { return nil }

func (k *keeper) Keep(m *usage.Month) { k.last = m }

// Kept usage can be summed in SQL with the result of the program. The database knows that a month has
// changed since, and keeping it again replaces it.
func TestUsageInSQL(t *testing.T) {
	db := opened(t)
	g := generation(t, db)
	activate(t, db, g)
	april := domain.Interval{From: storetest.Start - 30*domain.Day, To: storetest.Start}
	l := storetest.Fleet(3, 30, april.To-2*domain.Day)
	odd := april.To - 3*domain.Hour
	l.Append(domain.Envelope{Source: "import/odd", Cluster: "c'\"\\,{}", Time: odd + domain.Hour, Event: storetest.Sample("n",
		domain.Interval{From: odd, To: odd + domain.Hour}, storetest.Seen{ID: storetest.GPU("x", "n", 0), Workspace: "né, \"x\"", Activity: 500})})
	s := claimed(t, db, g, nil)
	keep := func() (report *usage.Report) {
		t.Helper()
		if err := l.Runner(s).CatchUp(t.Context(), l.End()); err != nil {
			t.Fatal(err)
		}
		kept := &keeper{}
		var at domain.Position
		if err := s.View(t.Context(), func(v projections.View) (err error) {
			at = v.Position()
			report, err = usage.NewReportFrom(v, kept, projections.HourOf(april.To), april.From, april.To, usage.Filter{}, usage.ByWorkspace)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := db.PutUsage(t.Context(), kept.last, at); err != nil {
				t.Fatal(err)
			}
		}
		return report
	}
	is := func(query string, want ...string) {
		t.Helper()
		if got := texts(t, db, query); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s\n%q, want %q", query, got, want)
		}
	}
	sums := `select coalesce(workspace, '') || ' ' || trunc(sum(in_service_seconds) * 1000) || ' ' || trunc(sum(allocated_seconds) * 1000)
		|| ' ' || trunc(sum(unobserved_seconds) * 1000) || ' ' || trunc(sum(active_seconds) * 1000000)
		from quartermaster.usage group by workspace order by coalesce(workspace, '') collate "C"`
	want := func(r *usage.Report) (rows []string) {
		for _, g := range r.Groups {
			rows = append(rows, fmt.Sprintf("%s %d %d %d %d", g.Key[usage.ByWorkspace], g.Service, g.Allocated, g.Unobserved, g.Active))
		}
		return rows
	}
	is(sums)
	first := keep()
	is(sums, want(first)...)
	is(`select to_char(month at time zone 'UTC', 'YYYY-MM') || ' ' || current from quartermaster.usage_months`, "2026-04 true")
	is(`select distinct cluster from quartermaster.usage where workspace is not null and cluster not like 'c1'`, "c'\"\\,{}")

	late := domain.Interval{From: april.To - 20*domain.Hour, To: april.To - 19*domain.Hour}
	l.Append(domain.Envelope{Source: "prometheus/late", Cluster: "c1", Time: late.To, Event: storetest.Sample("n9", late, storetest.Held("late"))})
	if err := l.Runner(s).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	is(`select current::text from quartermaster.usage_months`, "false")
	is(sums, want(first)...)
	second := keep()
	is(`select current::text from quartermaster.usage_months`, "true")
	is(sums, want(second)...)
	if len(second.Groups) != len(first.Groups)+1 {
		t.Errorf("%d groups after a late fact, before %d", len(second.Groups), len(first.Groups))
	}
	may := domain.Interval{From: april.To + 2*domain.Day, To: april.To + 2*domain.Day + domain.Hour}
	l.Append(domain.Envelope{Source: "prometheus/may", Cluster: "c1", Time: may.To, Event: storetest.Sample("n9", may, storetest.Held("late"))})
	if err := l.Runner(s).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	is(`select current::text from quartermaster.usage_months`, "true")
}
