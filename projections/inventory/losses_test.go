package inventory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

const agent = "node-reporter/c/n"

// dropped reports that the agent of node n lost sequences of its samples.
func dropped(source string, at int, from, to uint64, covered domain.Interval) domain.Envelope {
	return domain.Envelope{Source: source, Incarnation: 1, Cluster: "c", Time: storetest.Start + domain.Instant(at)*storetest.Minute, Event: &domain.SpoolDropped{
		Node: "n", Stream: agent + " qm.telemetry", From: from, To: to, Covered: covered, Reason: "quota", Incarnation: 1,
	}}
}

// A loss that an agent reported is listed in reports of that time, and does not mark other reports
// as incomplete forever.
func TestDroppedSamples(t *testing.T) {
	sample := func(seq uint64, from, to int) domain.Envelope {
		e := storetest.Sampled(agent, from, to, storetest.Held("a"))
		e.Incarnation, e.Sequence = 1, seq
		return e
	}
	// After 64 gaps only the number of the oldest is remembered.
	var torn []domain.Envelope
	for i := range 80 {
		torn = append(torn, sample(uint64(2*i+2), i, i+1))
	}
	for _, c := range []struct {
		name    string
		log     []domain.Envelope
		missing uint64
		note    string // of the first hour
	}{
		{"a gap", []domain.Envelope{sample(1, 0, 10), sample(4, 30, 40)}, 2, "incomplete: 2 events have not arrived"},
		{"reported as lost", []domain.Envelope{sample(1, 0, 10), sample(4, 30, 40), dropped(agent, 41, 2, 3, storetest.Span(10, 30))}, 0,
			"samples of node c/n from 2026-05-01T00:10:00Z to 2026-05-01T00:30:00Z were dropped"},
		{"in part", []domain.Envelope{sample(1, 0, 10), sample(4, 30, 40), dropped(agent, 41, 3, 3, storetest.Span(20, 30))}, 1,
			"incomplete: 1 event has not arrived; samples of node c/n from 2026-05-01T00:20:00Z to 2026-05-01T00:30:00Z were dropped"},
		{"twice", []domain.Envelope{sample(1, 0, 10), sample(4, 30, 40), dropped(agent, 41, 2, 3, storetest.Span(10, 30)), dropped(agent, 42, 3, 3, storetest.Span(20, 30))}, 0,
			"samples of node c/n from 2026-05-01T00:10:00Z to 2026-05-01T00:30:00Z were dropped; samples of node c/n from 2026-05-01T00:20:00Z to 2026-05-01T00:30:00Z were dropped"},
		{"by somebody else", []domain.Envelope{sample(1, 0, 10), sample(4, 30, 40), dropped("node-reporter/c/m", 41, 2, 3, storetest.Span(10, 30))}, 2, "incomplete: 2 events have not arrived"},
		{"at an unknown time", []domain.Envelope{sample(1, 0, 10), sample(3, 30, 40), dropped(agent, 41, 2, 2, domain.Interval{})}, 0,
			"samples of node c/n at a time that is not known were dropped"},
		{"more than is remembered", append(torn[:80:80], dropped(agent, 90, 1, 31, storetest.Span(0, 16)), dropped(agent, 91, 33, 200, storetest.Span(16, 80))), 0,
			"samples of node c/n from 2026-05-01T00:00:00Z to 2026-05-01T00:16:00Z were dropped; samples of node c/n from 2026-05-01T00:16:00Z to 2026-05-01T01:20:00Z were dropped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(c.log...)
			storetest.FoldView(t, l, func(v projections.View) {
				missing, err := registry.Missing(v)
				if err != nil || missing[domain.TopicTelemetry] != c.missing {
					t.Errorf("missing %v, want %d, %v", missing, c.missing, err)
				}
				r, err := usage.NewReport(v, storetest.Start, storetest.Start+domain.Hour, usage.Filter{})
				if err != nil || r.Note() != c.note || r.Missing != c.missing {
					t.Errorf("the first hour says %q, want %q, %v", r.Note(), c.note, err)
				}
				later, err := usage.NewReport(v, storetest.Start+2*domain.Hour, storetest.Start+3*domain.Hour, usage.Filter{})
				if err != nil || later.Missing != c.missing || len(later.Dropped) > 0 && later.Dropped[0].To > 0 {
					t.Errorf("a later hour says %q, %v", later.Note(), err)
				}
			})
			var lacks int
			for _, e := range take(t, l, inventory.Filter{At: storetest.Start + 2*domain.Hour}).Exceptions {
				if e.Kind == inventory.StreamIncomplete {
					lacks++
				}
			}
			if (lacks > 0) != (c.missing > 0) {
				t.Errorf("%d streams are said to be incomplete", lacks)
			}
		})
	}
}

// Missing, lost and quarantined events of a cluster's nodes mark reports about that cluster and
// about all clusters, but not about another. A source that names no cluster marks every report.
func TestClustersMarkTheirOwn(t *testing.T) {
	leap := func(source, cluster string, seq uint64) domain.Envelope {
		return domain.Envelope{Source: source, Incarnation: 1, Sequence: seq, Cluster: cluster, Time: storetest.Start, Event: &domain.NodeCordoned{Node: "n"}}
	}
	invalid := leap(agent, "c", 1)
	invalid.Event = &domain.NodeCordoned{}
	loss := dropped(agent, 41, 2, 3, storetest.Span(10, 30))
	loss.Sequence = 1
	for _, c := range []struct {
		name            string
		event           domain.Envelope
		all, own, other string // notes
	}{
		{"a leap", leap(agent, "c", 1e12), "incomplete: 999999999999 events have not arrived", "incomplete: 999999999999 events have not arrived", ""},
		{"of a source that names none", leap("prometheus/p", "c", 3), "incomplete: 2 events have not arrived", "incomplete: 2 events have not arrived", "incomplete: 2 events have not arrived"},
		{"quarantined", invalid, "incomplete: 1 event", "incomplete: 1 event", ""},
		{"lost", loss, "samples of node c/n from 2026-05-01T00:10:00Z to 2026-05-01T00:30:00Z were dropped", "samples of node c/n from 2026-05-01T00:10:00Z to 2026-05-01T00:30:00Z were dropped", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(c.event)
			m, err := l.Fold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for cluster, want := range map[string]string{"": c.all, "c": c.own, "d": c.other} {
				if err := m.View(t.Context(), func(v projections.View) error {
					r, err := usage.NewReport(v, storetest.Start, storetest.Start+domain.Hour, usage.Filter{Cluster: cluster})
					if err != nil || r.Note() != want {
						t.Errorf("usage of cluster %q says %q, want %q, %v", cluster, r.Note(), want, err)
					}
					inv, err := inventory.New(v, inventory.Filter{At: storetest.Start + domain.Hour, Cluster: cluster})
					if err != nil {
						return err
					}
					lacks := slices.ContainsFunc(inv.Exceptions, func(e inventory.Exception) bool { return e.Kind == inventory.StreamIncomplete })
					if arrive := strings.Contains(want, "arrived"); lacks != arrive || (inv.Missing > 0) != arrive {
						t.Errorf("the fleet of cluster %q lacks %d events, and names streams: %t", cluster, inv.Missing, lacks)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The fleet shows silent collectors, until the silence ends in any way, and losses.
func TestSilence(t *testing.T) {
	silent := func(at int, life uint64, from, to int) domain.Envelope {
		i := domain.Interval{From: storetest.Start + domain.Instant(from)*storetest.Minute}
		if to > 0 {
			i.To = storetest.Start + domain.Instant(to)*storetest.Minute
		}
		return domain.Envelope{Source: agent, Incarnation: life, Cluster: "c", Time: storetest.Start + domain.Instant(at)*storetest.Minute, Event: &domain.CollectorSilent{Node: "n", Silent: i, Reason: "it hung"}}
	}
	life := func(n uint64, e domain.Envelope) domain.Envelope {
		e.Incarnation = n
		return e
	}
	const open = "collector_silent c/n: its collector measures nothing since 2026-05-01T00:30:00Z: it hung"
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		at   int // minute
		want string
	}{
		{"silent", []domain.Envelope{life(1, storetest.Sampled(agent, 0, 30, storetest.Held("a"))), silent(31, 1, 30, 0)}, 60, open},
		{"not yet", []domain.Envelope{life(1, storetest.Sampled(agent, 0, 30, storetest.Held("a"))), silent(31, 1, 30, 0)}, 30, ""},
		{"silence ended", []domain.Envelope{life(1, storetest.Sampled(agent, 0, 30, storetest.Held("a"))), silent(31, 1, 30, 0), silent(40, 1, 30, 40)}, 60, ""},
		{"silent again", []domain.Envelope{silent(11, 1, 10, 0), silent(20, 1, 10, 20), silent(31, 1, 30, 0)}, 60, open},
		{"a later sample", []domain.Envelope{silent(31, 1, 30, 0), life(1, storetest.Sampled(agent, 40, 50, storetest.Held("a")))}, 60, ""},
		{"a sample of somebody else", []domain.Envelope{silent(31, 1, 30, 0), storetest.Sampled("prometheus/p", 40, 50, storetest.Held("a"))}, 60, open},
		{"the agent was killed and knows of it", []domain.Envelope{silent(31, 1, 30, 0), life(2, storetest.Sampled(agent, 0, 10, storetest.Held("a")))}, 60, open},
		{"the next incarnation reports its end", []domain.Envelope{silent(31, 1, 30, 0), silent(40, 2, 30, 40)}, 60, ""},
		{"the next incarnation is silent too", []domain.Envelope{silent(21, 1, 20, 0), silent(31, 2, 30, 0)}, 60, open},
		{"samples were lost", []domain.Envelope{dropped(agent, 31, 2, 3, storetest.Span(10, 30))}, 60,
			"samples_dropped c/n: 2 events were dropped, samples of node c/n from 2026-05-01T00:10:00Z to 2026-05-01T00:30:00Z were dropped: quota"},
		{"twice", []domain.Envelope{dropped(agent, 31, 2, 3, storetest.Span(10, 30)), dropped(agent, 41, 7, 7, domain.Interval{})}, 60,
			"samples_dropped c/n: 3 events were dropped in 2 losses; of the last samples of node c/n at a time that is not known were dropped: quota"},
		{"long ago", []domain.Envelope{dropped(agent, 31, 2, 3, storetest.Span(10, 30))}, 60 * 24 * 40, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(storetest.Node("c", "n", "H100 80GB", 1, storetest.Start))
			l.Append(c.log...)
			var got []string
			for _, e := range take(t, l, inventory.Filter{At: storetest.Start + domain.Instant(c.at)*storetest.Minute}).Exceptions {
				if e.Kind == inventory.CollectorIsSilent || e.Kind == inventory.SamplesDropped {
					got = append(got, fmt.Sprintf("%s %s: %s", e.Kind, e.Subject, e.Detail))
				}
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
