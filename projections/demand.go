package projections

import (
	"sort"
	"strings"

	"quartermaster/domain"
)

// DemandMonth is the row of the observations of one demand series (a pool with one model and unit)
// in a cluster, for intervals that begin in one UTC month. Three years of an hourly series are 36
// rows of 36 KB instead of 26,280 rows.
//
// If an interval is stated again with other figures, both are kept: the one later in the log
// counts, and a query for an earlier time gets the earlier one. An equal statement is kept once,
// with the earlier time. Intervals that overlap without being equal are all kept; [demand.Pools]
// decides which of them counts.
type DemandMonth struct {
	Labels []DemandLabel
	// Spans are ordered by interval, and for one interval in log order.
	Spans []DemandSpan
}

func (*DemandMonth) row() {}

// DemandLabel holds the attributes of an observation, without its figures.
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
	Known   domain.Instant // when it became known: as recorded, else when it was appended
}

// seriesID joins the names of a series into one id. It escapes separators within names, so that two
// series never share a row.
func seriesID(pool, model, unit string) string {
	return escapeBar(pool) + "|" + escapeBar(model) + "|" + unit
}

func escapeBar(s string) string {
	if !strings.ContainsAny(s, `|\`) {
		return s
	}
	return strings.NewReplacer(`|`, `\|`, `\`, `\\`).Replace(s)
}

// SplitSeries is the inverse of seriesID.
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

// foldDemand adds an observation that became known at a time. Times are stored in milliseconds; a
// shorter interval is skipped.
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

// add inserts an observation after those of earlier intervals and of the same interval. Usually it
// is the latest and is appended.
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
