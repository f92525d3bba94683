package postgres

import (
	"reflect"
	"testing"

	"quartermaster/domain"
	rules "quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/advice"
	"quartermaster/projections/storetest"
)

// Figures of advice are those of the rows in memory, and only days that changed are summed up again.
func TestFiguresOfAdvice(t *testing.T) {
	db, _ := migrated(t)
	s := claimed(t, db, "a", nil)
	l := storetest.Fleet(3, 50, storetest.Start)
	tick := storetest.Start + 50*domain.Hour + 20*storetest.Minute
	hours := &advice.Hours{}
	read := func(s projections.Store, as advice.Options) (f *rules.Figures) {
		t.Helper()
		if err := s.View(t.Context(), func(v projections.View) (err error) {
			f, err = advice.Read(v, tick, as)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return f
	}
	check := func(what string, days int) {
		t.Helper()
		if err := l.Runner(s).CatchUp(t.Context(), l.End()); err != nil {
			t.Fatal(err)
		}
		want := read(storetest.Fold(t, l), advice.Options{})
		if got := read(s, advice.Options{Hours: hours}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
		if hours.Summed() != days {
			t.Errorf("%s: %d days were summed up, want %d", what, hours.Summed(), days)
		}
	}
	check("at first", 28)
	check("again", 0)
	at := storetest.Start + 3*domain.Hour
	late := storetest.Sample("n00001", domain.Interval{From: at, To: at + domain.Hour}, storetest.Seen{ID: storetest.GPU("c1", "n00001", 0), Activity: 1})
	l.AppendAt(domain.Envelope{Source: "late/1", Cluster: "c1", Time: at + domain.Hour, Event: late}, tick)
	check("after a late sample", 1)
}
