package advice_test

import (
	"slices"
	"testing"

	"quartermaster/domain"
	rules "quartermaster/domain/advice"
	"quartermaster/domain/reliability"
	"quartermaster/projections"
	"quartermaster/projections/advice"
	"quartermaster/projections/failures"
	"quartermaster/projections/storetest"
)

// Interruptions are those of the reliability of GPU models, for each level, and earlier ones update what was to be expected.
func TestFailed(t *testing.T) {
	l := paid() // everything is observed
	l.Append(storetest.Cluster("silent", "own", "p", "eu", april.From), storetest.Node("silent", "n", "H100 80GB", 2, april.From))
	fail := func(cluster string, at domain.Instant) {
		ev := &domain.GPUFaultObserved{Node: "n", Kind: domain.FaultXID, Code: 79, Class: "hardware", Fatal: true, GPU: storetest.GPU(cluster, "n", 0)}
		l.Append(
			domain.Envelope{Cluster: cluster, Time: at, Event: ev},
			domain.Envelope{Cluster: cluster, Time: at + 2*domain.Hour, Event: &domain.NodeReturned{Node: "n"}},
		)
	}
	fail("c", storetest.Start-20*domain.Day)
	fail("c", storetest.Start-3*domain.Day)
	fail("c", storetest.Start-2*domain.Day)
	fail("c", storetest.Start+10*storetest.Minute) // in the hour of the tick
	figures(t, l, advice.Options{}, func(v projections.View, f *rules.Figures) {
		window := domain.Interval{From: storetest.Start - 7*domain.Day, To: tick}
		models, err := failures.ByModel(v, window.From, window.To, reliability.DefaultCounts())
		if err != nil || len(models) != 1 || models[0].Interruptions != 3 {
			t.Fatalf("%v %+v", err, models)
		}
		node := rules.Subject{Cluster: "c", Node: "n"}
		for _, want := range []struct {
			level   string
			subject rules.Subject
			n       int64
			hours   string
		}{
			// Two GPUs for 168 hours and 20 minutes less outages of 2, 2 and 1/6 hours; of the other cluster nothing is known.
			{"node", node, 3, "328.333333"},
			{"node", rules.Subject{Cluster: "silent", Node: "n"}, 0, "0"},
			{"cluster", rules.Subject{Cluster: "c"}, 3, "328.333333"},
			{"gpu_model", rules.Subject{GPUModel: models[0].Model}, 3, "328.333333"},
			{"provider", rules.Subject{Provider: "p", Region: "eu"}, 3, "328.333333"},
		} {
			x := find(t, f.Failed, func(x *rules.Failed) bool { return x.Level == want.level && x.Subject == want.subject })
			if x.Interruptions != want.n || !x.GPUHours.Equal(storetest.Dec(want.hours)) || x.Window != window {
				t.Errorf("%s %s: %+v, want %d in %s", want.level, want.subject, x, want.n, want.hours)
			}
			if of := want.level != "node" && want.n > 0; of != slices.Equal(x.Of, []rules.Subject{node}) {
				t.Errorf("%s of %+v", want.level, x.Of)
			}
			// One interruption in 50,000 hours, and one in the 21 days before, of two GPUs less two hours of each.
			rate := storetest.Dec("2").DivRound(storetest.Dec("50000").Add(storetest.Dec("1004")), 18)
			if x.PriorShape != 2 || !x.PriorPerGPUHour.Equal(rate) {
				t.Errorf("prior %d, %s, want 2, %s", x.PriorShape, x.PriorPerGPUHour, rate)
			}
		}
		if len(f.Failed) != 6 {
			t.Errorf("%d subjects", len(f.Failed))
		}
	})
}
