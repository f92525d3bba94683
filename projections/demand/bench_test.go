package demand_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// demandLog is a log of hourly demand, generated while it is read: record i states the demand of
// series i mod series in hour i ÷ series.
type demandLog struct {
	tp     domain.TopicPartition
	series int
	names  []domain.DemandObserved
}

const demandCluster = "demand"

func newDemandLog(series int) *demandLog {
	l := &demandLog{
		tp:     domain.TopicPartition{Topic: domain.TopicTelemetry, Partition: domain.PartitionOf([]byte(demandCluster), domain.TopicTelemetry.Partitions())},
		series: series,
	}
	for n := range series {
		region, model := fmt.Sprintf("region-%d", n/12), fmt.Sprintf("type-%02d", n%12)
		l.names = append(l.names, domain.DemandObserved{Pool: region + "/" + model, Region: region, Model: model, Unit: "vm"})
	}
	return l
}

func (l *demandLog) ReadAfter(_ context.Context, tp domain.TopicPartition, _ domain.Anchor, from, to int64, yield func([]domain.Record) error) error {
	batch := make([]domain.Record, 0, 1000)
	for i := from; i < to; i++ {
		batch = append(batch, domain.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: i, Time: storetest.Start, Key: []byte(demandCluster)})
		if len(batch) == cap(batch) || i+1 == to {
			if err := yield(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

func (l *demandLog) FollowAfter(context.Context, domain.TopicPartition, domain.Anchor, int64, func([]domain.Record) error) error {
	panic("demandLog ends")
}

func (l *demandLog) Decode(rec *domain.Record, env *domain.Envelope) error {
	hour := storetest.Start + domain.Instant(rec.Offset/int64(l.series))*domain.Hour
	ev := l.names[int(rec.Offset)%l.series]
	ev.Interval, ev.RunningMilli = domain.Interval{From: hour, To: hour + domain.Hour}, uint64(rec.Offset%97)*1000
	*env = domain.Envelope{
		Source: "import/demand", Incarnation: 1, Sequence: uint64(rec.Offset + 1), Time: hour + domain.Hour, Cluster: demandCluster,
		Event: &ev,
	}
	return nil
}

// fold returns a store of the first hours of the log.
func (l *demandLog) fold(tb testing.TB, hours int) *projections.Memory {
	tb.Helper()
	m := projections.NewMemory(domain.TopicSpecs())
	l.foldInto(tb, m, hours)
	return m
}

func (l *demandLog) foldInto(tb testing.TB, m *projections.Memory, hours int) {
	tb.Helper()
	r := &projections.Runner{Log: l, Store: m, Topics: domain.TopicSpecs(), NewDecoder: func() projections.Decoder { return l }}
	if err := r.CatchUp(context.Background(), domain.Position{l.tp: int64(hours * l.series)}); err != nil {
		tb.Fatal(err)
	}
}

// threeYears is 1,095 days of hours.
const threeYears = 3 * 365 * 24

// Three years of hourly demand of two regions with twelve types, 630,720 observations, and of three
// times as many: the cost of folding, and the memory of the rows.
func BenchmarkFoldDemand(b *testing.B) {
	for _, series := range []int{24, 72} {
		b.Run(fmt.Sprint(series*threeYears), func(b *testing.B) {
			l := newDemandLog(series)
			var before, after runtime.MemStats
			var m *projections.Memory
			for b.Loop() {
				b.StopTimer()
				runtime.KeepAlive(m)
				m = projections.NewMemory(domain.TopicSpecs())
				runtime.GC()
				runtime.ReadMemStats(&before)
				b.StartTimer()
				l.foldInto(b, m, threeYears)
			}
			b.ReportMetric(float64(series*threeYears)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
			runtime.KeepAlive(m)
		})
	}
}
