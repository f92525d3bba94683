package projections

import (
	"sort"
	"strings"

	"quartermaster/domain"
)

// DemandMonth is the row of what was observed of one series of demand (a pool's,
// in one model and unit) in a cluster, in the intervals that begin in one UTC
// month. Three years of an hourly series are 36 rows of 36 KB instead of 26,280.
//
// An interval that is stated again with other figures keeps both: the statement
// that stands later in the log counts, and whoever asks what was known at a time
// gets the one before. One that is stated again alike is kept once, known from
// the earlier time. Intervals that overlap without being equal stand side by
// side; [demand.Pools] says which of them counts.
type DemandMonth struct {
	Labels []DemandLabel
	// Spans by interval; of one interval in the order of the log.
	Spans []DemandSpan
}

func (*DemandMonth) row() {}

// DemandLabel is what an observation says besides figures.
type DemandLabel struct {
	Region    string // "" for the cluster's
	Workspace string // "" for the cluster's owner
}

// DemandSpan is one observation: means over an interval in thousandths of the
// series' unit.
type DemandSpan struct {
	From    uint32 // milliseconds into the month
	Length  uint32 // milliseconds
	Label   uint32 // index into the row's Labels
	Running uint64
	Pending uint64
	Owned   uint64
	Known   domain.Instant // since when it is known: as recorded, else when it was appended
}

// seriesID makes one id of what names a series. Names may hold the separator,
// and two series must never share a row.
func seriesID(pool, model, unit string) string {
	return escapeBar(pool) + "|" + escapeBar(model) + "|" + unit
}

func escapeBar(s string) string {
	if !strings.ContainsAny(s, `|\`) {
		return s
	}
	return strings.NewReplacer(`|`, `\|`, `\`, `\\`).Replace(s)
}

// SplitSeries undoes seriesID.
func SplitSeries(id string) (pool, model, unit string) {
	var parts [3]string
	n := 0
	var b strings.Builder
	for i := 0; i < len(id); i++ {
		switch c := id[i]; {
		case c == '\\' && i+1 < len(id):
			i++
			b.WriteByte(id[i])
		case c == '|' && n < 2:
			parts[n] = b.String()
			n++
			b.Reset()
		default:
			b.WriteByte(c)
		}
	}
	parts[n] = b.String()
	return parts[0], parts[1], parts[2]
}

func demandKey(scope string, d *domain.DemandObserved) Key {
	return Key{Table: TableDemand, Scope: scope, ID: seriesID(d.Pool, d.Model, d.Unit), Hour: MonthStart(d.Interval.From)}
}

// foldDemand enters an observation, known from a time on. Times are kept to the
// millisecond; an interval that is shorter than one is passed over.
func foldDemand(rows *WorkingSet, scope, workspace string, known domain.Instant, d *domain.DemandObserved) {
	k := demandKey(scope, d)
	from := d.Interval.From / NsPerMs
	s := DemandSpan{
		From:    uint32(from - domain.Instant(k.Hour)*MsPerHour), // below 2^32: a month has 2.7 · 10⁹
		Length:  uint32(d.Interval.To/NsPerMs - from),
		Running: d.RunningMilli, Pending: d.PendingMilli, Owned: d.OwnedMilli,
		Known: known,
	}
	if s.Length == 0 {
		return
	}
	m := change[*DemandMonth](rows, k)
	s.Label = m.label(rows, d.Region, workspace)
	m.add(s)
}

func (m *DemandMonth) label(rows *WorkingSet, region, workspace string) uint32 {
	for i := range m.Labels {
		if m.Labels[i].Region == region && m.Labels[i].Workspace == workspace {
			return uint32(i)
		}
	}
	m.Labels = append(m.Labels, DemandLabel{Region: rows.keep(region), Workspace: rows.keep(workspace)})
	return uint32(len(m.Labels) - 1)
}

// add enters an observation behind those of its interval and of earlier ones.
// The usual one is the latest and is appended.
func (m *DemandMonth) add(s DemandSpan) {
	n := len(m.Spans)
	i := n
	if n > 0 && s.startsBefore(&m.Spans[n-1]) {
		i = sort.Search(n, func(i int) bool { return s.startsBefore(&m.Spans[i]) })
	}
	if i > 0 {
		if before := &m.Spans[i-1]; before.says(&s) {
			before.Known = min(before.Known, s.Known)
			return
		}
	}
	m.Spans = append(m.Spans, s)
	if i < n {
		copy(m.Spans[i+1:], m.Spans[i:])
		m.Spans[i] = s
	}
}

// startsBefore orders intervals: by start, then by length.
func (s *DemandSpan) startsBefore(t *DemandSpan) bool {
	return s.From < t.From || s.From == t.From && s.Length < t.Length
}

func (s *DemandSpan) says(t *DemandSpan) bool {
	u := *t
	u.Known = s.Known
	return *s == u
}
