package projections_test

import (
	"reflect"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// sampled returns samples of a minute each of a node's GPU, under the keys of some shards, with a
// reading that has no column of its own.
func sampled(from, to, shards int) (envs []domain.Envelope) {
	for m := from; m < to; m++ {
		seen := storetest.Seen{ID: storetest.GPU("c", "n1", 0), Workspace: "a", Activity: 500}
		s := storetest.Sample("n1", storetest.Span(m, m+1), seen)
		s.PowerWatts = []uint32{700 + 1}
		s.OtherEntry, s.OtherField, s.OtherValue = []uint32{0}, []uint32{1009}, []uint64{uint64(10 + m%3)}
		env := storetest.Hardware(m+1, s)
		env.Source, env.Incarnation, env.Shards = "node-reporter/c/n1", uint64(1+shards), shards
		envs = append(envs, env)
	}
	return envs
}

// Intervals that came again under the key of another number of shards count once, in everything
// that the row of the hour sums.
func TestShardsJoinIntervalsOnce(t *testing.T) {
	hour := func(parts ...[]domain.Envelope) projections.Row {
		l := storetest.NewLog()
		l.Append(storetest.Cluster("c", "home", "p", "eu", storetest.Start))
		for _, envs := range parts {
			l.Append(envs...)
		}
		var row projections.Row
		storetest.FoldView(t, l, func(v projections.View) {
			var err error
			hour := int64(storetest.Start / domain.Hour)
			row, err = v.Get(projections.Key{Table: projections.TableUsage, Scope: "c", ID: "n1", Hour: hour})
			if err != nil || row == nil {
				t.Fatalf("%v, %v", row, err)
			}
		})
		return row
	}
	want := hour(sampled(0, 60, 0))
	for name, parts := range map[string][][]domain.Envelope{
		"none":               {sampled(0, 30, 0), sampled(30, 60, 8)},
		"a few":              {sampled(0, 33, 0), sampled(30, 60, 8)},
		"all of one key":     {sampled(0, 60, 0), sampled(12, 48, 8)},
		"all of them":        {sampled(0, 60, 4), sampled(0, 60, 8)},
		"changed twice":      {sampled(0, 33, 0), sampled(30, 45, 8), sampled(42, 60, 4)},
		"and back":           {sampled(0, 21, 4), sampled(18, 42, 8), sampled(42, 60, 4)},
		"the later at first": {sampled(30, 60, 8), sampled(0, 36, 0)},
	} {
		if got := hour(parts...); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the hour is\n%+v\nwant\n%+v", name,
				got.(*projections.UsageHour).Observers, want.(*projections.UsageHour).Observers)
		}
	}
}
