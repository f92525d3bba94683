package projections

import (
	"cmp"
	"encoding/json"
	"math"
	"math/bits"
	"slices"
	"strings"

	"quartermaster/domain"
)

// ServerHour is the row of one model server, such as a pod, and UTC hour: the scraped counters and
// gauges of its series in the hour.
//
// A sample changes the row once, however often it is delivered and by however many monitoring
// systems, because each series keeps the time of its last sample and accepts only later ones. An
// hour continues the hour before it: its first sample takes the difference to the last sample of
// the hour before, which closes that hour. After more than an hour without samples a series starts
// anew.
type ServerHour struct {
	Engine     string         `json:"engine"`
	Deployment string         `json:"deployment"`
	Model      string         `json:"model,omitempty"`
	Tier       string         `json:"tier,omitempty"`
	Unit       string         `json:"unit"`
	Node       string         `json:"node,omitempty"`
	Series     []ServerSeries `json:"series"` // by metric, bound and id
	// Crowded counts samples of series that exceeded the size limit of the row.
	Crowded uint64 `json:"crowded,omitempty"`
}

func (*ServerHour) row() {}

// ServerSeries is one series in the hour.
type ServerSeries struct {
	Metric domain.SeriesMetric `json:"metric"`
	Bound  uint64              `json:"bound,omitempty"` // of a bucket, microseconds or [domain.Infinite]
	ID     uint64              `json:"id"`              // distinguishes series of one metric and bound
	// At is the time of the last sample, in milliseconds into the hour, and Last its value.
	// MsPerHour means that the next hour has continued from it.
	At   uint32 `json:"at_ms"`
	Last uint64 `json:"last"`
	// Sum is the growth of a counter. For a gauge it is the sum of values times the milliseconds
	// for which each held. Known is the sum of those milliseconds.
	Sum   uint64 `json:"sum"`
	Known uint64 `json:"known_ms"`
	Max   uint64 `json:"max"` // of a gauge
	// Sums are of the first three quarters of the hour, and Times those of Known, for a gauge. The last quarter has the rest. What grew
	// or held between two samples counts in the quarter of the later one.
	Sums  [3]uint64 `json:"sums"`
	Times [3]uint32 `json:"times_ms"`
}

// in returns the growth of a counter in quarters of the hour, or the sum and the time of a gauge.
func (s *ServerSeries) in(q Quarters) (sum, known uint64) {
	if q == AllQuarters {
		return s.Sum, s.Known
	}
	rest, left := s.Sum, s.Known
	for i := range s.Sums {
		part, ms := min(s.Sums[i], rest), min(uint64(s.Times[i]), left)
		if q.Has(i) {
			sum, known = sum+part, known+ms
		}
		rest, left = rest-part, left-ms
	}
	if q.Has(len(s.Sums)) {
		sum, known = sum+rest, known+left
	}
	return sum, known
}

// Seen reports whether anything of the server is known in quarters of the hour.
func (h *ServerHour) Seen(q Quarters) bool {
	return q == AllQuarters || slices.ContainsFunc(h.Series, func(s ServerSeries) bool {
		sum, known := s.in(q)
		return sum > 0 || known > 0 && s.Metric.Kind() == domain.GaugeKind
	})
}

// Until returns when the server was last seen in the hour, after its beginning.
func (h *ServerHour) Until() domain.Instant {
	var at uint32
	for i := range h.Series {
		at = max(at, h.Series[i].At)
	}
	return domain.Instant(at) * NsPerMs
}

// maxServerSeries bounds the series of a server: engines have about a hundred.
const maxServerSeries = 1024

// serverID returns the id within its cluster of a server of an event.
func serverID(m *domain.MetricsObserved, i int) string {
	return ServerID(m.Text(m.Deployment, i), m.Text(m.Model, i), m.Text(m.Tier, i), m.Text(m.Engine, i), m.Text(m.Unit, i))
}

// ServerID returns the id of a server within its cluster. Servers with one id share a row in each
// hour. Bars within names are escaped with a backslash, so that ids are unique.
func ServerID(deployment, model, tier, engine, unit string) string {
	var b strings.Builder
	for n, s := range [...]string{deployment, model, tier, engine, unit} {
		if n > 0 {
			b.WriteByte('|')
		}
		if strings.ContainsAny(s, `\|`) {
			s = serverEscaper.Replace(s)
		}
		b.WriteString(s)
	}
	return b.String()
}

var serverEscaper = strings.NewReplacer(`\`, `\\`, `|`, `\|`)

// serverSpan returns the hours that an event's samples may touch, including the hour before the
// first, because the first samples of an hour continue it.
func serverSpan(m *domain.MetricsObserved) (from, to int64) {
	latest := m.Base
	if len(m.Offset) > 0 {
		latest += domain.Instant(slices.Max(m.Offset)) * NsPerMs
	}
	return HourOf(m.Base) - 1, HourOf(latest)
}

// serverKeys yields the rows that an event may touch.
func serverKeys(scope string, m *domain.MetricsObserved, yield func(Key) bool) bool {
	from, to := serverSpan(m)
	if to-from > 25 {
		return true // more than an event may cover: it will be quarantined
	}
	for i := range m.Engine {
		id := serverID(m, i)
		for h := from; h <= to; h++ {
			if !yield(Key{Table: TableServers, Scope: scope, ID: id, Hour: h}) {
				return false
			}
		}
	}
	return true
}

// foldServers adds samples to their hours.
func foldServers(rows *WorkingSet, scope string, m *domain.MetricsObserved) {
	ids := make([]string, len(m.Engine))
	next := 0
	var row *ServerHour
	rowServer, rowHour := -1, int64(0)
	for i := range m.Server {
		server := int(m.Server[i])
		if ids[server] == "" {
			ids[server] = serverID(m, server)
		}
		name := ServerSeries{Metric: domain.SeriesMetric(m.Metric[i]), Bound: m.Bound[i], ID: m.Series[i]}
		for range m.Samples[i] {
			at, value := m.Base+domain.Instant(m.Offset[next])*NsPerMs, m.Value[next]
			next++
			hour := HourOf(at)
			if row == nil || server != rowServer || hour != rowHour {
				key := Key{Table: TableServers, Scope: scope, ID: ids[server], Hour: hour}
				row = change[*ServerHour](rows, key)
				if row.Engine == "" {
					row.Engine, row.Deployment = rows.keep(m.Text(m.Engine, server)), rows.keep(m.Text(m.Deployment, server))
					row.Model, row.Tier = rows.keep(m.Text(m.Model, server)), rows.keep(m.Text(m.Tier, server))
					row.Unit = rows.keep(m.Text(m.Unit, server))
				}
				if node := m.Text(m.Node, server); node != "" {
					row.Node = rows.keep(node)
				}
				rowServer, rowHour = server, hour
			}
			ms := uint32((at - domain.Instant(hour)*domain.Hour) / NsPerMs)
			row.take(name, ms, value, m.StepMs, func(name ServerSeries) (ServerSeries, bool) {
				return carryOn(rows, Key{Table: TableServers, Scope: scope, ID: ids[server], Hour: hour - 1}, name)
			})
		}
	}
}

func compareSeries(a, b ServerSeries) int {
	return cmp.Or(cmp.Compare(a.Metric, b.Metric), cmp.Compare(a.Bound, b.Bound), cmp.Compare(a.ID, b.ID))
}

// find returns the index of a series, or where to insert it.
func (h *ServerHour) find(name ServerSeries) (int, bool) {
	return slices.BinarySearchFunc(h.Series, name, compareSeries)
}

// carryOn returns a series at the end of an hour, and closes it there, so that the next hour can
// continue from it. It returns false if there is none.
func carryOn(rows *WorkingSet, k Key, name ServerSeries) (ServerSeries, bool) {
	row, ok := rows.Get(k).(*ServerHour)
	if !ok {
		return name, false
	}
	i, ok := row.find(name)
	if !ok || row.Series[i].At == MsPerHour {
		return name, false
	}
	s := &change[*ServerHour](rows, k).Series[i]
	ended := *s
	s.At = MsPerHour
	return ended, true
}

// take adds a sample. For the first sample of an hour it calls before for the end of the hour
// before.
func (h *ServerHour) take(
	name ServerSeries, at uint32, value uint64, step uint32, before func(ServerSeries) (ServerSeries, bool),
) {
	i, ok := h.find(name)
	since := int64(math.MaxInt64) // milliseconds since the sample before
	var last uint64
	if ok {
		s := &h.Series[i]
		if at <= s.At {
			return // a repeat, or too late
		}
		since, last = int64(at-s.At), s.Last
	} else {
		if len(h.Series) >= maxServerSeries {
			h.Crowded++
			return
		}
		if s, ok := before(name); ok {
			since, last = int64(at)+MsPerHour-int64(s.At), s.Last
		}
		h.Series = slices.Insert(h.Series, i, name)
	}
	s := &h.Series[i]
	s.At, s.Last = at, value
	quarter := int(at / (MsPerHour / 4))
	if name.Metric.Kind() == domain.GaugeKind {
		// The first sample holds for one step, later ones for at most two.
		ms := uint64(step)
		if since < math.MaxInt64 {
			ms = uint64(min(since, 2*int64(step)))
		}
		s.Known += ms
		s.Sum = Saturating(s.Sum, value, ms)
		if quarter < len(s.Sums) {
			s.Sums[quarter] = Saturating(s.Sums[quarter], value, ms)
			s.Times[quarter] += uint32(ms)
		}
		s.Max = max(s.Max, value)
		return
	}
	if since == math.MaxInt64 {
		return // the counter's starting point
	}
	if value < last {
		last = 0 // the server restarted
	}
	s.Sum = Saturating(s.Sum, value-last, 1)
	if quarter < len(s.Sums) {
		s.Sums[quarter] = Saturating(s.Sums[quarter], value-last, 1)
	}
	s.Known += uint64(since)
}

// MarshalJSON shows the hour as sums and histograms, for SQL queries, because a row has about
// eighty series.
func (h *ServerHour) MarshalJSON() ([]byte, error) {
	g := NewServed()
	g.Server(h, AllQuarters)
	return json.Marshal(struct {
		Engine     string `json:"engine"`
		Deployment string `json:"deployment"`
		Model      string `json:"model"`
		Tier       string `json:"tier"`
		Unit       string `json:"unit"`
		Node       string `json:"node"`
		ServedSums
		TTFT      []Latency `json:"ttft"`
		QueueWait []Latency `json:"queue_wait"`
	}{h.Engine, h.Deployment, h.Model, h.Tier, h.Unit, h.Node, g.Sums(), g.TTFT.Latencies(), g.Wait.Latencies()})
}

// Saturating returns sum + a × b, or the greatest number if that overflows.
func Saturating(sum, a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	total, carry := bits.Add64(sum, low, 0)
	if high != 0 || carry != 0 {
		return math.MaxUint64
	}
	return total
}

// The encoding of a server's hour in deterministic CBOR, like that of usage hours:
//
//	hour      [engine, deployment, model, tier, unit, node, series, crowded, quarters]
//	series    metric, bound, id, at, last, sum, known, max of each, in one array
//	quarters  of each series of which anything is known, in one array: three sums; of a gauge, three times too

const seriesNumbers = 8

// quartered reports whether an encoded hour has the quarters of a series, and of a gauge.
func (s *ServerSeries) quartered() (has, gauge bool) {
	gauge = s.Metric.Kind() == domain.GaugeKind
	return s.Sum > 0 || gauge && s.Known > 0, gauge
}

func appendServer(b []byte, h *ServerHour) []byte {
	b = appendHead(b, majorArray, 9)
	for _, s := range [...]string{h.Engine, h.Deployment, h.Model, h.Tier, h.Unit, h.Node} {
		b = appendText(b, s)
	}
	b = appendHead(b, majorArray, uint64(seriesNumbers*len(h.Series)))
	for i := range h.Series {
		s := &h.Series[i]
		b = appendUints(b, uint64(s.Metric), s.Bound, s.ID, uint64(s.At), s.Last, s.Sum, s.Known, s.Max)
	}
	b = appendUints(b, h.Crowded)
	numbers := 0
	for i := range h.Series {
		if has, gauge := h.Series[i].quartered(); gauge && has {
			numbers += 6
		} else if has {
			numbers += 3
		}
	}
	b = appendHead(b, majorArray, uint64(numbers))
	for i := range h.Series {
		s := &h.Series[i]
		has, gauge := s.quartered()
		if !has {
			continue
		}
		b = appendUints(b, s.Sums[:]...)
		if gauge {
			b = appendUints(b, uint64(s.Times[0]), uint64(s.Times[1]), uint64(s.Times[2]))
		}
	}
	return b
}

// MarshalCBOR implements cbor.Marshaler.
func (h *ServerHour) MarshalCBOR() ([]byte, error) { return appendServer(nil, h), nil }

// UnmarshalCBOR implements cbor.Unmarshaler.
func (h *ServerHour) UnmarshalCBOR(b []byte) error {
	r := cborReader{b: b}
	*h = ServerHour{}
	r.tuple(9)
	h.Engine, h.Deployment, h.Model, h.Tier, h.Unit, h.Node = r.text(), r.text(), r.text(), r.text(), r.text(), r.text()
	n := r.array()
	if n%seriesNumbers != 0 {
		r.fail("%d numbers are no series", n)
		return r.err
	}
	if n > 0 {
		h.Series = make([]ServerSeries, n/seriesNumbers)
	}
	for i := range h.Series {
		h.Series[i] = ServerSeries{Metric: domain.SeriesMetric(r.uint32()), Bound: r.uint64(), ID: r.uint64(), At: r.uint32(),
			Last: r.uint64(), Sum: r.uint64(), Known: r.uint64(), Max: r.uint64()}
	}
	h.Crowded = r.uint64()
	numbers := r.array()
	for i := range h.Series {
		s := &h.Series[i]
		has, gauge := s.quartered()
		if !has {
			continue
		}
		s.Sums = [3]uint64{r.uint64(), r.uint64(), r.uint64()}
		numbers -= 3
		if gauge {
			s.Times = [3]uint32{r.uint32(), r.uint32(), r.uint32()}
			numbers -= 3
		}
	}
	if r.err == nil && numbers != 0 {
		r.fail("%d numbers more than the quarters of its series have", numbers)
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes follow", len(r.b))
	}
	return r.err
}

// sumOf returns the sum of the counter of the same server and id as a histogram.
func (h *ServerHour) sumOf(metric domain.SeriesMetric, id uint64, q Quarters) uint64 {
	i, ok := h.find(ServerSeries{Metric: metric, ID: id})
	if !ok {
		return 0
	}
	sum, _ := h.Series[i].in(q)
	return sum
}
