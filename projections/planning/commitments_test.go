package planning_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// buyer may commit any amount.
func buyer(at domain.Instant) []domain.Envelope {
	return []domain.Envelope{storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1000000000"), at)}
}

func purchased(who storetest.Operator, workspace, id string, units uint32, term domain.Interval, decided int) domain.Envelope {
	return who.Sign(domain.Envelope{Workspace: workspace, Time: storetest.Start + domain.Instant(decided)*domain.Day, Event: &domain.CommitmentPurchased{
		Commitment: id, Market: storetest.Frankfurt, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "p5.48xlarge", GPUModel: "NVIDIA H100 80GB HBM3",
		GPUsPerUnit: 8, Units: units, Term: term, Upfront: *storetest.USD("0"), Hourly: *storetest.USD("1"), GuaranteesCapacity: true, NoticeBy: term.To - 30*domain.Day,
		Owners: []domain.Share{{Workspace: "acme", Share: storetest.Dec("1")}},
	}})
}

func renewed(who storetest.Operator, workspace, id string, units uint32, term domain.Interval, decided int) domain.Envelope {
	return who.Sign(domain.Envelope{Workspace: workspace, Time: storetest.Start + domain.Instant(decided)*domain.Day, Event: &domain.CommitmentRenewed{
		Commitment: id, Units: units, Term: term, Upfront: *storetest.USD("0"), Hourly: *storetest.USD("2"),
	}})
}

func ended(who storetest.Operator, workspace, id string, at, decided int) domain.Envelope {
	return who.Sign(domain.Envelope{Workspace: workspace, Time: storetest.Start + domain.Instant(decided)*domain.Day, Event: &domain.CommitmentEnded{
		Commitment: id, At: storetest.Start + domain.Instant(at)*domain.Day,
	}})
}

func commitments(t interface {
	Helper()
	Fatal(...any)
}, v projections.View, at domain.Instant) []planning.CommitmentEntry {
	t.Helper()
	a, err := registry.NewAuthority(v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := planning.CommitmentsHeld(v, a, at)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestCommitmentsHeld(t *testing.T) {
	l := storetest.NewLog()
	l.Append(buyer(storetest.Start)...)
	l.Append(
		purchased(storetest.Root, "acme", "renewed", 10, storetest.Days(0, 100), 0), renewed(storetest.Root, "acme", "renewed", 4, storetest.Days(100, 200), 60),
		purchased(storetest.Root, "acme", "ended", 5, storetest.Days(0, 300), 0), ended(storetest.Root, "acme", "ended", 50, 20),
		purchased(storetest.Root, "acme", "to come", 2, storetest.Days(150, 160), 10),
		purchased(storetest.Root, "acme", "twice", 1, storetest.Days(0, 90), 0), purchased(storetest.Root, "beta", "twice", 3, storetest.Days(1, 91), 1),
		purchased(storetest.Mallory, "acme", "forged", 99, storetest.Days(0, 300), 0),
		purchased(storetest.Root, "acme", "kept", 7, storetest.Days(0, 80), 0), ended(storetest.Mallory, "acme", "kept", 5, 5),
	)
	text := func(at int) (entries, ladder string) {
		storetest.FoldView(t, l, func(v projections.View) {
			got := commitments(t, v, storetest.Start+domain.Instant(at)*domain.Day)
			var lines, rungs []string
			day := func(i domain.Instant) domain.Instant { return (i - storetest.Start) / domain.Day }
			for _, e := range got {
				line := e.Workspace + " " + e.Commitment
				for _, term := range e.Terms {
					line += fmt.Sprintf(" %d@%d-%d/%s", term.Units, day(term.Term.From), day(term.Term.To), term.Hourly.Amount)
				}
				lines = append(lines, line)
				if e.Model != "H100 SXM 80GB" || !e.GuaranteesCapacity || len(e.Owners) != 1 {
					t.Errorf("%+v", e)
				}
			}
			for _, x := range planning.ExpiryLadder(got) {
				rung := fmt.Sprintf("%d %s %d units %d GPUs", day(x.At), x.Commitment, x.Units, x.GPUs)
				if x.NoticeBy != 0 {
					rung += fmt.Sprintf(" notice %d", day(x.NoticeBy))
				}
				rungs = append(rungs, rung)
			}
			entries, ladder = strings.Join(lines, "\n"), strings.Join(rungs, "\n")
		})
		return entries, ladder
	}
	for _, c := range []struct {
		day           int
		entries, runs string
	}{
		{0, "acme kept 7@0-80/1\nacme twice 1@0-90/1\nacme renewed 10@0-100/1\nacme ended 5@0-300/1",
			"80 kept 7 units 56 GPUs notice 50\n90 twice 1 units 8 GPUs notice 60\n100 renewed 10 units 80 GPUs notice 70\n300 ended 5 units 40 GPUs notice 270"},
		// The end was decided on day 20, the renewal on day 60.
		{20, "acme ended 5@0-50/1\nacme kept 7@0-80/1\nbeta twice 3@1-91/1\nacme renewed 10@0-100/1\nacme to come 2@150-160/1",
			"50 ended 5 units 40 GPUs notice 270\n80 kept 7 units 56 GPUs notice 50\n91 twice 3 units 24 GPUs notice 61\n100 renewed 10 units 80 GPUs notice 70\n160 to come 2 units 16 GPUs notice 130"},
		{95, "acme to come 2@150-160/1\nacme renewed 10@0-100/1 4@100-200/2",
			"100 renewed 6 units 48 GPUs notice 70\n160 to come 2 units 16 GPUs notice 130\n200 renewed 4 units 32 GPUs"},
		{100, "acme to come 2@150-160/1\nacme renewed 4@100-200/2", "160 to come 2 units 16 GPUs notice 130\n200 renewed 4 units 32 GPUs"},
		{200, "", ""},
	} {
		entries, runs := text(c.day)
		if entries != c.entries {
			t.Errorf("day %d:\n%s\nwant\n%s", c.day, entries, c.entries)
		}
		if runs != c.runs {
			t.Errorf("day %d runs out:\n%s\nwant\n%s", c.day, runs, c.runs)
		}
	}
}

// The units held on a day equal a step-by-step evaluation of the decisions of that day. The terms
// are disjoint, and the ladder removes what is held.
func TestCommitmentsDayByDay(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		l := storetest.NewLog()
		l.Append(buyer(storetest.Start - 10*domain.Day)...)
		for range rapid.IntRange(1, 8).Draw(t, "decisions") {
			from := rapid.IntRange(0, 9).Draw(t, "from")
			term := storetest.Days(from, from+rapid.IntRange(1, 15).Draw(t, "days"))
			decided := rapid.IntRange(-3, 9).Draw(t, "decided")
			units := rapid.Uint32Range(1, 5).Draw(t, "units")
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				l.Append(ended(storetest.Root, "acme", "c", from, decided))
			case 1:
				l.Append(purchased(storetest.Root, "acme", "c", units, term, decided))
			default:
				l.Append(renewed(storetest.Root, "acme", "c", units, term, decided))
			}
		}
		at := storetest.Start + domain.Instant(rapid.IntRange(-3, 20).Draw(t, "at"))*domain.Day
		type decision struct {
			order domain.Precedence
			event domain.Event
		}
		var said []decision
		for _, rec := range l.Records(domain.TopicPartition{Topic: domain.TopicProcurement}) {
			env := l.Event(&rec)
			var from domain.Instant
			switch ev := env.Event.(type) {
			case *domain.CommitmentPurchased:
				from = ev.Term.From
			case *domain.CommitmentRenewed:
				from = ev.Term.From
			case *domain.CommitmentEnded:
				from = ev.At
			}
			if o := env.Precedence(from); o.Effective <= at || o.Time <= at {
				o.Appended = rec.Time
				said = append(said, decision{o, env.Event})
			}
		}
		slices.SortFunc(said, func(a, b decision) int {
			if a.order.After(b.order) {
				return 1
			}
			return -1
		})
		units := func(day domain.Instant) (n uint32) {
			bought := false
			within := func(term domain.Interval, units uint32) uint32 {
				if term.From <= day && day < term.To {
					return units
				}
				return 0
			}
			for _, d := range said {
				switch ev := d.event.(type) {
				case *domain.CommitmentPurchased:
					bought, n = true, within(ev.Term, ev.Units)
				case *domain.CommitmentRenewed:
					if bought && ev.Term.From <= day {
						n = within(ev.Term, ev.Units)
					}
				case *domain.CommitmentEnded:
					if ev.At <= day {
						n = 0
					}
				}
			}
			return n
		}
		storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
			entries := commitments(t, v, at)
			if len(entries) > 1 {
				t.Fatalf("%d commitments of one", len(entries))
			}
			lost := map[domain.Instant]uint32{}
			for _, x := range planning.ExpiryLadder(entries) {
				lost[x.At] += x.Units
			}
			var before uint32
			for day := at; day < storetest.Start+60*domain.Day; day += domain.Day {
				var got uint32
				if len(entries) == 1 {
					if term := entries[0].At(day); term != nil {
						got = term.Units
					}
				}
				if want := units(day); got != want {
					t.Fatalf("as of %s, %s has %d units, want %d: %+v", at, day, got, want, entries)
				}
				if want := before - min(before, got); lost[day] != want {
					t.Fatalf("on %s units go from %d to %d, and on the ladder run out %d", day, before, got, lost[day])
				}
				before = got
			}
			for _, e := range entries {
				for i, term := range e.Terms {
					if term.Term.Empty() || term.Term.To <= at || i > 0 && term.Term.From < e.Terms[i-1].Term.To {
						t.Fatalf("terms %+v", e.Terms)
					}
				}
			}
			return nil
		})
	})
}
