package projections

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"quartermaster/domain"
)

const minutes = 60 * domain.Second

type value struct {
	at    domain.Instant
	value uint64
}

// metricsOf builds an event of one series of one server.
func metricsOf(metric domain.SeriesMetric, values []value) *domain.MetricsObserved {
	m := &domain.MetricsObserved{
		Base: values[0].at, StepMs: 30_000, Strings: []string{"vllm", "chat", "llama", "chat-0"},
		Engine: []uint32{1}, Deployment: []uint32{2}, Model: []uint32{3}, Tier: []uint32{0}, Unit: []uint32{4}, Node: []uint32{0},
		Server: []uint32{0}, Metric: []uint32{uint32(metric)}, Bound: []uint64{0}, Series: []uint64{1}, Samples: []uint32{uint32(len(values))},
	}
	for _, v := range values {
		m.Offset = append(m.Offset, uint32((v.at-values[0].at)/NsPerMs))
		m.Value = append(m.Value, v.value)
	}
	return m
}

func sums(rows *WorkingSet) (sum, known uint64) {
	for h := HourOf(t0) - 1; h < HourOf(t0)+80; h++ {
		row, ok := rows.Get(Key{Table: TableServers, Scope: "c", ID: "chat|llama||vllm|chat-0", Hour: h}).(*ServerHour)
		if !ok {
			continue
		}
		for _, s := range row.Series {
			sum += s.Sum
			known += s.Known
		}
	}
	return sum, known
}

// A counter that is scraped for hours and sometimes restarts adds up to what it counted after the
// first sample, for every split of the samples into events and every number of repeats.
func TestCounters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []value
		var want, counter uint64
		at := t0
		for i := range rapid.IntRange(1, 60).Draw(t, "samples") {
			at += domain.Instant(rapid.IntRange(1, 240).Draw(t, "gap")) * 15 * domain.Second
			grown := rapid.Uint64Range(0, 100).Draw(t, "grown")
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 && counter > 0 {
				counter, grown = 0, rapid.Uint64Range(0, counter-1).Draw(t, "after")
			}
			counter += grown
			if i > 0 {
				want += grown
			}
			all = append(all, value{at, counter})
		}
		rows := NewWorkingSet()
		for i := 0; i < len(all); {
			n := rapid.IntRange(1, len(all)-i).Draw(t, "cut")
			foldServers(rows, "c", metricsOf(domain.MetricInputLength, all[i:i+n]))
			if rapid.Bool().Draw(t, "again") {
				from := rapid.IntRange(0, i+n-1).Draw(t, "from")
				foldServers(rows, "c", metricsOf(domain.MetricInputLength, all[from:i+n]))
			}
			i += n
		}
		if got, known := sums(rows); got != want || known != uint64(at-all[0].at)/NsPerMs {
			t.Fatalf("adds up to %d in %d ms, want %d in %d", got, known, want, (at-all[0].at)/NsPerMs)
		}
	})
}

// Growth during a silence of more than an hour is not counted.
func TestCounterSilence(t *testing.T) {
	rows := NewWorkingSet()
	for _, v := range []value{{t0, 5}, {t0 + 30*minutes, 7}, {t0 + 3*domain.Hour, 100}, {t0 + 3*domain.Hour + 1*minutes, 101}} {
		foldServers(rows, "c", metricsOf(domain.MetricInputLength, []value{v}))
	}
	if got, _ := sums(rows); got != 3 {
		t.Errorf("adds up to %d, want 3", got)
	}
	// Late samples of an hour that the next one has continued are not counted twice.
	foldServers(rows, "c", metricsOf(domain.MetricInputLength, []value{{t0 + 4*domain.Hour, 110}}))
	foldServers(rows, "c", metricsOf(domain.MetricInputLength, []value{{t0 + 3*domain.Hour + 59*minutes, 108}}))
	if got, _ := sums(rows); got != 12 {
		t.Errorf("adds up to %d, want 12", got)
	}
}

// A gauge holds for the time since the sample before, for at most two steps.
func TestGauges(t *testing.T) {
	rows := NewWorkingSet()
	for _, s := range []struct {
		second int
		v      uint64
	}{{0, 1000}, {30, 3000}, {60, 2000}, {60, 9000}, {45, 9000}, {600, 4000}} {
		foldServers(rows, "c", metricsOf(domain.MetricRunning, []value{{t0 + domain.Instant(s.second)*domain.Second, s.v}}))
	}
	sum, known := sums(rows)
	if want := uint64(30_000*1000 + 30_000*3000 + 30_000*2000 + 60_000*4000); sum != want || known != 150_000 {
		t.Errorf("adds up to %d in %d ms, want %d in 150000", sum, known, want)
	}
}

// TestQuarters holds that what grew or held between two samples counts in the quarter of the later one, and that the quarters of
// an hour add up to it.
func TestQuarters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		metric := rapid.SampledFrom([]domain.SeriesMetric{domain.MetricInputLength, domain.MetricKVCache}).Draw(t, "metric")
		rows, at, last, first := NewWorkingSet(), t0, uint64(0), true
		type both struct{ sum, known uint64 }
		want := map[int64]both{} // by quarter
		for range rapid.IntRange(1, 40).Draw(t, "samples") {
			gap := domain.Instant(rapid.IntRange(1, 40).Draw(t, "gap")) * 30 * domain.Second
			at += gap
			v := rapid.Uint64Range(0, 100).Draw(t, "value")
			if metric == domain.MetricInputLength {
				v += last
			}
			foldServers(rows, "c", metricsOf(metric, []value{{at, v}}))
			q := want[int64(at/domain.QuarterHour)]
			if ms := uint64(min(gap, 60*domain.Second) / NsPerMs); metric == domain.MetricKVCache {
				if first {
					ms = 30_000
				}
				q.sum, q.known = q.sum+v*ms, q.known+ms
			} else if !first {
				q.sum += v - last
			}
			want[int64(at/domain.QuarterHour)] = q
			last, first = v, false
		}
		for hour := HourOf(t0); hour <= HourOf(at); hour++ {
			row, ok := rows.Get(Key{Table: TableServers, Scope: "c", ID: "chat|llama||vllm|chat-0", Hour: hour}).(*ServerHour)
			if !ok {
				continue
			}
			s := &row.Series[0]
			var all both
			for i := range int64(4) {
				sum, known := s.in(1 << i)
				if w := want[4*hour+i]; sum != w.sum || metric == domain.MetricKVCache && known != w.known {
					t.Fatalf("quarter %d of hour %d has %d in %d ms, want %+v", i, hour, sum, known, w)
				}
				all = both{all.sum + sum, all.known + known}
			}
			if sum, known := s.in(AllQuarters); all.sum != sum || all.known != known {
				t.Fatalf("the quarters have %+v, the hour %d in %d ms", all, sum, known)
			}
		}
	})
}

// Labels may name any number of series: the size of a row is limited.
func TestServerCrowded(t *testing.T) {
	rows := NewWorkingSet()
	m := metricsOf(domain.MetricRunning, []value{{t0, 1}})
	for i := range 3 * maxServerSeries {
		m.Series[0] = uint64(i)
		foldServers(rows, "c", m)
	}
	row := rows.Get(Key{Table: TableServers, Scope: "c", ID: "chat|llama||vllm|chat-0", Hour: HourOf(t0)}).(*ServerHour)
	if len(row.Series) != maxServerSeries || row.Crowded != 2*maxServerSeries {
		t.Errorf("%d series, %d crowded", len(row.Series), row.Crowded)
	}
}

func TestServerHourEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 20, 60)
		u64 := rapid.OneOf(rapid.Uint64Range(0, 30), rapid.Uint64())
		h := &ServerHour{Engine: text.Draw(t, "engine"), Deployment: text.Draw(t, "deployment"), Model: text.Draw(t, "model"),
			Tier: text.Draw(t, "tier"), Unit: text.Draw(t, "unit"), Node: text.Draw(t, "node"), Crowded: u64.Draw(t, "crowded")}
		for range rapid.IntRange(0, 4).Draw(t, "series") {
			s := ServerSeries{
				Metric: domain.SeriesMetric(rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 30)).Draw(t, "metric")), Bound: u64.Draw(t, "bound"),
				ID: u64.Draw(t, "id"), At: rapid.Uint32().Draw(t, "at"), Last: u64.Draw(t, "last"), Sum: u64.Draw(t, "sum"), Known: u64.Draw(t, "known"),
				Max: u64.Draw(t, "max"),
			}
			has, gauge := s.quartered()
			for i := range s.Sums {
				if has {
					s.Sums[i] = u64.Draw(t, "quarter")
				}
				if has && gauge {
					s.Times[i] = rapid.Uint32().Draw(t, "time")
				}
			}
			h.Series = append(h.Series, s)
		}
		b, err := EncodeRow(h)
		if err != nil {
			t.Fatal(err)
		}
		row, err := DecodeRow(TableServers, b)
		if err != nil || !reflect.DeepEqual(row, h) {
			t.Fatalf("read %+v, %v; wrote %+v", row, err, h)
		}
		var plain any
		if err := cbor.Unmarshal(b, &plain); err != nil {
			t.Fatalf("another reader cannot read it: %v", err)
		}
		again, err := canonical.Marshal(plain)
		if err != nil || !bytes.Equal(b, again) {
			t.Fatalf("the library writes %x, this %x", again, b)
		}
	})
}

func FuzzServerHour(f *testing.F) {
	f.Add(appendServer(nil, &ServerHour{Engine: "vllm", Series: []ServerSeries{{Metric: 1, Bound: 5, Sum: 9}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := &ServerHour{}
		if err := h.UnmarshalCBOR(b); err != nil {
			return
		}
		again := &ServerHour{}
		if err := again.UnmarshalCBOR(appendServer(nil, h)); err != nil || !reflect.DeepEqual(h, again) {
			t.Fatalf("%+v is read back as %+v: %v", h, again, err)
		}
	})
}
