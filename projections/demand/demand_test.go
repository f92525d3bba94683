package demand_test

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/demand"
	"quartermaster/projections/storetest"
)

func read(t *rapid.T, m *projections.Memory, from, to domain.Instant, f demand.Filter) (out []demand.Pool) {
	storetest.Look(t, m, func(v projections.View) error {
		var err error
		out, err = demand.Pools(v, from, to, f)
		return err
	})
	return out
}

// plainDemand computes the same as Pools directly from the records, moment by moment.
func plainDemand(l *storetest.Log, from, to domain.Instant, f demand.Filter) []demand.Pool {
	type name struct{ cluster, pool, model, unit string }
	type said struct {
		ev        *domain.DemandObserved
		workspace string
		from, to  int64 // milliseconds
		order     int
	}
	series := map[name][]said{}
	owner, region := "", ""
	n := 0
	for _, tp := range domain.AllPartitions() {
		for _, rec := range l.Records(tp) {
			env := l.Event(&rec)
			n++
			switch ev := env.Event.(type) {
			case *domain.ClusterRegistered:
				if region == "" || env.Time < to {
					owner, region = env.Workspace, ev.Region
				}
			case *domain.DemandObserved:
				known := env.Recorded
				if known == 0 {
					known = rec.Time
				}
				if f.KnownBy != 0 && known > f.KnownBy {
					continue
				}
				s := said{ev, env.Workspace, int64(ev.Interval.From / 1e6), int64(ev.Interval.To / 1e6), n}
				k := name{env.Cluster, ev.Pool, ev.Model, ev.Unit}
				series[k] = append(series[k], s)
			}
		}
	}
	var out []demand.Pool
	for k, all := range series {
		p := demand.Pool{Cluster: k.cluster, Pool: k.pool, Model: k.model, Unit: k.unit, Region: region, Workspace: owner, From: from}
		seen := false
		for h := from; h < to; h += domain.Hour {
			start, end := int64(h/1e6), int64((h+domain.Hour)/1e6)
			edges := []int64{start, end}
			for _, s := range all {
				edges = append(edges, min(max(s.from, start), end), min(max(s.to, start), end))
			}
			slices.Sort(edges)
			var ms int64
			sums := [3]*big.Int{new(big.Int), new(big.Int), new(big.Int)}
			for i := 1; i < len(edges); i++ {
				var best *said
				for j := range all {
					s := &all[j]
					if s.from > edges[i-1] || s.to < edges[i] || edges[i] == edges[i-1] {
						continue
					}
					if best == nil || cmp.Or(cmp.Compare(best.to-best.from, s.to-s.from), cmp.Compare(s.from, best.from), cmp.Compare(s.order, best.order)) > 0 {
						best = s
					}
				}
				if best == nil {
					continue
				}
				length := edges[i] - edges[i-1]
				ms += length
				for j, v := range []uint64{best.ev.RunningMilli, best.ev.PendingMilli, best.ev.OwnedMilli} {
					sums[j].Add(sums[j], new(big.Int).Mul(new(big.Int).SetUint64(v), big.NewInt(length)))
				}
				p.Region, p.Workspace = cmp.Or(best.ev.Region, region), cmp.Or(best.workspace, owner)
			}
			for j, to := range []*[]uint64{&p.Running, &p.Pending, &p.Owned} {
				var mean uint64
				if ms > 0 {
					seen = true
					mean = new(big.Int).Div(sums[j], big.NewInt(ms)).Uint64()
				}
				*to = append(*to, mean)
			}
			p.ObservedMs = append(p.ObservedMs, uint32(ms))
		}
		if seen && (f.Region == "" || f.Region == p.Region) && (f.Workspace == "" || f.Workspace == p.Workspace) &&
			(f.Pool == "" || f.Pool == p.Pool) && (f.Model == "" || f.Model == p.Model) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b demand.Pool) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Model, b.Model))
	})
	return out
}

// The demand from the rows equals that from the records, moment by moment, for any requested time
// and any time of knowledge.
func TestDemandIsWhatWasObserved(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		l := storetest.DrawDemand(t)
		from := storetest.Start + domain.Instant(rapid.IntRange(-5, 5).Draw(t, "from"))*domain.Hour
		to := from + domain.Instant(rapid.IntRange(1, 9).Draw(t, "hours"))*domain.Hour
		f := demand.Filter{
			Pool:      rapid.SampledFrom([]string{"", "", "p|m"}).Draw(t, "only pool"),
			Model:     rapid.SampledFrom([]string{"", "", "m"}).Draw(t, "only model"),
			Region:    rapid.SampledFrom([]string{"", "", "eu"}).Draw(t, "only region"),
			Workspace: rapid.SampledFrom([]string{"", "", "acme"}).Draw(t, "only workspace"),
		}
		if rapid.Bool().Draw(t, "as of") {
			f.KnownBy = storetest.Start + domain.Instant(rapid.IntRange(0, 9).Draw(t, "known by"))*domain.Hour
		}
		m := storetest.Fold(t, l)
		got, want := read(t, m, from, to, f), plainDemand(l, from, to, f)
		if len(got) != len(want) {
			t.Fatalf("%d series, want %d:\n%+v\n%+v", len(got), len(want), got, want)
		}
		for i := range got {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("series\n%+v, want\n%+v", got[i], want[i])
			}
		}
	})
}

func TestDemand(t *testing.T) {
	observed := func(from, length int, running uint64, known int) domain.Envelope {
		i := storetest.Span(from, from+length)
		return domain.Envelope{Cluster: "c", Time: i.To, Recorded: storetest.Start + domain.Instant(known)*storetest.Minute, Event: &domain.DemandObserved{
			Pool: "p", Unit: "gpu", Interval: i, RunningMilli: running,
		}}
	}
	for _, c := range []struct {
		name    string
		log     []domain.Envelope
		knownBy int
		want    string // running of three hours, and how many minutes were observed
	}{
		{"nothing then", []domain.Envelope{observed(-60, 60, 1, 1)}, 0, "[]"},
		{"an hour, a gap, an hour", []domain.Envelope{observed(0, 60, 7, 1), observed(120, 60, 9, 1)}, 0, "[7 0 9] [60 0 60] gaps [60-120]"},
		{"part of an hour", []domain.Envelope{observed(30, 60, 7, 1)}, 0, "[7 7 0] [30 30 0] gaps [0-180]"},
		{"parts of an hour", []domain.Envelope{observed(0, 20, 10, 1), observed(20, 40, 4, 1), observed(60, 120, 5, 1)}, 0, "[6 5 5] [60 60 60] gaps []"},
		{"stated again, the later in the log counts", []domain.Envelope{observed(0, 60, 7, 9), observed(0, 60, 8, 5)}, 0, "[8 0 0] [60 0 0] gaps [60-180]"},
		{"as it was known before", []domain.Envelope{observed(0, 60, 7, 5), observed(0, 60, 8, 9)}, 8, "[7 0 0] [60 0 0] gaps [60-180]"},
		{"known to the minute", []domain.Envelope{observed(0, 60, 7, 5), observed(0, 60, 8, 9)}, 9, "[8 0 0] [60 0 0] gaps [60-180]"},
		{"not known yet", []domain.Envelope{observed(0, 60, 7, 5)}, 4, "[]"},
		{"late", []domain.Envelope{observed(120, 60, 9, 1), observed(0, 60, 7, 1)}, 0, "[7 0 9] [60 0 60] gaps [60-120]"},
		{"the shorter says more", []domain.Envelope{observed(60, 60, 1, 1), observed(0, 180, 7, 1)}, 0, "[7 1 7] [60 60 60] gaps []"},
		{"from the month before", []domain.Envelope{observed(-180, 360, 7, 1)}, 0, "[7 7 7] [60 60 60] gaps []"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(c.log...)
			storetest.FoldView(t, l, func(v projections.View) {
				f := demand.Filter{}
				if c.knownBy != 0 {
					f.KnownBy = storetest.Start + domain.Instant(c.knownBy)*storetest.Minute
				}
				got, err := demand.Pools(v, storetest.Start, storetest.Start+3*domain.Hour, f)
				if err != nil {
					t.Fatal(err)
				}
				text := fmt.Sprint(got)
				if len(got) == 1 {
					minutes, gaps := []uint32{}, []string{}
					for _, ms := range got[0].ObservedMs {
						minutes = append(minutes, ms/60_000)
					}
					for _, g := range got[0].Gaps() {
						gaps = append(gaps, fmt.Sprintf("%d-%d", (g.From-storetest.Start)/storetest.Minute, (g.To-storetest.Start)/storetest.Minute))
					}
					text = fmt.Sprint(got[0].Running, " ", minutes, " gaps ", gaps)
				}
				if text != c.want {
					t.Errorf("%s, want %s", text, c.want)
				}
			})
		})
	}
}

// The largest possible figures do not overflow a mean.
func TestDemandOfTheLargest(t *testing.T) {
	l := storetest.NewLog()
	for _, i := range []domain.Interval{storetest.Span(0, 7), storetest.Span(7, 31), storetest.Span(31, 59)} {
		l.Append(domain.Envelope{Cluster: "c", Time: i.To, Event: &domain.DemandObserved{Pool: "p", Unit: "vm", Interval: i, RunningMilli: 1<<64 - 1}})
	}
	storetest.FoldView(t, l, func(v projections.View) {
		got, err := demand.Pools(v, storetest.Start, storetest.Start+domain.Hour, demand.Filter{})
		if err != nil || len(got) != 1 || got[0].Running[0] != 1<<64-1 || got[0].ObservedMs[0] != 59*60_000 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	storetest.FoldView(t, l, func(v projections.View) {
		if _, err := demand.Pools(v, storetest.Start, storetest.Start, demand.Filter{}); err == nil {
			t.Error("no time at all is no error")
		}
	})
}

// Reads the demand of three years, 630,720 observations, and of three times as many.
func BenchmarkDemand(b *testing.B) {
	for _, series := range []int{24, 72} {
		b.Run(fmt.Sprint(series*threeYears), func(b *testing.B) {
			m := newDemandLog(series).fold(b, threeYears)
			runtime.GC()
			b.ReportAllocs()
			for b.Loop() {
				err := m.View(context.Background(), func(v projections.View) error {
					got, err := demand.Pools(v, storetest.Start, storetest.Start+threeYears*domain.Hour, demand.Filter{})
					if len(got) != series || len(got[0].Gaps()) > 0 {
						b.Fatalf("%d series, gaps in the first: %v", len(got), got[0].Gaps())
					}
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(series*threeYears), "ns/observation")
		})
	}
}
